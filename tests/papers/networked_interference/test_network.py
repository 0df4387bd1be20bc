"""The network: parity with the authors' modules, its laws and its losses."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from icml24.papers.networked_interference import (
    TNet,
    TNetConfig,
    exposure,
    nuisance_losses,
    targeted_loss,
    truncated_power_basis,
)
from icml24.papers.networked_interference.graphs import Neighbourhoods
from icml24.papers.networked_interference.splines import grid_integral

SMALL = {"hidden": 8, "n_grid": 10, "knot_spacing": 0.25}


@pytest.fixture
def model():
    """Function from keywords of the configuration to a small network in float64 with splines that are not zero."""

    def make(features=5, seed=0, **changes):
        g = torch.Generator().manual_seed(seed)
        net = TNet(features, TNetConfig(**SMALL | changes), generator=g).double().eval()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter += 0.3 * torch.randn(parameter.shape, generator=g, dtype=torch.float64)
        return net

    return make


@pytest.mark.parametrize("case", [0, 1])
def test_parity_with_the_authors_modules(stored, case):
    data = {key[2:]: v for key, v in stored("tnet_forward").items() if key.startswith(f"{case}")}
    f, h, grid, spacing = data["cfg"].tolist()
    config = TNetConfig(int(h), int(grid), spacing, dropout=0.0, encoder_dropout=0.0, propensity="treated")
    net = TNet(int(f), config).double().eval()
    names = set(net.state_dict())
    net.load_state_dict({key: v for key, v in data.items() if key in names}, strict=True)
    output = net(data["A"], data["X"], data["t"])
    for ours, theirs in (
        (output.treated_prob, "p1"),
        (output.density, "gz"),
        (output.outcome, "q"),
        (output.epsilon, "eps"),
        (output.representation, "rep"),
        (output.exposure, "z"),
        (output.propensity, "p1"),
    ):
        torch.testing.assert_close(ours, data[theirs], rtol=0, atol=1e-9)
    parts = nuisance_losses(output, data["y"], data["t"])
    loss = targeted_loss(output, data["y"])
    losses = torch.stack([parts["outcome"], parts["treatment"], parts["exposure"], loss])
    torch.testing.assert_close(losses, data["losses"], rtol=1e-9, atol=1e-9)
    loss.backward()
    torch.testing.assert_close(net.epsilon1.grad, data["grad1"], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(net.epsilon0.grad, data["grad0"], rtol=1e-9, atol=1e-9)
    for key, point in (("po11", (1.0, 1.0)), ("po10", (1.0, 0.0)), ("po07", (0.0, 0.7))):
        torch.testing.assert_close(
            net.potential_outcome(data["A"], data["X"], *point), data[key], rtol=1e-9, atol=1e-9
        )


def test_state_keys_and_shapes():
    state = TNet(5, TNetConfig(**SMALL)).state_dict()
    widths = {
        "representation": [(8, 13), (8, 8), (4, 8)],
        "outcome1": [(16, 5), (8, 16), (1, 8)],
        "outcome0": [(16, 5), (8, 16), (1, 8)],
        "treatment": [(8, 4), (1, 8)],
    }
    expected = {
        "encoder.weight": (5, 8),
        "encoder.bias": (8,),
        "exposure_density.weight": (4, 11),
        "exposure_density.bias": (11,),
        "epsilon1": (6,),
        "epsilon0": (6,),
    }
    for name, shapes in widths.items():
        for k, shape in enumerate(shapes):
            expected[f"{name}.layers.{k}.weight"] = shape
            expected[f"{name}.layers.{k}.bias"] = shape[:1]
    assert {key: tuple(v.shape) for key, v in state.items()} == expected


def test_initial_weights_come_from_the_generator(global_random_state):
    before = global_random_state()
    one, two, other = (TNet(50, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert global_random_state() == before
    for (name, a), b in zip(one.state_dict().items(), two.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert not torch.equal(one.encoder.weight, other.encoder.weight)
    assert float(one.encoder.weight.detach().std()) == pytest.approx(0.1, rel=0.05)
    assert float(one.outcome1.layers[0].weight.detach().std()) == pytest.approx(0.1, rel=0.05)
    assert float(one.outcome1.layers[0].bias.detach().abs().max()) <= 33**-0.5
    assert not one.epsilon1.any()
    assert not one.epsilon0.any()


@pytest.mark.equation("eq-networked_interference-encoder")
def test_encoder_is_a_plain_sum_and_commutes_with_relabelling(network, model):
    """E9: neighbours summed by a loop; nodes relabelled, every output relabelled."""
    adjacency, x, t = network()
    net = model()
    hidden = []
    for i in range(12):
        own = x[i] + sum(x[j] for j in range(12) if adjacency[i, j])
        hidden.append(torch.clamp(own @ net.encoder.weight + net.encoder.bias, min=0))
    expected = net.representation(torch.cat([torch.stack(hidden), x], dim=1))
    torch.testing.assert_close(net(adjacency, x, t).representation, expected, rtol=0, atol=1e-12)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    first, second = net(adjacency, x, t), net(adjacency[order][:, order], x[order], t[order])
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a[order], b, rtol=0, atol=1e-10)


def test_heads_by_hand(network, model):
    adjacency, x, t = network()
    net = model()
    out = net(adjacency, x, t)
    assert torch.equal(out.exposure, exposure(adjacency, t))
    r, z = out.representation, out.exposure
    both = torch.cat([r, z[:, None]], dim=1)
    torch.testing.assert_close(out.outcome, t * net.outcome1(both)[:, 0] + (1 - t) * net.outcome0(both)[:, 0])
    torch.testing.assert_close(out.propensity, t * out.treated_prob + (1 - t) * (1 - out.treated_prob))
    basis = truncated_power_basis(z, net.knots)
    torch.testing.assert_close(out.epsilon, t * (basis @ net.epsilon1) + (1 - t) * (basis @ net.epsilon0))
    given = net(adjacency, x, t, torch.full_like(t, 0.3))
    assert given.exposure.tolist() == [0.3] * 12


@pytest.mark.equation("eq-networked_interference-loss")
@pytest.mark.parametrize("propensity", ["arm", "treated"])
def test_targeted_loss_by_hand(network, model, propensity):
    """E3: the loss unit by unit, and no gradient to the propensities."""
    adjacency, x, t = network()
    y = torch.randn(12, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    net = model(propensity=propensity)
    out = net(adjacency, x, t)
    loss = targeted_loss(out, y)
    total = 0.0
    for i in range(12):
        p = out.treated_prob[i].item()
        arm = p if propensity == "treated" or t[i] == 1 else 1 - p
        shift = out.epsilon[i].item() / (arm * out.density[i].item() + 1e-6)
        total += (y[i].item() - out.outcome[i].item() - shift) ** 2
    assert float(loss) == pytest.approx(total / 12, rel=1e-12)
    loss.backward()
    for name, parameter in net.named_parameters():
        if name.startswith(("treatment", "exposure_density")):
            assert parameter.grad is None, name
        else:
            assert parameter.grad is not None, name
    assert float(net.epsilon1.grad.abs().max()) > 0


def test_frozen_propensities_give_the_same_losses_and_gradients(network, model):
    adjacency, x, t = network()
    y = torch.linspace(-1, 1, 12, dtype=torch.float64)
    net = model()
    from icml24.papers.networked_interference.network import Design

    graph = Neighbourhoods.of(adjacency, x)
    design = Design.of(t, exposure(adjacency, t), net)
    gradients = []
    for frozen in (False, True):
        net.zero_grad()
        loss = targeted_loss(net.evaluate(graph, x, design, frozen_propensity=frozen), y)
        loss.backward()
        gradients.append([float(loss), *(p.grad.clone() for p in net.parameters() if p.grad is not None)])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_nuisance_losses_by_hand(network, model):
    adjacency, x, t = network()
    y = torch.linspace(-1, 1, 12, dtype=torch.float64)
    out = model()(adjacency, x, t)
    parts = nuisance_losses(out, y, t)
    p = out.treated_prob.detach().numpy()
    assert float(parts["treatment"]) == pytest.approx(-np.mean(np.log(np.where(t.numpy() == 1, p, 1 - p))))
    assert float(parts["exposure"]) == pytest.approx(-np.mean(np.log(out.density.detach().numpy() + 1e-6)))
    assert float(parts["outcome"]) == pytest.approx(np.mean((out.outcome.detach().numpy() - y.numpy()) ** 2))
    certain = out._replace(treated_prob=1 - t)  # entirely wrong and entirely sure: large, not infinite
    assert torch.isfinite(nuisance_losses(certain, y, t)["treatment"])


@pytest.mark.parametrize(("t", "z"), [(1.0, 0.0), (0.0, 0.7), (1, 1), (0.0, 0.25)])
def test_potential_outcome_is_the_forward_pass_at_constants(network, model, t, z):
    adjacency, x, _ = network()
    net = model()
    ones = torch.ones(12, dtype=torch.float64)
    out = net(adjacency, x, t * ones, z * ones)
    expected = out.outcome + out.epsilon / (out.propensity * out.density + 1e-6)
    torch.testing.assert_close(net.potential_outcome(adjacency, x, t, z), expected, rtol=0, atol=1e-12)
    with torch.no_grad():
        net.epsilon1.zero_()
        net.epsilon0.zero_()
    head = net.outcome1 if t else net.outcome0
    plain = head(torch.cat([out.representation, z * ones[:, None]], dim=1))[:, 0]
    torch.testing.assert_close(net.potential_outcome(adjacency, x, t, z), plain, rtol=0, atol=1e-12)


def test_normalised_density_integrates_to_one(network, model):
    adjacency, x, t = network()
    raw, scaled = model()(adjacency, x, t), model(normalize_density=True)(adjacency, x, t)
    mass = torch.softmax(model().exposure_density(raw.representation), dim=1)
    torch.testing.assert_close(scaled.density * grid_integral(mass), raw.density)


def test_kinds_of_adjacency_and_dtype(network):
    adjacency, x, t = network()
    net = TNet(5, TNetConfig(**SMALL), generator=torch.Generator().manual_seed(0)).eval()
    base = net(adjacency, x.float(), t)
    assert {v.dtype for v in base} == {torch.float32}
    for kind in (adjacency.to_sparse_coo(), sp.csr_matrix(adjacency.numpy()), Neighbourhoods(adjacency)):
        for a, b in zip(net(kind, x.float(), t), base, strict=True):
            assert torch.equal(a, b)
    wide = net.double()(adjacency, x, t)
    torch.testing.assert_close(wide.outcome.float(), base.outcome, rtol=1e-4, atol=1e-5)


def test_dropout_only_while_training(network):
    adjacency, x, t = network()
    net = TNet(5, TNetConfig(**SMALL | {"dropout": 0.5, "encoder_dropout": 0.5})).double()
    assert not torch.equal(net(adjacency, x, t).outcome, net(adjacency, x, t).outcome)
    net.eval()
    assert torch.equal(net(adjacency, x, t).outcome, net(adjacency, x, t).outcome)


def test_dropout_from_a_stream_keeps_the_mean(global_random_state):
    from icml24.papers.networked_interference.network import _dropout

    x = torch.full((333, 301), 2.0, requires_grad=True)
    before = global_random_state()
    for p in (0.05, 0.1, 0.5):
        out = _dropout(x, p, torch.Generator().manual_seed(0))
        assert float((out == 0).double().mean()) == pytest.approx(p, abs=5 * (p / len(x.flatten())) ** 0.5)
        torch.testing.assert_close(out[out != 0].detach(), torch.full_like(out[out != 0], 2 / (1 - p)))
        rows = (out == 0).double().mean(dim=1)
        assert float((rows - p).abs().max()) < 6 * (p * (1 - p) / 301) ** 0.5
        (gradient,) = torch.autograd.grad(out.sum(), x)
        torch.testing.assert_close(gradient, out.detach() / 2)
    assert global_random_state() == before


def test_gradients_reach_the_features(network, model):
    adjacency, x, _ = network()
    x.requires_grad_(True)
    model().potential_outcome(adjacency, x, 1.0, 0.5).sum().backward()
    assert torch.isfinite(x.grad).all()
    assert x.grad.any()


def test_bad_input(network, model):
    adjacency, x, t = network()
    net = model()
    alone = adjacency.clone()
    alone[3], alone[:, 3] = 0, 0
    cases = [
        ((alone, x, t), "isolated"),
        ((adjacency[:, :-1], x, t), "square"),
        ((adjacency + torch.eye(12), x, t), "diagonal"),
        ((adjacency, x[:-1], t), "x must have shape"),
        ((adjacency, x[:, :-1], t), "x must have shape"),
        ((adjacency, x.float(), t), "dtype"),
        ((adjacency, x / 0 * 0, t), "finite"),
        ((adjacency, x, t[:-1]), "one entry a unit"),
        ((adjacency, x, t + 0.5), "binary"),
        ((adjacency, x, t, t + 0.5), "z must lie"),
        ((adjacency, x, t, t[:-1]), "one entry a unit"),
    ]
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            net(*arguments)
    assert torch.isfinite(net(alone, x, t, t).outcome).all()  # an exposure given needs no neighbours
    for point, message in (
        ((0.5, 0.5), "binary"),
        ((1.0, 1.5), "z must lie"),
        ((1.0, float("nan")), "finite"),
    ):
        with pytest.raises(ValueError, match=message):
            net.potential_outcome(adjacency, x, *point)
    out = net(adjacency, x, t)
    with pytest.raises(ValueError, match="one entry a unit"):
        targeted_loss(out, t[:-1])
    with pytest.raises(ValueError, match="binary"):
        nuisance_losses(out, t, t + 0.5)


def test_bad_configurations():
    for bad, message in (
        ({"hidden": 7}, "even"),
        ({"hidden": 0}, "hidden"),
        ({"hidden": 8.0}, "hidden must be a whole number"),
        ({"n_grid": 0}, "n_grid"),
        ({"knot_spacing": 0}, "spacing"),
        ({"dropout": 1.0}, "dropout"),
        ({"encoder_dropout": -0.1}, "encoder_dropout"),
        ({"propensity": "both"}, "propensity"),
    ):
        with pytest.raises(ValueError, match=message):
            TNetConfig(**bad)
    with pytest.raises(ValueError, match="n_features"):
        TNet(0)
