"""The stack: equal to its members, its update against autograd on the formulas, resets, recycling."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch

from icml24.papers import actor_critic as ac
from icml24.papers.actor_critic.replay import ReplayBuffer
from icml24.papers.actor_critic.stacks import Adam, Stack

SMALL = ac.SACConfig(hidden=8, batch_size=6, redo_every=3, lr=1e-2, dtype=torch.float64)
SPECS = (*ac.full_grid()[::5], ac.AgentSpec("cdq", "dropout"), ac.AgentSpec("top", "layer_norm", "crelu"))


def gen(seed):
    return torch.Generator().manual_seed(seed)


def agent_of(specs, config=SMALL, seeds=None):
    return ac.BatchedSAC(4, 2, specs, config, generator=[gen(s) for s in seeds or range(len(specs))])


def test_a_stack_equals_its_members(make_batch):
    stack = agent_of(SPECS)
    singles = [agent_of([spec], seeds=[i]) for i, spec in enumerate(SPECS)]
    worst = 0.0
    for step in range(8):
        batch = make_batch(len(SPECS), 6, seed=step)
        together = stack.update(batch)
        obs = batch.obs[:, 0]
        actions = stack.act(obs)
        if step == 4:
            resets = torch.tensor([spec.plasticity == "reset" for spec in SPECS])
            stack.reset(resets)
            stack.finish_episode(torch.arange(len(SPECS)).double())
        for i, single in enumerate(singles):
            alone = single.update(batch.rows(torch.tensor([i])))
            gaps = [(alone[name][0] - together[name][i]).abs() for name in together]
            gaps.append((single.act(obs[i : i + 1]) - actions[i]).abs().max())
            assert all(torch.isfinite(gap) for gap in gaps)
            worst = max(worst, *map(float, gaps))
            if step == 4:
                single.reset(resets[i : i + 1])
                single.finish_episode(torch.tensor([float(i)]))
    assert worst <= 1e-10


@pytest.mark.parametrize("depth", [1, 3])
def test_a_stack_with_regularised_actors_equals_its_members(make_batch, depth):
    """Other depths than two: without and with several hidden-to-hidden matrices."""
    config = replace(SMALL, depth=depth, regularise_actor=True, redo_tau=0.4)
    specs = [ac.AgentSpec("gpl", network, "redo") for network in (*ac.NETWORK, "dropout")]
    stack = agent_of(specs, config)
    singles = [agent_of([spec], config, seeds=[i]) for i, spec in enumerate(specs)]
    for step in range(7):
        batch = make_batch(len(specs), 6, seed=step)
        together = stack.update(batch)
        for i, single in enumerate(singles):
            for name, value in single.update(batch.rows(torch.tensor([i]))).items():
                torch.testing.assert_close(value[0], together[name][i], rtol=0, atol=1e-10)


def test_runs_do_not_leak(make_batch):
    results = []
    for changed in (False, True):
        stack = agent_of([ac.AgentSpec("cdq", network) for network in ac.NETWORK])
        for step in range(5):
            batch = make_batch(4, 6, seed=step)
            if changed:
                batch.reward[2] += 100.0
                batch.obs[2] *= -3.0
            out = stack.update(batch)
        results.append(torch.stack([*out.values()]))
    torch.testing.assert_close(results[0][:, [0, 1, 3]], results[1][:, [0, 1, 3]], rtol=0, atol=1e-12)
    assert (results[0][:, 2] != results[1][:, 2]).any()


@pytest.mark.equation("eq-actor_critic-losses")
@pytest.mark.parametrize("critic", ["none", "cdq", "gpl"])
def test_one_update_against_the_formulas(make_batch, critic):
    """Critic, targets, actor, temperature, in this order, with torch's own Adam on the public losses."""
    spec = ac.AgentSpec(critic)
    agent = agent_of([spec])
    group = agent._groups[0][1]
    critic_flat = group.critic.flat.detach().clone().requires_grad_()
    actor_flat = group.actor.flat.detach().clone().requires_grad_()
    target = group.target.clone()
    log_alpha = torch.zeros((), dtype=torch.float64, requires_grad=True)
    beta = torch.tensor(float(critic != "none"), dtype=torch.float64, requires_grad=True)

    def policy(obs, eps):
        weights, biases, _ = group.actor.parts(actor_flat)
        mean, raw = ac.mlp_forward(weights, biases, obs[None]).chunk(2, -1)
        log_std = ac.squash_log_std(raw[0])
        u = mean[0] + log_std.exp() * eps
        return torch.tanh(u), ac.tanh_normal_log_prob(mean[0], log_std, u)

    def values(flat, obs, action):
        weights, biases, _ = group.critic.parts(flat)
        return ac.mlp_forward(weights, biases, torch.cat([obs, action], -1).expand(2, -1, -1))[..., 0]

    adams = [torch.optim.Adam([p], lr=1e-2) for p in (critic_flat, actor_flat)]
    adams.append(torch.optim.Adam([log_alpha], lr=1e-2, betas=(0.5, 0.999)))
    adams.append(torch.optim.Adam([beta], lr=3e-4))
    for step in range(3):  # the second and third tell targets from critics, and moments from none
        batch = make_batch(1, 6, seed=step)
        batch.mask[0, ::2] = 0.0
        noise = torch.randn(1, 2, 6, 2, generator=gen(9 + step), dtype=torch.float64)
        for adam in adams:
            adam.zero_grad()
        alpha, level = log_alpha.detach().exp(), beta.detach().clone()
        obs, after = batch.obs[0], batch.next_obs[0]
        next_action, next_log_prob = policy(after, noise[0, 0])
        y = ac.soft_target(
            batch.reward[0],
            batch.mask[0],
            *values(target, after, next_action),
            next_log_prob,
            temperature=alpha,
            pessimism=level,
        )
        q = values(critic_flat, obs, batch.action[0])
        loss = ac.critic_loss(*q, y)
        loss.backward()
        adams[0].step()
        if critic == "gpl":
            ac.gpl_loss(beta, *q, y).backward()
            adams[3].step()
        target = ac.soft_update(target, critic_flat.detach(), SMALL.tau)
        action, log_prob = policy(obs, noise[0, 1])
        best = values(critic_flat.detach(), obs, action)
        ac.actor_loss(log_prob, *best, temperature=alpha, pessimism=beta.detach()).backward()
        adams[1].step()
        ac.temperature_loss(log_alpha, -log_prob, -1.0).backward()
        adams[2].step()

        out = agent.update(batch, noise=noise)
        close = {"rtol": 1e-7, "atol": 1e-10}
        torch.testing.assert_close(out["critic_loss"][0], loss.detach(), **close)
        torch.testing.assert_close(group.critic.flat.detach(), critic_flat.detach(), **close)
        torch.testing.assert_close(group.target, target, **close)
        torch.testing.assert_close(group.actor.flat.detach(), actor_flat.detach(), **close)
        torch.testing.assert_close(agent.temperature[0], log_alpha.detach().exp(), **close)
        torch.testing.assert_close(agent.pessimism[0], beta.detach(), **close)


