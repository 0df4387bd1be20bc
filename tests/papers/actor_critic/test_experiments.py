"""The chapter's experiments at tiny sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from icml24.papers.actor_critic import AgentSpec, comparisons, experiments, figures, full_grid

TINY = experiments.Config(
    priming_updates=20,
    priming_every=10,
    transitions=60,
    primed_updates=5,
    primed_steps=200,
    primed_ratio=1,
    primed_seeds=2,
    grid_seeds=1,
    grid_steps=6,
    grid_ratio=1,
)


def test_profiles():
    assert experiments.configure("quick") == experiments.QUICK
    assert experiments.configure("full", seed=3).priming_updates == 5000
    with pytest.raises(ValueError, match="profile"):
        experiments.configure("huge")


def test_priming():
    result = experiments.priming(TINY)
    assert result.updates.tolist() == [0, 10, 20]
    assert all(curve.shape == (1, 4, 3) for curve in result.curves.values())
    assert np.isfinite([result.ratio("mean_q"), result.ratio("gradient_norm")]).all()
    assert result.ceiling == pytest.approx(100)
    normed = [spec.network == "layer_norm" for spec in result.specs]
    assert (np.isfinite(result.bound[0]) == normed).all()
    assert (result.bound[0][normed] <= 1).all()
    assert figures.plot_priming(result).axes
    assert figures.plot_health(result).axes


def test_primed_pair():
    result = experiments.primed_pair(TINY)
    assert result.returns.shape == (2, 2, 1)
    recovered = replace(result, returns=np.array([[[-900.0, -200.0], [-900.0, -500.0]]] * 2))
    assert recovered.recovery(AgentSpec("cdq")).tolist() == [2, 2]
    assert recovered.recovery(AgentSpec("cdq", "layer_norm")).tolist() == [3, 3]
    assert figures.plot_recovery(result).axes


def test_advantage_of_a_made_up_world():
    """Layer norm is worth 0.5 and every critic technique 0.1: the advantage is 0.4, whatever the seed."""
    worth = {
        spec: 0.5 * (spec.network == "layer_norm") + 0.1 * (spec.critic == "cdq") for spec in full_grid()
    }
    frame = pd.DataFrame([worth, worth])
    point, low, high = comparisons.layer_norm_advantage(frame, "cdq")
    assert point == pytest.approx(0.4)
    assert low <= point <= high
    assert comparisons.layer_norm_advantage(frame, "cdq") == (point, low, high)


def test_scores_by_task():
    rows = [
        {
            "task": t,
            "critic": c,
            "network": "none",
            "plasticity": "none",
            "seed": s,
            "score": 10 * s + (c == "cdq"),
        }
        for t in ("a", "b")
        for c in ("none", "cdq")
        for s in (0, 1)
    ]
    found = comparisons.grid_scores(pd.DataFrame(rows))
    assert list(found) == ["a", "b"]
    assert found["a"][AgentSpec("cdq")].tolist() == [1, 11]
