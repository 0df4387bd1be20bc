"""Perplexity and distillation."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from icml24.papers.aqlm import distill, perplexity


class Table(nn.Module):
    """Logits of the next token by the present one."""

    def __init__(self, vocabulary=7, seed=0, scale=1.0):
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        self.logits = nn.Parameter(
            scale * torch.randn(vocabulary, vocabulary, generator=g, dtype=torch.float64)
        )

    def forward(self, ids):
        return self.logits[ids]


@pytest.fixture
def tokens():
    return torch.randint(7, (6, 10), generator=torch.Generator().manual_seed(0))


def test_perplexity_of_a_uniform_model_is_the_vocabulary(tokens):
    assert abs(perplexity(Table(scale=0.0), tokens.flatten(), context=5) - 7) < 1e-5


def test_perplexity_by_hand(tokens):
    model, stream = Table(), tokens.flatten()
    logp = model.logits.log_softmax(-1).detach()
    total = [
        -float(logp[stream[t], stream[t + 1]]) for start in range(0, 56, 8) for t in range(start, start + 7)
    ]
    expected = math.exp(sum(total) / len(total))
    for size in (1, 3, 16):
        assert abs(perplexity(model, stream, context=8, batch_size=size) / expected - 1) < 1e-12
    assert abs(perplexity(model, stream[None], context=8) / expected - 1) < 1e-12


def test_perplexity_leaves_the_mode_alone(tokens):
    model = Table().train()
    perplexity(model, tokens, context=5)
    assert model.training


@pytest.mark.equation("eq-aqlm-distill")
@pytest.mark.parametrize("reverse", [False, True])
def test_divergence_and_its_gradient(tokens, reverse):
    """E13: the first step of Adam follows softmax(z) - p_t, summed over positions."""
    student, teacher = Table(seed=1), Table(seed=2)
    start = student.logits.detach().clone()
    losses = distill(student, teacher, tokens, steps=1, lr=1e-3, batch_size=6, reverse=reverse)
    p, q = teacher.logits.softmax(-1).detach(), start.softmax(-1)
    each = (q * (q / p).log()).sum(-1) if reverse else (p * (p / q).log()).sum(-1)
    assert abs(losses[0] - float(each[tokens].mean())) < 1e-12
    if not reverse:
        counts = torch.bincount(tokens.flatten(), minlength=7)[:, None] / tokens.numel()
        grad = counts * (q - p)
        moved = student.logits.detach() - start
        torch.testing.assert_close(moved, -1e-3 * grad / (grad.abs() + 1e-8), rtol=1e-6, atol=1e-12)
    assert teacher.logits.grad is None


def test_without_a_generator_the_same_again_and_no_global_state(tokens, global_random_state):
    before = global_random_state()
    first, again = (
        distill(Table(seed=1), Table(seed=2), tokens, steps=5, lr=0.1, batch_size=2) for _ in "ab"
    )
    assert first == again
    assert global_random_state() == before


def test_distillation_ends_at_the_teacher(tokens):
    student, teacher = Table(seed=1), Table(seed=2)
    g = torch.Generator().manual_seed(0)
    losses = distill(student, teacher, tokens, steps=300, lr=0.05, batch_size=4, generator=g)
    assert len(losses) == 300
    assert losses[-1] < 1e-3 * losses[0]


def test_bad_input(tokens):
    model = Table()
    for call in (
        lambda: perplexity(model, tokens.flatten(), context=1),
        lambda: perplexity(model, tokens.flatten(), context=61),
        lambda: perplexity(model, tokens.flatten()[:0], context=2),
        lambda: perplexity(model, tokens, context=5, batch_size=0),
        lambda: distill(model, model, tokens, steps=0, lr=1.0, batch_size=1),
        lambda: distill(model, model, tokens, steps=1, lr=-1.0, batch_size=1),
        lambda: distill(model, model, tokens, steps=1, lr=1.0, batch_size=0),
        lambda: distill(model, model, tokens.flatten(), steps=1, lr=1.0, batch_size=1),
    ):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(TypeError, match="token ids"):
        perplexity(model, tokens.double(), context=5)
    with pytest.raises(ValueError, match="nothing to train"):
        distill(Table().requires_grad_(False), model, tokens, steps=1, lr=1.0, batch_size=1)
    broken = Table()
    broken.logits.data[:] = torch.inf
    with pytest.raises(FloatingPointError, match="step 0"):
        distill(broken, model, tokens, steps=2, lr=1.0, batch_size=1)