@pytest.mark.equation("eq-actor_critic-decay")
def test_decay_is_decoupled_and_spares_biases():
    """E9: AdamW on weights; an L2 term in the gradient would be divided by sqrt(v) and give another step."""
    net = Stack([3, 4, 1], [gen(0)], dtype=torch.float64)
    x, y = torch.randn(2, 5, 3, generator=gen(1), dtype=torch.float64)
    peer = net.flat.detach().clone()
    weights, biases = ([p.clone().requires_grad_() for p in part] for part in net.parts(peer)[:2])
    adamw = torch.optim.AdamW(
        [{"params": weights, "weight_decay": 0.1}, {"params": biases, "weight_decay": 0.0}], lr=0.01
    )
    ours, factor = Adam(net.flat, 0.01), net.weight_factor(torch.tensor([0.01 * 0.1], dtype=torch.float64))
    for _ in range(3):
        loss = (net(net.flat, x[None])[..., 0] - y[:, 0]).square().mean()
        ours.step(net.flat, *torch.autograd.grad(loss, net.flat), factor=factor)
        adamw.zero_grad()
        (ac.mlp_forward(weights, biases, x[None])[..., 0] - y[:, 0]).square().mean().backward()
        adamw.step()
    for a, b in zip(
        net.parts(net.flat.detach())[0] + net.parts(net.flat.detach())[1], weights + biases, strict=True
    ):
        torch.testing.assert_close(a, b.detach(), rtol=1e-10, atol=1e-12)
    # one step from zero moments with zero loss gradient: decoupled decay is proportional, L2 moves by lr
    lone = torch.tensor([[2.0, 0.5]], dtype=torch.float64)
    Adam(lone, 0.01).step(lone, torch.zeros_like(lone), factor=torch.full_like(lone, 1 - 0.001))
    torch.testing.assert_close(lone, torch.tensor([[1.998, 0.4995]], dtype=torch.float64))


