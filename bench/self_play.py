"""self_play beside the tools one would pick instead: nashpy, OpenSpiel, a plain loop, stable-baselines3."""

from __future__ import annotations

import warnings

import nashpy
import numpy as np
import torch
from gymnasium import spaces
from harness import compare, write
from open_spiel.python.algorithms.regret_matching import regret_matching
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv

from icml24.papers.self_play import PointMass, SPOConfig, duality_gap, hedge_self_play, minimax_winner, train
from icml24.papers.self_play.data import population_game, population_grid, random_game
from icml24.papers.self_play.hedge import hedge_averages

OPTIONS, TARGET = 100, 1e-2
LOOSE = 5e-2  # for fictitious play: after 16,384 steps it is still at 0.04
ITERATIONS, BATCH, HORIZON = 10, 64, 50
STEP = 0.5


def steps_needed(gap_after, target: float, first: int = 16, most: int = 1 << 20) -> int:
    """Smallest power of two, from `first` on, after which the gap is at most `target`."""
    steps = first
    while gap_after(steps) > target:
        steps *= 2
        if steps > most:
            raise RuntimeError(f"no gap of {target} within {most} steps")
    return steps


def gap_of(P: torch.Tensor, row, col) -> float:
    """Duality gap of two strategies given as arrays of counts or probabilities."""
    row, col = (torch.as_tensor(np.asarray(x, dtype=float)) for x in (row, col))
    return duality_gap(P, row / row.sum(), col / col.sum()).item()


def time_to_gap(repeats: int) -> list[dict[str, object]]:
    """Each method runs for the number of steps that it needs; finding that number is not timed."""
    P = random_game(OPTIONS, torch.Generator().manual_seed(0))
    matrix = P.numpy()
    game = nashpy.Game(matrix)  # zero-sum: the column player gets -matrix
    payoffs = [matrix, -matrix]
    start = np.full(OPTIONS, 1 / OPTIONS)

    def ours(steps: int):
        return hedge_self_play(P, steps, step_size=STEP, optimistic=True)

    def fictitious(steps: int):
        np.random.seed(0)  # noqa: NPY002 - nashpy draws from the global state
        *_, last = game.fictitious_play(iterations=steps)
        return last

    def matching(steps: int):
        return regret_matching(payoffs, [start, start], iterations=steps)  # averages over all steps

    rows = []
    for target, name, peer, first, count in (
        (LOOSE, "nashpy fictitious play", fictitious, 1 << 12, 5),
        (TARGET, "OpenSpiel regret matching", matching, 1 << 10, repeats),
    ):
        mine = steps_needed(lambda s: ours(s).gap[-1].item(), target)
        theirs = steps_needed(lambda s, peer=peer: gap_of(P, *peer(s)), target, first)
        what = f"duality gap {target:g}, random game of {OPTIONS} options: {mine} steps; {name}, {theirs}"
        rows.append(compare(what, lambda n=mine: ours(n), lambda n=theirs, peer=peer: peer(n), repeats=count))
    return rows


def exact_winner(repeats: int) -> dict[str, object]:
    P = random_game(OPTIONS, torch.Generator().manual_seed(1))
    game = nashpy.Game(P.numpy())
    mine, theirs = minimax_winner(P), game.linear_program()[0]
    assert gap_of(P, mine, mine) < 1e-8
    assert abs(gap_of(P, theirs, theirs)) < 1e-6
    what = f"exact Minimax Winner of {OPTIONS} options; nashpy linear program"
    return compare(what, lambda: minimax_winner(P), game.linear_program, repeats=repeats, unit="ms")


def batched_sweep(repeats: int) -> dict[str, object]:
    weights, _ = population_grid(20)
    games = torch.stack([population_game(w) for w in weights])
    steps = 2000

    def loop():
        return torch.stack(
            [hedge_self_play(P, steps, step_size=STEP, optimistic=True).average for P in games]
        )

    def batched():
        return hedge_averages(games, steps, step_size=STEP, optimistic=True)

    torch.testing.assert_close(batched(), loop(), rtol=0, atol=1e-9)
    return compare(
        f"{len(games)} games x {steps} steps, batched; one game after another", batched, loop, repeats=repeats
    )


class PointMassVec(VecEnv):
    """The same point mass behind stable-baselines3's vector interface."""

    def __init__(self) -> None:
        self.task = PointMass(HORIZON)
        box = spaces.Box(-np.inf, np.inf, (self.task.obs_dim,), np.float32)
        super().__init__(BATCH, box, spaces.Box(-1.0, 1.0, (2,), np.float32))

    def reset(self):
        self.taken = 0
        return self.task.reset(BATCH).numpy()

    def step_async(self, actions) -> None:
        self.actions = torch.from_numpy(actions)

    def step_wait(self):
        obs, reward = self.task.step(self.actions)
        self.taken += 1
        done = self.taken == HORIZON
        infos = [{} for _ in range(BATCH)]
        last = obs.numpy()
        if done:
            for info, row in zip(infos, last, strict=True):
                info.update({"terminal_observation": row, "TimeLimit.truncated": False})
            last = self.reset()
        return last, reward.numpy(), np.full(BATCH, done), infos

    def close(self) -> None: ...

    def get_attr(self, attr_name, indices=None):
        return [getattr(self, attr_name, None)] * BATCH

    def set_attr(self, attr_name, value, indices=None) -> None: ...

    def env_method(self, method_name, *args, indices=None, **kwargs):
        return [None] * BATCH

    def env_is_wrapped(self, wrapper_class, indices=None):
        return [False] * BATCH


def ppo(repeats: int) -> list[dict[str, object]]:
    """Same environment steps, batch, epochs, clip, step size and network sizes; SB3 also fits a value network."""
    settings = {
        "n_steps": HORIZON,
        "batch_size": BATCH * HORIZON,
        "n_epochs": 4,
        "learning_rate": 3e-3,
        "clip_range": 0.2,
        "max_grad_norm": 1.0,
        "gamma": 1.0,
        "gae_lambda": 1.0,
        "policy_kwargs": {"net_arch": [64, 64], "log_std_init": -0.5},
        "device": "cpu",
        "seed": 0,
    }
    steps = ITERATIONS * BATCH * HORIZON

    def peer():
        PPO("MlpPolicy", PointMassVec(), **settings).learn(steps)

    def ours(algorithm: str):
        config = SPOConfig(ITERATIONS, BATCH, HORIZON, algorithm=algorithm)

        def judge(rewards_a, rewards_b):
            a, b = rewards_a.sum(1), rewards_b.sum(1)
            return torch.sign(a[:, None] - b[None, :])

        return lambda: train(PointMass(HORIZON), judge, config)

    label = f"{steps:,} steps of the point mass"
    return [
        compare(f"PPO on the true reward, {label}; stable-baselines3", ours("oracle"), peer, repeats=repeats),
        compare(
            f"self-play from comparisons, {label}; stable-baselines3 on the true reward",
            ours("spo"),
            peer,
            repeats=repeats,
        ),
    ]


def main() -> None:
    warnings.filterwarnings("ignore", category=UserWarning)
    torch.set_num_threads(1)
    rows = [*time_to_gap(7), exact_winner(15), batched_sweep(5), *ppo(9)]
    write(
        "self_play",
        "Self-play: games and control",
        "nashpy, OpenSpiel, a loop over games, stable-baselines3",
        rows,
        ["torch", "numpy", "scipy", "nashpy", "open-spiel", "stable-baselines3"],
    )


if __name__ == "__main__":
    main()
