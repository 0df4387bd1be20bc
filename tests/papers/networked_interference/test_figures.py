"""Every figure is drawn from small results, with the series it promises."""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

from icml24.common.random import numpy_generator
from icml24.papers.networked_interference import experiments as ex
from icml24.papers.networked_interference import figures
from icml24.papers.networked_interference.data import geometric_graph


@pytest.fixture(scope="module")
def config():
    return ex.configure(
        "quick",
        sizes=(500, 1000),
        repeats=2,
        rate_size=2000,
        rate_repeats=2,
        epochs=1,
        inner_steps=1,
        network_seeds=2,
    )


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def test_graph():
    graph, places = geometric_graph(20, 2, 3, numpy_generator(0, "figure"))
    t = np.arange(20) % 2
    figure = figures.plot_graph(graph, places[:, :2], t, np.linspace(0, 1, 20))
    assert len(figure.axes[0].lines) == graph.nnz // 2
    assert [len(c.get_offsets()) for c in figure.axes[0].collections] == [10, 10]


def test_curves(config):
    robust = figures.plot_robustness(ex.double_robustness(config))
    assert [line.get_label() for line in robust.axes[0].lines][:4] == list(ex.CASES)
    arms = ex.control_arm(config)
    axes = figures.plot_arms(arms).axes
    errors = ex.rmse(arms, ["propensity", "t", "size"], "error")
    np.testing.assert_allclose(axes[1].lines[1].get_ydata(), errors["treated", 0])
    assert len(figures.plot_rate(ex.rate(config)).axes[0].lines) == 4


def test_comparison(config):
    comparison = ex.compare(config, "geometric", methods=("TNet", "plain"))
    axes = figures.plot_errors({"geometric": comparison}).axes
    heights = [bar.get_height() for bar in axes[0].patches]
    np.testing.assert_allclose(heights, comparison.means().loc[["TNet", "plain"]].to_numpy().ravel())
    assert [len(ax.lines) for ax in figures.plot_responses(ex.responses(comparison, 3)).axes] == [4, 4]
    joint = ex.joint_propensity(comparison.fitted["TNet"], comparison.train, 1.0, 0.5).numpy()
    assert len(figures.plot_overlap(comparison.train.z.numpy(), {"own": joint}).axes) == 2
