"""The chapter's studies at the smallest size, and what their numbers must obey."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from icml24.common.random import generator
from icml24.papers.aqlm import data, experiments, figures, layer_studies, quantize_model

TINY = experiments.Config(
    models=("small",),
    calibration=4,
    test_windows=4,
    main=(1, 4),
    formats=((1, 4),),
    kmeans_iter=2,
    beam_size=1,
    rounds=1,
    adam_steps=2,
    tuning_steps=2,
    distill_steps=2,
    arms=tuple(experiments.ARMS),
    study_rounds=1,
    study_formats=((1, 3),),
    shapes=((64, 64),),
)


@pytest.mark.equation("eq-aqlm-rate")
def test_codes_of_a_gaussian_source_in_their_order():
    """E12: rounding, learned scalar points, learned vectors, the bound."""
    found = layer_studies.gaussian_source(1)
    assert list(found) == ["RTN, rows of 512", "scalar k-means", "additive, 2 x 8 bits", "bound"]
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert abs(found["scalar k-means"] - 0.1175) < 0.004  # the best four points for a normal variable
    assert found["bound"] == 1 / 16


@pytest.mark.parametrize("method", ["AQLM", "GPTQ"])
def test_a_run_is_the_papers_algorithm(method):
    """The chapter's run, which observes the first block once for all methods, and `quantize_model`."""
    run = experiments.quantised(TINY, "small", method, (1, 4), seed=3)
    model = data.load_model("small")
    quantize_model(
        model,
        experiments.calibration_tokens(TINY),
        experiments.layer_config(TINY, (1, 4)),
        method=method.lower(),
        generator=generator(3, "aqlm", "quantiser", "small", 1, 4),
    )
    expected = run.model.state_dict()
    assert set(expected) == set(model.state_dict())
    assert all(torch.equal(expected[name], value) for name, value in model.state_dict().items())


def test_sweep_and_ablation():
    runs = experiments.sweep(TINY)
    assert [(r.method, r.form) for r in runs[:6]] == [(m, (1, b)) for m in ("RTN", "GPTQ") for b in (2, 3, 4)]
    assert runs[0].excess == runs[0].perplexity - experiments.original_perplexity(TINY, "small")
    by_bits = [r.perplexity for r in runs[:3]]
    assert by_bits == sorted(by_bits, reverse=True)
    arms = experiments.ablation(TINY)
    assert list(arms) == [*experiments.ARMS, "end to end"]
    # a run is made once, however it is asked for
    assert arms["everything"][0] is runs[6]
    assert arms["end to end"][0] is runs[7] is experiments.distilled(TINY, "small", (1, 4))
    plain = arms["none"][0].model.state_dict()
    for arm, kinds in (("norms and biases", False), ("codebooks and scales", True)):
        first = {n: v for n, v in arms[arm][0].model.state_dict().items() if n.startswith("blocks.0.")}
        moved = {n for n, v in first.items() if not torch.equal(v, plain[n])}
        assert moved
        assert all(n.endswith(("codebooks", "scales")) == kinds for n in moved)
    figures.plot_sweep(runs, "small")
    figures.plot_pareto(runs, runs[:2])
    usage = experiments.code_usage(arms["none"][0].model)
    assert len(usage) == 18
    assert all(abs(shares[0].sum() - 1) < 1e-9 for shares in usage.values())
    assert all(0 < value <= 1 for value in experiments.entropies(usage).values())


def test_entropy_of_equal_use_is_one():
    assert experiments.entropies({"a": [np.full(8, 1 / 8)]}) == {"a": 1.0}
    assert experiments.entropies({"a": [np.array([1.0, 0, 0, 0])]}) == {"a": 0.0}


def test_envelope_by_hand():
    points = [(3.0, 1.0), (1.0, 5.0), (2.0, 5.5), (2.5, 2.0), (4.0, 1.0)]
    assert experiments.envelope(points) == [1, 3, 0]


def test_layer_studies():
    histories = layer_studies.convergence(TINY)
    assert all(len(h) == 2 for name, h in histories.items() if name.startswith("k-means"))
    assert len(histories["random start, beam 1"]) == 4
    points = layer_studies.rate_distortion(TINY)
    exact, adam = points[-1], points[-2]
    assert exact.error <= adam.error
    assert all(0 < p.error < 1 for p in points)
    rows = layer_studies.lookup_times(TINY, repeats=2)
    assert [r["bits"] > 2 for r in rows] == [True] * 3


def test_rounds_needed():
    assert layer_studies.rounds_needed([4.0, 2.0, 1.0], 2.0, 9) == 1.0
    assert layer_studies.rounds_needed([4.0, 2.0, 1.0], 0.5, 9) == 10.0  # also when the work stopped early
