"""The experiments at small size: shapes, seeds, and what they are for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from icml24.papers.networked_interference import TNetConfig, average_error
from icml24.papers.networked_interference import experiments as ex
from icml24.papers.networked_interference.baselines import BASELINES, fit_baseline
from icml24.papers.networked_interference.data import simulated_parts
from icml24.papers.networked_interference.effects import EFFECTS

TINY = ex.configure(
    "quick",
    sizes=(500, 4000),
    repeats=3,
    rate_size=8000,
    rate_repeats=2,
    epochs=2,
    inner_steps=2,
    network_seeds=1,
)


def test_profiles():
    assert ex.configure("quick") == ex.QUICK
    assert ex.configure("full", seed=3).seed == 3
    assert ex.QUICK.steps == 480
    with pytest.raises(ValueError, match="unknown profile"):
        ex.configure("fast")


def test_double_robustness_orders_the_cases():
    frame = ex.double_robustness(TINY)
    assert len(frame) == 2 * 3 * 4
    errors = ex.rmse(frame, ["size", "case"], "targeted")
    assert errors[4000, "both right"] < errors[500, "both right"]
    assert errors[4000, "propensity wrong"] < 0.08
    assert errors[4000, "outcome wrong"] < errors[4000, "both wrong"]
    assert ex.rmse(frame, ["case"], "plug-in")["outcome wrong"] > 0.6
    assert ex.double_robustness(TINY).equals(frame)


def test_rate_has_the_right_slopes():
    frame = ex.rate(TINY)
    assert ex.slope(frame, "targeted") > 1.3
    assert ex.slope(frame, "plug-in") == pytest.approx(1, abs=0.1)


def test_control_arm():
    errors = ex.rmse(ex.control_arm(TINY), ["size", "propensity", "t"], "error")
    assert errors[4000, "treated", 0] > 0.4
    assert errors[4000, "arm", 0] < errors[4000, "treated", 0]


def test_compare_judges_every_method():
    methods = ("TNet", "plain", "treated", *BASELINES)
    comparison = ex.compare(TINY, "geometric", methods=methods)
    frame = comparison.errors
    assert set(frame["method"]) == {"naive", *methods}
    assert (frame.groupby("method").size().drop("naive") == 6).all()
    fitted = frame[frame["method"] != "naive"]
    assert (fitted["average"] <= fitted["individual"] + 1e-6).all()
    again = ex.compare(TINY, "geometric", methods=["TNet"]).errors.query("method == 'TNet'")
    assert again.reset_index(drop=True).equals(frame.query("method == 'TNet'").reset_index(drop=True))

    means, bars = comparison.means(), comparison.bars()
    out = frame[(frame["sample"] == "out") & (frame["method"] == "TNet")].set_index("effect")
    assert bars["B2 TE average, TNet"] == out.loc["TE", "average"]
    assert bars["B3 mean average, TNet"] == pytest.approx(out["average"].mean(), abs=1e-14)
    assert bars["B4 ME average, naive - TNet"] == means.loc["naive", "ME"] - means.loc["TNet", "ME"]
    average = means.mean(axis=1)
    assert comparison.lead().tolist() == [pytest.approx(average["TNet"] - average["plain"], abs=1e-14)]
    over = comparison.over_baselines()
    assert set(over) == set(BASELINES)
    assert over["ND+z"] == pytest.approx(average["TNet"] - average["ND+z"], abs=1e-14)
    response = ex.responses(comparison, points=5)
    for arm in (0, 1):
        expected = [
            float(comparison.fitted["TNet"].predict(comparison.train, arm, z).mean()) for z in response.z
        ]
        np.testing.assert_allclose(response.curves["TNet"][arm], expected, atol=1e-6)
        np.testing.assert_allclose(response.curves["truth"][arm], arm + response.z, atol=1e-9)
    assert response.equations["closed form"] < 1e-8
    assert response.equations["no perturbation"] > 1e-3


def test_judge_agrees_with_the_contract():
    train, test = simulated_parts("geometric", 0)
    fitted = ex.fit("TNet", train, TINY, torch.Generator().manual_seed(0))
    rows = {(sample, effect): average for sample, effect, average, _ in ex.judge(fitted, {"out": test})}
    for effect, (first, second) in EFFECTS.items():
        expected = average_error(
            *(fitted.predict(test, *p).double() for p in (first, second)),
            *(test.truth(*p) for p in (first, second)),
        )
        assert rows["out", effect] == pytest.approx(float(expected), abs=1e-12)
    torch.testing.assert_close(
        fitted.effects(test)["SE"], fitted.predict(test, 0, 0.7) - fitted.predict(test, 0, 0.2)
    )


def test_blind_networks_do_not_see(network):
    adjacency, x, t = network(20, 4)
    for blind, part in ((("outcome",), "outcome"), (("propensity",), "treated_prob")):
        net = ex.BlindTNet(4, TNetConfig(hidden=8), blind=blind, generator=torch.Generator().manual_seed(0))
        net = net.double().eval()
        first, second = (getattr(net(adjacency, v, t), part) for v in (x, 1 - x))
        assert torch.equal(first, second)
        seeing = "treated_prob" if part == "outcome" else "outcome"
        assert not torch.equal(
            getattr(net(adjacency, x, t), seeing), getattr(net(adjacency, 1 - x, t), seeing)
        )


def test_parts_and_sweep_at_small_size():
    config = ex.configure("quick", epochs=1, inner_steps=1, part_seeds=1)
    assert set(ex.misspecified(config)["case"]) == set(ex.BLIND)
    assert len(ex.sweep(config)) == 6 * 3


@pytest.mark.parametrize("name", BASELINES)
def test_baselines_learn(name, global_random_state):
    train, test = simulated_parts("geometric", 5)
    before = global_random_state()
    fitted = [fit_baseline(name, train, 60, torch.Generator().manual_seed(s)) for s in (0, 0)]
    assert global_random_state() == before
    first, second = (f.predict(test, 1.0, 0.5) for f in fitted)
    assert torch.equal(first, second)
    error = (first.double() - test.truth(1.0, 0.5)).std()
    assert float(error) < 0.9 * float(test.truth(1.0, 0.5).std())
    with pytest.raises(ValueError, match="unknown baseline"):
        fit_baseline("GEst", train, 1, torch.Generator())


def test_joint_propensity_is_a_density():
    train, _ = simulated_parts("geometric", 0)
    fitted = ex.fit("TNet", train, TINY, torch.Generator().manual_seed(0))
    mass = (
        sum(ex.joint_propensity(fitted, train, t, (k + 0.5) / 20) for t in (0.0, 1.0) for k in range(20)) / 20
    )
    torch.testing.assert_close(mass, torch.ones(800), rtol=0.1, atol=0)
