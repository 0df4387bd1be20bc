"""Text, stored models, and that the training script is what made them."""

from __future__ import annotations

import pytest
import torch

from icml24.papers.aqlm import data, perplexity
from icml24.papers.aqlm.training import STEPS, train


def test_parts_follow_one_another():
    parts = [data.split(name) for name in ("train", "validation", "test")]
    assert sum(map(len, parts)) == 4_138_977
    assert len(data.alphabet()) == 66
    assert data.alphabet()[int(parts[0][0])] == data.kjv_text()[0]
    assert data.alphabet()[int(parts[2][-1])] == data.kjv_text()[-1]
    with pytest.raises(ValueError, match="part"):
        data.split("all")


def test_windows_are_of_their_part():
    windows = data.draw_windows(5, 20, part="test", generator=torch.Generator().manual_seed(0))
    assert windows.shape == (5, 20)
    text = "".join(data.alphabet()[t] for t in data.split("test").tolist())
    assert all("".join(data.alphabet()[t] for t in row) in text for row in windows.tolist())


@pytest.mark.parametrize("name", list(data.MODELS))
def test_stored_models_read(name):
    model = data.load_model(name)
    assert model.config == data.MODELS[name]
    assert perplexity(model, data.split("validation")[: 40 * 128], context=128) < 7
    assert len(data.stored_losses(name)) == STEPS[name]


def test_the_script_starts_as_the_stored_model_did():
    _, losses = train("small", 3)
    torch.testing.assert_close(
        torch.tensor(losses), torch.tensor(data.stored_losses("small")[:3]), rtol=1e-3, atol=0
    )


def test_unknown_model():
    with pytest.raises(ValueError, match="name"):
        data.load_model("medium")
