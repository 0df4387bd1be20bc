"""Baselines, experiments and data: shapes, streams, counting rules, and what happens without files."""

from __future__ import annotations

import inspect
import os

import numpy as np
import pandas as pd
import pytest

from icml24 import datasets
from icml24.papers import dht_cit
from icml24.papers.dht_cit import baselines, data, experiments, scoring
from icml24.papers.dht_cit.experiments import Setting

SMALL = experiments.configure(
    "quick",
    graphs=1,
    settings=(Setting("sin", 4, 3, 80),),
    gap_graphs=1,
    late_slices=(2, 3),
    variation_graphs=1,
    calibration_repeats=1,
    calibration_dims=(3,),
    subsamples=2,
    subsample_size=60,
)


def test_contract():
    """Names, order, defaults and keyword-only marks that callers rely on."""
    assert set(dht_cit.__all__) >= {"kci_row", "dht_cit", "load_pm_cmr", "SubsampledConfig", "DHTResult"}
    signatures = {
        "random_dag": "(d: 'int', n_edges: 'int', *, kind: 'str' = 'er', generator: 'np.random.Generator')",
        "kci_pvalue": "(x: 'Any', y: 'Any', z: 'Any' = None, *, epsilon: 'float' = 0.001)",
        "topological_layers": "(pvalues: 'Any', alpha: 'float' = 0.05)",
        "structural_hamming_distance": "(a: 'Any', b: 'Any', *, reversal_cost: 'int' = 2)",
    }
    for name, expected in signatures.items():
        assert str(inspect.signature(getattr(dht_cit, name))).split(" ->")[0] == expected
    prune = inspect.signature(dht_cit.gam_prune).parameters
    assert [(k, v.default) for k, v in prune.items()][2:] == [
        ("cutoff", 1e-3),
        ("n_basis", 10),
        ("return_pvalues", False),
    ]
    assert dht_cit.SubsampledConfig() == dht_cit.SubsampledConfig("sigmoid", "sigmoid", True, 0.1)


def test_compare_is_reproducible_and_complete():
    (frame, results), (again, _) = (experiments.compare(SMALL.settings, 1, 3) for _ in range(2))
    pd.testing.assert_frame_equal(frame, again)
    assert frame["method"].tolist() == list(experiments.METHODS)
    assert frame[["shd2", "shd1", "sid", "f1"]].notna().all().all()
    graph, slices = experiments.draw(SMALL.settings[0], 3, 0)
    found = results["sin-4-3", 0]
    np.testing.assert_array_equal(found.graph, dht_cit.dht_cit(slices[1], slices[4]).graph)
    assert frame.loc[0, "f1"] == dht_cit.edge_scores(graph, found.graph)[2]
    assert not np.array_equal(graph, experiments.draw(SMALL.settings[0], 3, 1)[0]) or not np.array_equal(
        slices, experiments.draw(SMALL.settings[0], 3, 1)[1]
    )


def test_small_experiments_run():
    gaps = experiments.gap_curve(SMALL)
    assert gaps["late"].tolist() == [2, 3]
    assert (gaps["hits"] <= gaps["true"]).all()
    assert all(((p >= 0) & (p <= 1)).all() for p in experiments.calibration(SMALL, n=40).values())
    _, results = experiments.compare(SMALL.settings, 1, SMALL.seed, methods=("DHT-CIT",))
    sweep = experiments.alpha_sweep(results, SMALL, (0.01, 0.05))
    assert sweep["alpha"].tolist() == [0.01, 0.05]
    assert experiments.size_curve(SMALL).empty
    assert experiments.support_mismatches(1, systems=10) == 0
    small, large = experiments.overfitting(1, draws=40).itertuples(index=False)
    assert small.left < 0.1 < 0.8 < large.left
    assert small.ratio > 1.5
    assert large.ratio == pytest.approx(1, abs=0.3)
    assert small.rejected > large.rejected
    with pytest.raises(ValueError, match="unknown method"):
        experiments.compare(SMALL.settings, 1, 0, methods=("GES",))


def test_lagged_edges_come_from_the_graph():
    plain, laggy = Setting("sin", 5, 6, 30), Setting("sin", 5, 6, 30, lag2=6)
    (graph, x), (other, y) = (experiments.draw(s, 0, 0) for s in (plain, laggy))
    np.testing.assert_array_equal(graph, other)
    np.testing.assert_array_equal(x[:2], y[:2])  # two slices back there is nothing yet
    assert not np.allclose(x[2], y[2])


