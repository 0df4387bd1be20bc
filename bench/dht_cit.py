"""Kernel tests of independence: ours beside causal-learn, interleaved in one run.

``python bench/dht_cit.py`` needs causal-learn. Before anything is timed, both sides must give the
same statistics and p-values.
"""

from __future__ import annotations

import click
import harness
import numpy as np
from causallearn.utils.KCI.KCI import KCI_CInd, KCI_UInd

from icml24.papers import dht_cit as dht
from icml24.papers.dht_cit import experiments


def slices(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Slices 1 and 4 of one of the chapter's problems."""
    _, x = experiments.draw(experiments.Setting("sin", d, d, n), 0, 0)
    return x[1], x[4]


def peer_row(early: np.ndarray, late: np.ndarray, tests: int) -> np.ndarray:
    """causal-learn's p-values of early variable 0 against the first `tests` other late variables."""
    return np.array(
        [
            KCI_CInd().compute_pvalue(early[:, :1].copy(), late[:, [j]].copy(), early[:, 1:].copy())[0]
            for j in range(1, 1 + tests)
        ]
    )


def check_same_answers(early: np.ndarray, late: np.ndarray) -> None:
    """Equal statistic, p-values to the truncation of the peer's eigenvalues."""
    x, y, z = early[:, :1], late[:, 1:2], early[:, 1:]
    peer_p, peer_s = KCI_CInd().compute_pvalue(x.copy(), y.copy(), z.copy())
    p, s = dht.kci_pvalue(x, y, z)
    assert np.isclose(s, peer_s, rtol=1e-9)
    assert np.isclose(p, peer_p, atol=2e-4, rtol=0)
    assert np.isclose(dht.kci_pvalue(x, y)[0], KCI_UInd().compute_pvalue(x.copy(), y.copy())[0], atol=1e-9)


@click.command()
@click.option("--repeats", default=7, show_default=True, help="Interleaved pairs a row.")
def main(repeats: int) -> None:
    """Time a row of kernel tests, a single test and an unconditional one against causal-learn."""
    rows = []
    for n, d, tests in ((300, 6, 5), (500, 6, 5)):
        early, late = slices(n, d)
        check_same_answers(early, late)
        rows.append(
            harness.compare(
                f"row of {tests} conditional tests, n = {n}, d = {d}",
                lambda early=early, late=late: dht.kci_row(early[:, 0], late[:, 1:], early[:, 1:]),
                lambda early=early, late=late, tests=tests: peer_row(early, late, tests),
                repeats=repeats,
                unit="ms",
            )
        )
    early, late = slices(500, 6)
    rows.append(
        harness.compare(
            "one conditional test, n = 500, d = 6",
            lambda: dht.kci_pvalue(early[:, 0], late[:, 1], early[:, 1:]),
            lambda: peer_row(early, late, 1),
            repeats=repeats,
            unit="ms",
        )
    )
    rows.append(
        harness.compare(
            "one unconditional test, n = 500",
            lambda: dht.kci_pvalue(early[:, 0], late[:, 1]),
            lambda: KCI_UInd().compute_pvalue(early[:, :1].copy(), late[:, 1:2].copy()),
            repeats=repeats,
            unit="ms",
        )
    )
    harness.write(
        "dht_cit",
        "Kernel tests of conditional independence",
        "causal-learn",
        rows,
        ["numpy", "scipy", "causal-learn"],
    )


if __name__ == "__main__":
    main()
