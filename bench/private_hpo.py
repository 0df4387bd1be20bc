"""Private linear probes: ours beside opacus and dp-accounting, interleaved in one run.

``python bench/private_hpo.py`` needs the extra ``bench``. Before anything is timed, both
sides must give the same weights and the same noise multipliers.
"""

from __future__ import annotations

import math
import warnings

import click
import dp_accounting
import harness
import numpy as np
import torch
from dp_accounting import pld
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer

from icml24.papers import private_hpo as hpo

warnings.filterwarnings("ignore", message="Full backward hook|Secure RNG")

N, D, K = 3500, 128, 10
LR, STEPS, MOMENTUM = 5.0, 10, 0.9


def problem() -> tuple[torch.Tensor, torch.Tensor]:
    """Random unit features of the chapter's size."""
    g = torch.Generator().manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(N, D, generator=g).relu(), dim=1)
    return x, torch.randint(K, (N,), generator=g)


class Opacus:
    """The same probe by opacus: per-sample gradients, then its optimiser."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, sigma: float) -> None:
        self.x, self.y = x, y
        linear = torch.nn.Linear(D, K, bias=False)
        torch.nn.init.zeros_(linear.weight)
        self.model = GradSampleModule(linear)
        inner = torch.optim.SGD(self.model.parameters(), lr=LR, momentum=MOMENTUM)
        self.optimiser = DPOptimizer(inner, noise_multiplier=sigma, max_grad_norm=1.0, expected_batch_size=N)

    def run(self) -> torch.Tensor:
        """`STEPS` full-batch steps; the weights."""
        for _ in range(STEPS):
            self.optimiser.zero_grad()
            torch.nn.functional.cross_entropy(self.model(self.x), self.y).backward()
            self.optimiser.step()
        return next(self.model.parameters()).detach().clone()


def check_same_answers(x: torch.Tensor, y: torch.Tensor) -> None:
    """Both probes without noise, and both calibrations, agree."""
    ours = hpo.dp_gd_linear(x, y, K, lr=LR, steps=STEPS, noise_multiplier=0.0, momentum=MOMENTUM)
    torch.testing.assert_close(ours, Opacus(x, y, 0.0).run(), rtol=1e-4, atol=1e-5)
    assert math.isclose(hpo.calibrate_sigma(1.0, 1e-5, 100), peer_sigma(), rel_tol=1e-4)
    assert math.isclose(hpo.pld_epsilon(1.1, 0.01, 1000, 1e-5), peer_pld(), rel_tol=1e-2)


def peer_sigma() -> float:
    """dp-accounting's analytic Gaussian calibration, for 100 steps."""
    return math.sqrt(100) * float(dp_accounting.get_sigma_gaussian(1.0, 1e-5))


def peer_pld() -> float:
    """dp-accounting's privacy-loss distribution of 1,000 sampled steps."""
    step = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.1))
    accountant = pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    return float(accountant.compose(step, 1000).get_epsilon(1e-5))


@click.command()
@click.option("--repeats", default=15, show_default=True, help="Interleaved pairs a row.")
def main(repeats: int) -> None:
    """Time one probe step, one calibration and one numerical accounting against the peers."""
    torch.set_num_threads(1)
    x, y = problem()
    check_same_answers(x, y)
    g = torch.Generator().manual_seed(1)
    peer = Opacus(x, y, 20.0)

    def ours() -> torch.Tensor:
        return hpo.dp_gd_linear(
            x, y, K, lr=LR, steps=STEPS, noise_multiplier=20.0, momentum=MOMENTUM, generator=g
        )

    rows = [
        harness.compare(
            f"{STEPS} private probe steps, N = {N}, D = {D}, K = {K} (opacus)",
            ours,
            peer.run,
            repeats=repeats,
            unit="ms",
        ),
        harness.compare(
            "noise multiplier of 100 full-batch steps (dp-accounting)",
            *(lambda: hpo.calibrate_sigma(1.0, 1e-5, 100), peer_sigma),
            repeats=repeats,
            number=50,
            unit="ms",
        ),
        harness.compare(
            "epsilon of 1,000 steps at q = 0.01, privacy loss (dp-accounting)",
            *(lambda: hpo.pld_epsilon(1.1, 0.01, 1000, 1e-5), peer_pld),
            repeats=max(repeats // 3, 3),
            unit="ms",
        ),
    ]
    harness.write(
        "private_hpo",
        "Private linear probes and their accounting",
        "opacus, dp-accounting",
        rows,
        ["torch", "numpy", "scipy", "opacus", "dp-accounting"],
    )
    assert np.isfinite([row["ratio"] for row in rows]).all()


if __name__ == "__main__":
    main()
