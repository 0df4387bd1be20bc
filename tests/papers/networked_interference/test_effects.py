"""Effects and their errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from icml24.papers.networked_interference import average_error, individual_error


def test_parity(stored):
    data = stored("effect_errors")
    pieces = [data[name] for name in ("p1", "p0", "g1", "g0")]
    assert float(average_error(*pieces)) == pytest.approx(float(data["out"][0]), abs=1e-12)
    assert float(individual_error(*pieces)) == pytest.approx(float(data["out"][1]), abs=1e-12)


@pytest.mark.equation("eq-networked_interference-errors")
@pytest.mark.parametrize("seed", range(20))
def test_errors_by_hand_and_jensen(seed):
    """E10: both errors from NumPy, and the average one never above the individual one."""
    g = torch.Generator().manual_seed(seed)
    pieces = [torch.randn(1 + seed, generator=g, dtype=torch.float64) for _ in range(4)]
    p1, p0, t1, t0 = (piece.numpy() for piece in pieces)
    average, individual = float(average_error(*pieces)), float(individual_error(*pieces))
    assert average == pytest.approx(abs(np.mean(p1 - p0) - np.mean(t1 - t0)), abs=1e-14)
    assert individual == pytest.approx(np.sqrt(np.mean((p1 - p0 - t1 + t0) ** 2)), abs=1e-14)
    assert average <= individual + 1e-14


def test_errors_keep_dtype_and_refuse_other_shapes():
    assert average_error(*[torch.ones(3)] * 4).dtype == torch.float32
    assert float(individual_error([1.0, 2.0], [0.0, 0.0], [1.0, 1.0], [0.0, 1.0])) > 0
    for bad in (torch.ones(2), torch.ones(3, 1), torch.full((3,), float("nan")), torch.ones(0)):
        with pytest.raises(ValueError, match="pred0"):
            average_error(torch.ones(3), bad, torch.ones(3), torch.ones(3))
