"""Summaries of results, and the functions that need no large model."""

from __future__ import annotations

import pytest
import torch

from icml24.papers import patchscopes as ps
from icml24.papers.patchscopes import crossmodel, experiments, multihop
from icml24.papers.patchscopes.experiments import Descriptions, Maps, NextToken, configure
from icml24.papers.patchscopes.facts import ENTITIES


def test_profiles():
    quick, full = configure("quick", seed=None), configure("full", seed=3)
    assert (quick.seed, full.seed) == (0, 3)
    assert set(experiments.BAR_LAYERS) <= set(quick.layers) <= set(full.layers) == set(range(31))
    assert quick.validation_snippets >= 100  # the bar asks for at least 100 prompts
    for config in (quick, full):
        assert {5, 8, 11, 14, 29} <= set(config.capital_sources)
        assert 5 in config.capital_targets
        assert 1 in config.entity_layers


def test_next_token_summaries():
    precision = {
        "patchscope": torch.tensor([[0.0, 1.0], [1.0, 1.0]]),
        "logit_lens": torch.tensor([[0.0, 0.0], [0.0, 1.0]]),
    }
    result = NextToken((4, 16), precision, precision, torch.zeros(2), Maps({}, 0))
    assert result.mean("patchscope", (16, 20)) == 1.0
    assert result.mean("patchscope", range(30)) == 0.75
    gap, low, high = result.gap("patchscope", "logit_lens", (4, 16))
    assert gap == 0.5
    assert low <= gap <= high
    middle, low, high = result.band("precision", "patchscope")
    assert middle.tolist() == [0.5, 1.0]
    assert (low <= middle).all()
    assert (middle <= high).all()


def test_rises():
    hits = torch.tensor([[1, 0, 0, 0], [1, 1, 1, 0], [0, 1, 0, 0]]).bool()
    result = Descriptions((1, 9, 12), ENTITIES[:4], [], hits, hits.double())
    assert result.rise() == 0.5
    assert result.held_out_rise() == pytest.approx(0.5)  # chosen on items 0 and 2, judged on 1 and 3
    assert result.rise(low=12) == 0.0


def test_categories_are_whole_words():
    entity = ENTITIES[0]
    assert experiments._names_category("British monarch", entity)
    assert not experiments._names_category("Kingston", entity)
    assert experiments._first_item(": British monarch, who") == "British monarch"


def test_best_pair_is_judged_on_other_items():
    hits = torch.zeros(2, 2, 4, dtype=torch.bool)
    hits[0, 1] = torch.tensor([1, 0, 1, 1])
    hits[1, 0] = torch.tensor([0, 1, 0, 1])
    result = multihop.MultiHop(
        (), 9, (3, 6), hits, hits, torch.tensor([1, 1, 0, 0]).bool(), torch.zeros(4).bool()
    )
    assert result.held_out_pair() == ((3, 6), 0.5, 0.5)


def test_identities_of_the_chapter_are_exact():
    found = experiments.identities(0)
    assert found["no-op"] == 0.0
    assert found["logit lens"] <= 1e-12
    assert found["prefix cache"] <= 1e-10


def test_character_model_learns_and_repeats():
    ids = torch.tensor([0, 1, 2, 3] * 60)
    sizes = {"n_layer": 1, "n_head": 2, "d_model": 16}
    one, other = (crossmodel.train_character_gpt(ids, 4, sizes, 60, 0) for _ in range(2))
    assert all(
        torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    )
    lm = ps.RotaryGPTLM(one)
    g = torch.Generator().manual_seed(0)
    result = crossmodel._measure(
        lm, lm, ids[:200].view(4, 50).repeat(8, 1), ids[:100].view(2, 50), 0, g, positions=3
    )
    # the same model on both sides: the map to its own last layer is the own affine read-out
    torch.testing.assert_close(result.precision[:, -1], result.own_affine)
    assert float(result.logit_lens[-1]) == 1.0
    assert result.losses[0] < 0.7  # log 4 = 1.39 before training
    assert result.best_target()[1] == pytest.approx(float(result.precision[0].max() - result.logit_lens[0]))
