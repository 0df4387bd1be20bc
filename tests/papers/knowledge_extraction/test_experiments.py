import dataclasses

import numpy as np
import pytest
import torch

from icml24.papers.knowledge_extraction import ATTRIBUTES
from icml24.papers.knowledge_extraction import experiments as e

TINY = e.Config(
    variants=("single", "multi5+permute", "multi25+permute"),
    n_people=12, n_values=4, steps=3, qa_steps=3, lora_ranks=((2, 0), (2, 4)),
    mixed_people=10, mixed_steps=40, mixed_batch=2,
    many_people=10, few_values=3, many_steps=2, many_seeds=2, place_steps=3, seeds=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def comparison():
    return e.compare(TINY)


def test_variants_by_name():
    text = e.variant("multi5+permute+fullname", seed=3)
    assert (text.multiplicity, text.permute, text.fullname, text.seed) == (5, True, True, 3)
    plain = e.variant("single")
    assert (plain.multiplicity, plain.permute, plain.fullname) == (1, False, False)
    for bad in ("double", "multi", "single+shuffle", "multi5+", ""):
        with pytest.raises(ValueError, match="unknown variant"):
            e.variant(bad)


def test_comparison_shares_people_and_starts(comparison):
    assert {name: len(runs) for name, runs in comparison.runs.items()} == {name: 2 for name in TINY.variants}
    for i in range(2):
        people = [runs[i].corpus.people for runs in comparison.runs.values()]
        assert all(p == people[0] for p in people)
    runs = comparison.runs["single"]
    assert runs[0].corpus.people != runs[1].corpus.people
    run = runs[0]
    assert run.right.shape == (6, 6)
    assert e.mean(run.test) == pytest.approx(run.by_person.mean())
    assert all(
        run.test[a] == pytest.approx(float(run.right[:, j].double().mean())) for j, a in enumerate(ATTRIBUTES)
    )
    assert not torch.equal(run.pretrained.wte.weight, run.finetuned.wte.weight)


def test_repeats_bit_by_bit(comparison):
    again = e.train_run(e.variant("single", n_people=12, n_values=4, seed=0), TINY, TINY.steps)
    first = comparison.runs["single"][0]
    assert again.loss == first.loss
    assert all(map(torch.equal, again.finetuned.state_dict().values(), first.finetuned.state_dict().values()))


def test_intervals_resample_people():
    @dataclasses.dataclass
    class Fake:
        by_person: np.ndarray

    runs = [Fake(np.array([0.0, 0.5, 1.0])), Fake(np.array([1.0, 1.0, 0.5]))]
    others = [Fake(np.array([0.0, 0.0, 0.5]))]
    value, low, high = e.people_interval(runs)
    assert value == pytest.approx(4 / 6)
    assert low < value < high
    value, low, high = e.people_interval(runs, others)  # the seeds that both have
    assert value == pytest.approx(1 / 3)
    assert 0 <= low <= value <= high <= 0.5


def test_rank_correlation():
    @dataclasses.dataclass
    class Fake:
        by_person: np.ndarray
        test: dict

    values = {"a": 0.1, "b": 0.4, "c": 0.3}
    comparison = e.Comparison({n: (Fake(np.array([v]), {"major": v}),) for n, v in values.items()})
    assert comparison.rank_correlation({n: np.array([v]) for n, v in values.items()}) == pytest.approx(1.0)
    swapped = {"a": np.array([0.1]), "b": np.array([0.3]), "c": np.array([0.4])}
    assert comparison.rank_correlation(swapped) == pytest.approx(0.5)


def test_grid_leaves_the_model_alone(comparison):
    run = comparison.runs["single"][0]
    before = {name: tensor.clone() for name, tensor in run.pretrained.state_dict().items()}
    grid = e.lora_grid(run, TINY)
    assert list(grid) == [(2, 0), (2, 4)]
    assert all(len(pair) == 2 and 0 <= min(pair) <= max(pair) <= 1 for pair in grid.values())
    assert all(torch.equal(before[name], tensor) for name, tensor in run.pretrained.state_dict().items())


def test_probes_of_a_run(comparison):
    run = comparison.runs["multi5+permute"][0]
    places = e.place_probe(run, TINY)
    assert places.matrix.shape == places.ahead.shape == (6, 6)
    assert 0 <= places.early <= 1
    assert 0 < places.chance < 1
    queries = comparison.query_probes()
    assert {name: len(v) for name, v in queries.items()} == {name: 2 for name in TINY.variants}


def test_mixed_curves():
    mixed = e.mixed_training(TINY)
    assert mixed.steps.tolist() == [0, 20, 40]
    assert all(curve.shape == (1, 3) for curve in mixed.curves.values())
    made = e.Mixed(np.array([0, 20, 40, 60]), {"x": np.array([[0.0, 0.2, 0.9, 1.0], [0.0, 0.4, 0.9, 1.0]])})
    assert made.half_way() == {"x": 40.0}


def test_celebrities_hold_out_the_same_people():
    found = e.celebrities(TINY)
    assert [len(runs) for runs in found.values()] == [2, 2, 1]
    tested = {
        regime: [runs[0].corpus.people[i] for i in runs[0].corpus.split("test")]
        for regime, runs in found.items()
    }
    assert tested["nobody"] == tested["half"] == tested["everybody"]
    half = found["half"][0].corpus
    assert [len(t) for t in half.texts] == [5] * 5 + [1] * 5
    assert found["nobody"][0].by_person.shape == found["half"][0].by_person.shape == (5,)


def test_profiles():
    assert e.configure("quick", seed=4).seed == 4
    assert set(e.CORE) <= set(e.FULL.variants)
    assert len(e.FULL.lora_ranks) == 9
    with pytest.raises(ValueError, match="unknown profile"):
        e.configure("huge")
