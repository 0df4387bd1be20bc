"""The training loop."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from icml24.papers.networked_interference import TNetConfig, TrainConfig, fit_tnet, simulate_network_data
from icml24.papers.networked_interference.training import row_normalised

SMALL = TNetConfig(hidden=8, n_grid=10, knot_spacing=0.25)
SHORT = TrainConfig(epochs=3, inner_steps=2, lr1=3e-3, lr2=3e-3)


@pytest.fixture
def data(network):
    """Simulated data on a random graph of 60 units."""

    def make(dtype=torch.float64):
        adjacency, x, _ = network(60, 4, dtype=dtype)
        w = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
        g = torch.Generator().manual_seed(1)
        return simulate_network_data(adjacency, x, w_treatment=w[0], w_outcome=w[1], generator=g)

    return make


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def test_equal_generators_give_equal_networks(data, global_random_state):
    before = global_random_state()
    one, two, other = (fit_tnet(data(), SMALL, SHORT, generator=gen(s)) for s in (0, 0, 1))
    assert global_random_state() == before
    for (name, a), b in zip(one.model.state_dict().items(), two.model.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert one.history == two.history
    assert not torch.equal(one.model.encoder.weight, other.model.encoder.weight)


def test_shape_dtype_mode_and_history(data):
    for dtype in (torch.float32, torch.float64):
        fitted = fit_tnet(data(dtype), SMALL, SHORT, generator=gen())
        assert not fitted.model.training
        assert fitted.model.encoder.weight.dtype == dtype
        assert fitted.predict(data(dtype), 1.0, 0.5).dtype == dtype
        effects = fitted.effects(data(dtype))
        assert {name: tuple(v.shape) for name, v in effects.items()} == {
            "ME": (60,),
            "SE": (60,),
            "TE": (60,),
        }
        assert not any(v.requires_grad for v in effects.values())
        assert {name: len(v) for name, v in fitted.history.items()} == dict.fromkeys(
            ("outcome", "treatment", "exposure", "targeted"), 3
        )


def test_the_outer_step_leaves_the_spline_alone(data):
    outer = fit_tnet(data(), SMALL, replace(SHORT, inner_steps=0), generator=gen())
    assert not outer.model.epsilon1.any()
    assert not outer.model.epsilon0.any()
    both = fit_tnet(data(), SMALL, SHORT, generator=gen())
    assert both.model.epsilon1.any()
    assert both.model.epsilon0.any()


def test_the_inner_steps_leave_the_propensities_alone(data):
    plain, many = (
        fit_tnet(data(), SMALL, replace(SHORT, epochs=1, inner_steps=k, lr2=1e-2), generator=gen())
        for k in (0, 20)
    )
    for part in ("treatment", "exposure_density"):
        for a, b in zip(
            getattr(plain.model, part).parameters(), getattr(many.model, part).parameters(), strict=True
        ):
            assert torch.equal(a, b)
    assert not torch.equal(plain.model.encoder.weight, many.model.encoder.weight)


def test_without_targeting_all_steps_fit_the_nuisances(data):
    one = fit_tnet(data(), SMALL, replace(SHORT, targeted=False, epochs=2, inner_steps=2), generator=gen())
    two = fit_tnet(data(), SMALL, replace(SHORT, targeted=False, epochs=6, inner_steps=0), generator=gen())
    assert not one.model.epsilon1.any()
    assert torch.equal(one.model.encoder.weight, two.model.encoder.weight)


def test_first_step_against_a_plain_loop(data):
    """One outer and one inner step, written with two unfused optimisers and autograd alone."""
    from icml24.papers.networked_interference import TNet, nuisance_losses, targeted_loss

    d, config = data(), TNetConfig(hidden=8, n_grid=10, knot_spacing=0.25, dropout=0.0, encoder_dropout=0.0)
    fitted = fit_tnet(d, config, TrainConfig(1, 1, 1e-2, 2e-2), generator=gen(3))
    net = TNet(4, config, generator=gen(3)).double()
    x, y = d.x / d.x.sum(dim=1, keepdim=True), (d.y - d.y.mean()) / d.y.std()
    rest = [p for name, p in net.named_parameters() if not name.startswith("epsilon")]
    first = torch.optim.Adam(rest, lr=1e-2, weight_decay=1e-3, foreach=False)
    second = torch.optim.Adam(net.parameters(), lr=2e-2, weight_decay=1e-3, foreach=False)
    beta = 20 / 60**0.5
    out = net(d.adjacency, x, d.t, d.z)
    parts = nuisance_losses(out, y, d.t)
    loss = parts["outcome"] + 0.5 * parts["treatment"] + parts["exposure"] + beta * targeted_loss(out, y)
    loss.backward()
    first.step()
    net.zero_grad()
    (beta * targeted_loss(net(d.adjacency, x, d.t, d.z), y)).backward()
    second.step()
    for (name, a), b in zip(fitted.model.state_dict().items(), net.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12, msg=name)


def test_scale_of_the_outcome_does_not_matter(data):
    d = data()
    moved = replace(d, y=10 * d.y - 4)
    base, other = (fit_tnet(v, SMALL, SHORT, generator=gen()) for v in (d, moved))
    torch.testing.assert_close(
        other.predict(d, 1.0, 0.3), 10 * base.predict(d, 1.0, 0.3) - 4, rtol=1e-8, atol=1e-8
    )
    assert base.y_std == pytest.approx(float(d.y.std()))
    scaled = replace(d, x=3 * d.x)
    torch.testing.assert_close(
        fit_tnet(scaled, SMALL, SHORT, generator=gen()).predict(scaled, 0.0, 0.3),
        base.predict(d, 0.0, 0.3),
        rtol=1e-8,
        atol=1e-8,
    )


def test_targeting_lowers_the_targeted_loss(data):
    history = fit_tnet(data(), SMALL, TrainConfig(20, 5, 3e-3, 3e-3), generator=gen()).history["targeted"]
    assert history[-1] < 0.7 * history[0]


def test_inputs_with_gradients_and_no_grad_are_no_obstacle(data):
    d = data()
    base = fit_tnet(d, SMALL, SHORT, generator=gen())
    tracked = replace(d, x=d.x.clone().requires_grad_(True), y=d.y.clone().requires_grad_(True))
    with torch.no_grad():
        other = fit_tnet(tracked, SMALL, SHORT, generator=gen())
    for a, b in zip(base.model.state_dict().values(), other.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_rows_that_sum_to_zero_stay():
    x = torch.tensor([[1.0, 3.0], [0.0, 0.0], [-1.0, 1.0]])
    assert row_normalised(x).tolist() == [[0.25, 0.75], [0.0, 0.0], [-1.0, 1.0]]


def test_bad_input(data):
    d = data()
    isolated = d.adjacency.clone()
    isolated[2], isolated[:, 2] = 0, 0
    for bad, message in (
        ({"t": torch.ones(60)}, "no units"),
        ({"t": torch.zeros(60)}, "no units"),
        ({"t": d.t * 2}, "binary"),
        ({"y": torch.ones(60).double()}, "no spread"),
        ({"y": d.y / 0}, "finite"),
        ({"z": d.z + 1}, "z must lie"),
        ({"x": d.x[:-1]}, "one row a unit"),
        ({"x": d.x[:, 0]}, "x must have shape"),
        ({"adjacency": d.adjacency[:-1]}, "square"),
        ({"adjacency": isolated}, "isolated"),
    ):
        with pytest.raises(ValueError, match=message):
            fit_tnet(replace(d, **bad), SMALL, SHORT, generator=gen())
    for bad in ({"epochs": -1}, {"epochs": 2.0}, {"inner_steps": 0.5}, {"lr1": -1.0}, {"beta": float("nan")}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            TrainConfig(**bad)
