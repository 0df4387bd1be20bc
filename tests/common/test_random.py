import numpy as np
import pytest
import torch

from icml24.common.random import generator, numpy_generator, stream_seed


def test_streams_are_reproducible_and_distinct():
    names = [(0,), (1,), (0, 1), (0, "1"), (0, "a"), (0, "a", 1), (0, "a/i:1")]
    seeds = [stream_seed(*name) for name in names]
    assert seeds == [stream_seed(*name) for name in names]
    assert len(set(seeds)) == len(names)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_seed_of_a_stream_is_the_same_on_every_machine():
    # sha256('[0, "weights"]'), first eight bytes, little-endian, halved: worked out apart from this module.
    assert stream_seed(0, "weights") == 5681230749671811970


def test_generators_draw_what_their_stream_says(global_random_state):
    before = global_random_state()
    assert torch.equal(torch.rand(4, generator=generator(3, "x")), torch.rand(4, generator=generator(3, "x")))
    assert not torch.equal(
        torch.rand(4, generator=generator(3, "x")), torch.rand(4, generator=generator(3, "y"))
    )
    np.testing.assert_array_equal(numpy_generator(3, "x").random(4), numpy_generator(3, "x").random(4))
    assert global_random_state() == before


@pytest.mark.parametrize("bad", [(0.5,), (0, 1.0), (0, None), (True,)])
def test_rejects_names_that_are_not_names(bad):
    with pytest.raises(TypeError, match="integers and strings"):
        stream_seed(*bad)