def test_full_reset(make_batch):
    specs = [ac.AgentSpec("gpl"), ac.AgentSpec("cdq", "spectral_norm")]
    agent = agent_of(specs)
    for step in range(4):
        agent.update(make_batch(2, 6, seed=step))
    group = agent._groups[0][1]
    kept = group.critic.flat.detach()[2:].clone()
    agent.reset(torch.tensor([True, False]))
    assert torch.equal(group.critic.flat[:2], group.target[:2])
    assert torch.equal(group.critic.flat[2:], kept)
    assert agent.temperature[0] == 1
    assert agent.temperature[1] != 1
    assert agent.pessimism[0] == 1
    for optimiser in group.optimisers.values():
        rows = slice(0, len(optimiser.steps) // 2)
        assert (optimiser.first[rows] == 0).all()
        assert (optimiser.steps[rows] == 0).all()
        assert (optimiser.steps[rows.stop :] == 4).all()
    weights = group.critic.parts(group.critic.flat.detach())[0]
    gram = weights[1][0].mT @ weights[1][0]
    torch.testing.assert_close(gram, 2 * torch.eye(8, dtype=torch.float64))  # orthogonal, gain sqrt 2


def test_recycling_inside_the_stack(make_batch):
    """After the recycling update no unit of a redo run is as dormant as before; other runs are untouched."""
    specs = [ac.AgentSpec("cdq", "none", "redo"), ac.AgentSpec("cdq")]
    agent = agent_of(specs, seeds=[1, 1])
    group = agent._groups[0][1]
    with torch.no_grad():
        for row in range(4):
            group.critic.parts(group.critic.flat)[1][0][row, :3] = -50.0  # three dead units everywhere
    batches = [make_batch(2, 6, seed=step) for step in range(3)]
    for batch in batches[:2]:
        agent.update(batch)
    twin = copy.deepcopy(agent)
    dead = twin.diagnose(batches[0])["dormant_ratio"]
    assert (dead > 0.1).all()
    agent.update(batches[2])  # the third update recycles
    bias = group.critic.parts(group.critic.flat.detach())[1][0]
    assert (bias[:2, :3].abs() < 1).all()
    assert (bias[2:, :3] < -40).all()
    outgoing = group.critic.parts(group.critic.flat.detach())[0][1]
    assert (outgoing[:2, :3] == 0).all()
    first = group.critic.parts(group.optimisers["critic"].first)
    assert (first[0][0][:2, :, :3] == 0).all()
    target = group.critic.parts(group.target)
    assert torch.equal(
        target[0][0][:2, :, :3], group.critic.parts(group.critic.flat.detach())[0][0][:2, :, :3]
    )
    assert agent.diagnose(batches[0])["dormant_ratio"][0] < dead[0]


def test_bandit_changes_the_pessimism_of_its_own_run_only():
    agent = agent_of([ac.AgentSpec("top"), ac.AgentSpec("cdq"), ac.AgentSpec("top")])
    assert agent.pessimism.tolist() == [1.0, 1.0, 1.0]
    seen = set()
    for episode in range(30):
        agent.finish_episode(torch.full((3,), float(episode)), torch.tensor([True, True, False]))
        seen.add(agent.pessimism[0].item())
        assert agent.pessimism[1:].tolist() == [1.0, 1.0]
    assert seen == {0.0, 1.0}


def test_values_and_actions(make_batch):
    agent, batch = agent_of(SPECS), make_batch(len(SPECS), 6)
    q1, q2 = agent.q_values(batch.obs, batch.action)
    assert q1.shape == q2.shape == (len(SPECS), 6)
    assert (q1 != q2).any()
    assert not q1.requires_grad
    obs = batch.obs[:, 0]
    best = agent.act(obs, deterministic=True)
    assert best.shape == (len(SPECS), 2)
    assert torch.equal(best, agent.act(obs, deterministic=True))
    draws = torch.stack([agent.act(obs) for _ in range(50)])
    assert (draws.abs() <= 1).all()
    assert (draws.std(0) > 0).all()
    assert len({tuple(row.tolist()) for row in draws[0]}) == len(SPECS)


def test_looking_changes_nothing(make_batch):
    batch, other = make_batch(3, 6), make_batch(3, 9, seed=1)
    specs = [ac.AgentSpec("cdq", network) for network in ("none", "spectral_norm", "dropout")]
    agents = [agent_of(specs), agent_of(specs)]
    found = agents[0].diagnose(batch, other)
    assert all(value.shape == (3,) for value in found.values())
    assert set(found) == {
        "mean_q",
        "gradient_norm",
        "parameter_norm",
        "dormant_ratio",
        "effective_rank",
        "overfitting",
    }
    outs = [agent.update(batch) for agent in agents]
    assert all(torch.equal(outs[0][name], outs[1][name]) for name in outs[0])


def test_divergence_freezes_a_run_instead_of_spoiling_it(make_batch):
    agent = agent_of([ac.AgentSpec(), ac.AgentSpec()])
    batch = make_batch(2, 6)
    agent._groups[0][1].critic.flat.data[:2] *= 1e4
    agent.update(batch)
    assert agent.diverged.tolist() == [True, False]
    before = agent._groups[0][1].critic.flat.detach().clone()
    for _ in range(3):
        out = agent.update(batch)
    after = agent._groups[0][1].critic.flat.detach()
    assert torch.equal(after[:2], before[:2])
    assert (after[2:] != before[2:]).any()
    assert torch.isfinite(out["critic_loss"][1])


def test_a_frozen_run_is_not_recycled(make_batch):
    agent = agent_of([ac.AgentSpec("none", "none", "redo")] * 2, seeds=[0, 1])
    agent._groups[0][1].critic.flat.data[:2] *= 1e4
    flats = []
    for step in range(4):
        agent.update(make_batch(2, 6, seed=step))
        flats.append(agent._groups[0][1].critic.flat.detach()[:2].clone())
    assert agent.diverged.tolist() == [True, False]
    assert torch.equal(flats[0], flats[-1])


def test_learning_on_a_problem_with_a_known_value():
    """Reward 1 for ever, no discounting of ends: with tiny temperature Q approaches 1 / (1 - gamma)."""
    config = ac.SACConfig(
        hidden=16, batch_size=16, lr=3e-3, discount=0.5, tau=0.05, init_temperature=1e-6, dtype=torch.float64
    )
    agent = ac.BatchedSAC(2, 1, [ac.AgentSpec(c) for c in ac.CRITIC], config)
    g = gen(0)
    for _ in range(400):
        obs = torch.rand(4, 16, 2, generator=g, dtype=torch.float64)
        one = torch.ones(4, 16, dtype=torch.float64)
        action = 2 * torch.rand(4, 16, 1, generator=g, dtype=torch.float64) - 1
        out = agent.update(ac.Batch(obs, action, one, one, obs))
    assert ((out["mean_q"] - 2).abs() < 0.1).all()


def test_replay_buffer_wraps_and_keeps_runs_apart():
    buffer = ReplayBuffer(3, 1, 1, runs=2)
    for k in range(5):
        row = torch.tensor([[float(k)], [10.0 + k]])
        buffer.add(row, row / 20, row[:, 0], torch.ones(2), row + 1)
    assert len(buffer) == 3
    batches = buffer.sample(40, [gen(0), gen(1)], count=2)
    assert len(batches) == 2
    for batch in batches:
        assert set(batch.obs[0].flatten().tolist()) == {2.0, 3.0, 4.0}
        assert set(batch.obs[1].flatten().tolist()) == {12.0, 13.0, 14.0}
        assert torch.equal(batch.next_obs, batch.obs + 1)
        assert torch.equal(batch.reward, batch.obs[..., 0])
    assert not torch.equal(batches[0].obs, batches[1].obs)
    with pytest.raises(ValueError, match="empty"):
        ReplayBuffer(3, 1, 1).sample(2, [gen(0)])


def test_no_global_randomness(global_random_state, make_batch):
    before = global_random_state()
    agent = ac.BatchedSAC(4, 2, [ac.AgentSpec("top", "dropout", "redo")], SMALL)
    for step in range(3):
        agent.update(make_batch(1, 6, seed=step))
    agent.act(torch.zeros(1, 4, dtype=torch.float64))
    agent.finish_episode(torch.zeros(1))
    assert global_random_state() == before


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda b: b.obs[:1], "obs"),
        (lambda b: b.obs[..., :3], "obs"),
        (lambda b: b.action[:, :4], "action"),
        (lambda b: b.reward[..., None], "reward"),
        (lambda b: 3 * b.action, r"\[-1, 1\]"),
        (lambda b: b.reward * math.nan, "finite"),
        (lambda b: b.reward.float(), "dtype"),
        (lambda b: b.next_obs + math.inf, "finite"),
    ],
)
def test_rejects_batches(make_batch, change, match):
    agent, batch = agent_of([ac.AgentSpec(), ac.AgentSpec("cdq")]), make_batch(2, 6)
    name = (
        match
        if match in ("obs", "action", "reward")
        else {r"\[-1, 1\]": "action", "dtype": "reward"}.get(match)
    )
    value = change(batch)
    name = name or ("next_obs" if value.ndim == 3 else "reward")
    setattr(batch, name, value)
    with pytest.raises(ValueError, match=match):
        agent.update(batch)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: ac.BatchedSAC(4, 2, [], SMALL), "empty"),
        (lambda: ac.BatchedSAC(0, 2, [ac.AgentSpec()], SMALL), "obs_dim"),
        (lambda: ac.BatchedSAC(4, 2, ["cdq"], SMALL), "AgentSpec"),
        (lambda: ac.BatchedSAC(4, 2, [ac.AgentSpec()], SMALL, generator=[gen(0), gen(1)]), "one generator"),
        (lambda: agent_of([ac.AgentSpec()]).reset(torch.ones(1)), "bool"),
        (lambda: agent_of([ac.AgentSpec()]).act(torch.zeros(2, 4).double()), "obs"),
        (
            lambda: agent_of([ac.AgentSpec()]).q_values(
                torch.zeros(1, 3, 4).double(), torch.full((1, 3, 2), 2.0).double()
            ),
            r"\[-1, 1\]",
        ),
        (lambda: ac.SACConfig(hidden=0), "hidden"),
        (lambda: ac.SACConfig(discount=1.2), "discount"),
        (lambda: ac.SACConfig(lr=-1.0), "lr"),
        (lambda: ac.SACConfig(dtype=torch.int64), "dtype"),
    ],
)
def test_rejects(call, match):
    with pytest.raises(ValueError, match=match):
        call()