def test_lingam_and_pc_read_the_right_way():
    """A chain with strong non-Gaussian noise, columns reversed: cause = last column."""
    r = np.random.default_rng(0)
    a = r.uniform(-1, 1, 2000)
    b = a + r.uniform(-1, 1, 2000)
    c = b + r.uniform(-1, 1, 2000)
    x = np.column_stack([c, b, a])
    assert np.argwhere(baselines.direct_lingam(x)).tolist() == [[1, 0], [2, 1]]
    answer = baselines.pc(x)  # a chain's direction is open to PC: two edges without one
    assert answer.directed.sum() == 0
    assert np.argwhere(answer.undirected).tolist() == [[0, 1], [1, 2]]
    half = scoring.half_scores(np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]]), answer)
    assert half == {"half_shd2": 2, "half_f1": 0.5}
    collider = np.column_stack([a, r.uniform(-1, 1, 2000), np.zeros(2000)])
    collider[:, 2] = collider[:, 0] + collider[:, 1] + 0.3 * r.uniform(-1, 1, 2000)
    assert np.argwhere(baselines.pc(collider).directed).tolist() == [[0, 2], [1, 2]]


def test_a_cycle_gets_the_worst_sid():
    truth = np.triu(np.ones((3, 3), dtype=int), 1)
    cycle = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    assert scoring.scores(truth, cycle)["sid"] == 6


def test_stability_counts_frequencies():
    early, late, graph = data.stand_in(0)
    assert early.shape == late.shape == (data.COUNTIES, 9)
    assert graph.sum() == 10
    found = experiments.counties(early[:, :4], late[:, :4], list("abcd"), SMALL)
    assert found.kept.shape == (4, 4)
    assert set(np.unique(found.kept)) <= {0.0, 0.5, 1.0}
    assert (found.kept <= found.allowed).all()
    assert found.level.shape == (2, 4)


def rows(year_columns=True):
    names = [f"{v}_{y}" for y in data.YEARS for v in data.VARIABLES]
    values = np.random.default_rng(0).random((12, 27)).round(4)
    return pd.DataFrame(values, columns=names).assign(FIPS=range(1001, 1013))[["FIPS", *names]]


def test_load_from_a_file_a_folder_and_the_two_sources(tmp_path):
    """Made-up counties: the merged file and its two sources give the same frame."""
    frame = rows()
    frame.to_csv(tmp_path / data.MERGED, index=False)
    for place in (tmp_path, tmp_path / data.MERGED):
        pd.testing.assert_frame_equal(dht_cit.load_pm_cmr(place), frame)
    apart = tmp_path / "apart"
    apart.mkdir()
    yearly = [
        frame[["FIPS", f"PM2.5_{y}", f"CMR_{y}"]].set_axis(["FIPS", "PM2.5", "CMR"], axis=1).assign(Year=y)
        for y in data.YEARS
    ]
    pd.concat(yearly).to_csv(apart / data.ANNUAL)
    frame.drop(columns=[c for c in frame if c.startswith(("PM2.5", "CMR"))]).to_csv(apart / data.SOCIAL)
    pd.testing.assert_frame_equal(dht_cit.load_pm_cmr(apart), frame)
    early, late = data.county_slices(frame)
    assert early.shape == (12, 9)
    assert late[0, 1] == frame.loc[0, "CMR_2010"]
    frame.drop(columns="CMR_2000").to_csv(tmp_path / data.MERGED, index=False)
    with pytest.raises(ValueError, match="CMR_2000"):
        dht_cit.load_pm_cmr(tmp_path)


def test_absent_data_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("ICML24_DATA", raising=False)
    monkeypatch.setenv("ICML24_CACHE", str(tmp_path))
    for path in (None, tmp_path, tmp_path / "no.csv"):
        with pytest.raises(FileNotFoundError, match="icml24 data fetch dht_cit"):
            dht_cit.load_pm_cmr(path)
    assert not data.available()


@pytest.mark.skipif(not os.environ.get("ICML24_DATA"), reason="needs ICML24_DATA with the county file")
def test_the_counties():
    assert datasets.available("dht_cit", data.MERGED)
    assert dht_cit.load_pm_cmr().shape == (data.COUNTIES, 28)
