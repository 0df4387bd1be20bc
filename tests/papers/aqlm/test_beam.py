"""Beam search over the codes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml24.papers.aqlm import beam_search_codes, beam_search_codes_l2, dequantize, layer_mse
from icml24.papers.aqlm.beam import _search_l2


def error(weight, codes, books, scales, gram):
    return float(layer_mse(weight, dequantize(codes, books, scales), gram))


def test_parity_with_the_released_search(core, core_facts):
    for b in range(3):
        w, gram, books, codes, scales = (
            core[f"beam{b}_{n}"] for n in ("weight", "xtx", "codebooks", "codes", "scales")
        )
        for size in (1, 4, 8):
            if f"beam{b}_codes_beam{size}" not in core:
                continue
            got = beam_search_codes(w, codes, books, scales, gram, beam_size=size)
            assert torch.equal(got, core[f"beam{b}_codes_beam{size}"].long())
            assert abs(error(w, got, books, scales, gram) / core_facts[f"beam{b}_mse_beam{size}"] - 1) < 1e-9


def test_parity_of_the_euclidean_search(core):
    for name in [key for key in core if "_codes_l2_beam" in key]:
        b, size = name.split("_")[0], int(name.rsplit("beam", 1)[1])
        w, books, codes, scales = (core[f"{b}_{n}"] for n in ("weight", "codebooks", "codes", "scales"))
        assert torch.equal(beam_search_codes_l2(w, codes, books, scales, beam_size=size), core[name].long())


@pytest.mark.equation("eq-aqlm-change")
@pytest.mark.parametrize("g_out", [1, 2])
def test_a_single_visit_picks_the_best_of_all_words(problem, g_out):
    """E3: one group, one codebook; every word by brute force."""
    w, codes, books, scales, gram = problem(o=6, i=1, m=1, k=7, g_out=g_out)
    got = beam_search_codes(w, codes, books, scales, gram)
    for i in range(6):
        losses = []
        for k in range(7):
            trial = codes.clone()
            trial[i, 0, 0] = k
            losses.append(error(w, trial, books, scales, gram))
        assert int(got[i, 0, 0]) == int(torch.tensor(losses).argmin())


@pytest.mark.equation("eq-aqlm-change")
def test_coordinate_descent_by_brute_force(problem):
    """E3: a whole sweep of beam 1 with a full recomputation of the error for every candidate."""
    w, codes, books, scales, gram = problem(o=3, i=3, m=2, k=4)
    slow = codes.clone()
    for j in range(3):
        for m in range(2):
            for i in range(3):
                trials = []
                for k in range(4):
                    trial = slow.clone()
                    trial[i, j, m] = k
                    trials.append(error(w, trial, books, scales, gram))
                slow[i, j, m] = int(torch.tensor(trials).argmin())
    assert torch.equal(beam_search_codes(w, codes, books, scales, gram), slow)


def test_full_width_finds_the_optimum(extra, extra_facts):
    """E5: 81 hypotheses hold all assignments of two groups and two codebooks of three words."""
    names = ("weight", "codes_start", "codebooks", "scales", "gram")
    w, codes, books, scales, gram = (extra[f"exh_{n}"] for n in names)
    got = beam_search_codes(w, codes, books, scales, gram, beam_size=81)
    assert torch.equal(got, extra["exh_codes_opt"].long())
    assert abs(error(w, got, books, scales, gram) - extra_facts["exh_min_mse"]) < 1e-9


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.booleans())
def test_never_worse_than_the_start(seed, size, shuffled):
    """E4: the old word is among the candidates."""
    g = torch.Generator().manual_seed(seed)
    w = torch.randn(4, 6, generator=g, dtype=torch.float64)
    x = torch.randn(9, 6, generator=g, dtype=torch.float64)
    codes = torch.randint(3, (4, 3, 2), generator=g)
    books = torch.randn(2, 3, 1, 2, generator=g, dtype=torch.float64)
    scales = torch.ones(4, 1, 1, 1, dtype=torch.float64)
    before = codes.clone()
    got = beam_search_codes(
        w, codes, books, scales, x.T @ x, beam_size=size, generator=g if shuffled else None
    )
    assert torch.equal(codes, before)
    assert error(w, got, books, scales, x.T @ x) <= error(w, codes, books, scales, x.T @ x) * (1 + 1e-12)


def test_generator_draws_groups_then_codebooks(problem):
    w, codes, books, scales, gram = problem(o=4, i=4, m=3, k=4, g_in=2)
    got = beam_search_codes(w, codes, books, scales, gram, generator=torch.Generator().manual_seed(5))
    g, slow = torch.Generator().manual_seed(5), codes.clone()
    for j in torch.randperm(4, generator=g).tolist():
        for m in torch.randperm(3, generator=g).tolist():
            trials = torch.empty(4, 4)
            for k in range(4):
                trial = slow.clone()
                trial[:, j, m] = k
                rest = w - dequantize(trial, books, scales)
                trials[:, k] = ((rest @ gram) * rest).sum(1)
            slow[:, j, m] = trials.argmin(1)
    assert torch.equal(got, slow)


def test_unit_gram_is_the_euclidean_search(problem):
    w, codes, books, scales, _ = problem(o=5, i=3, m=3, k=5)
    eye = torch.eye(12, dtype=torch.float64)
    a = beam_search_codes(w, codes, books, scales, eye)
    assert torch.equal(a, beam_search_codes_l2(w, codes, books, scales))


def test_wider_euclidean_beams_help_unless_residuals_are_left_behind(problem):
    """The slip of the released routine: with three codebooks, residuals of other parents."""
    eye = torch.eye(64, dtype=torch.float64)
    lost, kept = [], []
    for seed in range(8):
        w, codes, books, scales, _ = problem(o=32, i=16, m=3, k=8, g_in=4, seed=seed)
        narrow = error(w, beam_search_codes_l2(w, codes, books, scales), books, scales, eye)
        wide = error(w, beam_search_codes_l2(w, codes, books, scales, beam_size=5), books, scales, eye)
        slip = error(w, _search_l2(w, codes, books, scales, 5, carry=False), books, scales, eye)
        kept.append(wide / narrow)
        lost.append(slip / wide)
    assert max(kept) < 1
    assert min(lost) > 1


def test_float32_and_wide_beams_of_few_words(problem):
    w, codes, books, scales, gram = problem(k=2, m=1, i=1, dtype=torch.float32)
    got = beam_search_codes(w, codes.to(torch.uint8), books, scales, gram.double(), beam_size=50)
    assert got.dtype == torch.int64
    assert got.shape == codes.shape


@pytest.mark.parametrize("search", [beam_search_codes, beam_search_codes_l2])
def test_bad_input(problem, search):
    w, codes, books, scales, gram = problem()
    rest = (gram,) if search is beam_search_codes else ()
    with pytest.raises(ValueError, match="beam_size"):
        search(w, codes, books, scales, *rest, beam_size=0)
    with pytest.raises(ValueError, match="weight must be"):
        search(w[:-1], codes, books, scales, *rest)
    with pytest.raises(ValueError, match=r"\[0, 4\)"):
        search(w, codes + 4, books, scales, *rest)
    with pytest.raises(ValueError, match="finite"):
        search(w * torch.nan, codes, books, scales, *rest)
    with pytest.raises(ValueError, match="gram must be"):
        beam_search_codes(w, codes, books, scales, gram[:-1, :-1])
