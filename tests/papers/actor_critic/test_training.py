"""Simulators, online training and the grid, the killed worker included."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch
from dask.distributed import Client, LocalCluster

from icml24.papers import actor_critic as ac
from icml24.papers.actor_critic import data, grid
from icml24.papers.actor_critic.training import METRICS, paper_config
from icml24.pipeline import cluster

TINY = ac.SACConfig(
    hidden=8,
    batch_size=8,
    lr=1e-3,
    learning_starts=20,
    evaluate_every=60,
    evaluation_episodes=1,
    redo_every=20,
)
SPECS = [ac.AgentSpec("top", "layer_norm", "reset"), ac.AgentSpec("gpl", "none", "crelu"), ac.AgentSpec()]


def train(specs=SPECS, **changes):
    options = {"seed": 1, "steps": 90, "replay_ratio": 1} | changes
    return ac.train("Pendulum-v1", specs, TINY, **options)


def test_records():
    records = train()
    assert [record.spec for record in records] == SPECS
    for record in records:
        assert record.steps.tolist() == [60, 90]
        assert set(record.metrics) == set(METRICS)
        for values in (record.returns, *record.metrics.values()):
            assert values.shape == (2,)
            assert torch.isfinite(values).all()
        assert (record.task, record.seed, record.replay_ratio) == ("Pendulum-v1", 1, 1)
        assert -1700 * 1.1 < record.returns.min() <= record.returns.max() <= 0


def test_a_record_does_not_depend_on_its_neighbours():
    together, alone = train(), train(SPECS[1:2])
    torch.testing.assert_close(together[1].returns, alone[0].returns, rtol=1e-4, atol=1e-2)
    torch.testing.assert_close(
        together[1].metrics["mean_q"], alone[0].metrics["mean_q"], rtol=1e-3, atol=1e-4
    )
    again = train()
    assert all(torch.equal(a.returns, b.returns) for a, b in zip(together, again, strict=True))
    assert not torch.equal(train(seed=2)[0].returns, together[0].returns)


def test_pendulum_is_gymnasiums():
    import gymnasium

    peer, ours = gymnasium.make("Pendulum-v1"), data.make("Pendulum-v1", 7)
    obs, _ = peer.reset(seed=7)
    np.testing.assert_array_equal(obs, ours.reset())
    rng = np.random.default_rng(0)
    for _ in range(ours.horizon):
        action = rng.uniform(-1, 1, 1)
        obs, reward, ended, truncated, _ = peer.step(2 * action)
        found = ours.step(action)
        np.testing.assert_allclose(found[0], obs, rtol=1e-6)
        assert found[1] == pytest.approx(float(reward))
        assert found[2] == ended is False
    assert truncated


def test_copies_step_together_and_time_limits_are_no_ends():
    world = data.Environments("Pendulum-v1", [3, 3, 4])
    assert torch.equal(world.obs[0], world.obs[1])
    assert not torch.equal(world.obs[0], world.obs[2])
    action, total = torch.zeros(3, 1), 0
    for _ in range(world.horizon):
        reward, mask, next_obs, returns = world.step(action)
        total = total + reward.double()
        assert (mask == 1).all()
    torch.testing.assert_close(returns, data.PENDULUM_SCALE * total, rtol=1e-4, atol=1e-3)
    assert not torch.equal(
        world.obs, next_obs
    )  # a new episode has begun, the transition keeps the old one's end


def test_control_suite():
    buffer = data.random_transitions("cheetah-run", 30, 0)
    batch = buffer.everything()
    assert batch.obs.shape == (1, 30, 17)
    assert batch.action.shape == (1, 30, 6)
    assert torch.equal(batch.obs[:, 1:], batch.next_obs[:, :-1])
    assert ((batch.reward >= 0) & (batch.reward <= 1)).all()
    assert torch.equal(batch.obs, data.random_transitions("cheetah-run", 30, 0).everything().obs)


def test_dog_smoke():
    """The task of the paper's headline, for a few steps, through the same code."""
    (record,) = ac.train(
        "dog-trot",
        [ac.AgentSpec("none", "layer_norm", "reset")],
        ac.SACConfig(hidden=8, batch_size=8, learning_starts=10, evaluate_every=100, evaluation_episodes=1),
        seed=0,
        steps=20,
        replay_ratio=1,
    )
    assert record.returns.shape == (1,)
    assert torch.isfinite(record.metrics["mean_q"]).all()


def test_scale_of_the_paper():
    paper = data.paper_grid()
    assert len(paper.tasks) == len(set(paper.tasks)) == 14
    assert paper.runs == 17_920
    listed = grid.grid_tasks(
        ac.full_grid(), paper.tasks, range(10), paper.replay_ratios, config=paper_config(), steps=paper.steps
    )
    assert sum(len(task.specs) for task in listed) == 17_920
    assert len({task.key for task in listed}) == len(listed)
    small = grid.grid_tasks(
        ac.full_grid(), ["dog-run"], [0], [2], config=paper_config(), steps=np.int64(5), group_size=8
    )
    assert [len(task.specs) for task in small] == [8] * 8
    assert (
        small[0].key
        == grid.grid_tasks(
            ac.full_grid(), ["dog-run"], [0], [2], config=paper_config(), steps=5, group_size=8
        )[0].key
    )


def test_scores():
    assert data.normalised_score("Pendulum-v1", -800.0) == 0.5
    assert data.normalised_score("Pendulum-v1", torch.tensor([-2000.0, 0.0])).tolist() == [0.0, 1.0]
    assert data.normalised_score("dog-trot", 900.0) == 0.9


def run_grid(**changes):
    options = {"config": TINY, "steps": 40} | changes
    return ac.run_grid(SPECS, ["Pendulum-v1"], [0, 1], [1, 2], **options)


def test_grid_serial_cached_and_threaded(tmp_path, monkeypatch):
    frame = run_grid(cache_dir=tmp_path)
    assert len(frame) == len(SPECS) * 2 * 2
    assert frame["agent"].drop_duplicates().tolist() == [spec.name for spec in SPECS]
    assert set(METRICS) <= set(frame.columns)
    assert frame["score"].between(0, 1.01).all()
    files = sorted(tmp_path.iterdir())
    assert len(files) == 8  # two architectures, two seeds, two ratios; no temporary file left
    with ThreadPoolExecutor(1) as executor:
        pd.testing.assert_frame_equal(run_grid(client=executor), frame)
    monkeypatch.setattr(grid, "train", None)  # everything is stored: nothing may train
    pd.testing.assert_frame_equal(run_grid(cache_dir=tmp_path), frame)
    files[0].unlink()
    with pytest.raises(TypeError):
        run_grid(cache_dir=tmp_path)


def test_grid_through_a_dask_client(tmp_path):
    axes = [SPECS, ["Pendulum-v1"], [0], [1]]
    with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None) as client:
        frame = ac.run_grid(*axes, config=TINY, steps=40, client=client, cache_dir=tmp_path)
        assert client.status == "running"  # the caller's client stays open
    pd.testing.assert_frame_equal(frame, ac.run_grid(*axes, config=TINY, steps=40, group_size=1))
    assert len(list(tmp_path.glob("*.npz"))) == 2


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(np, "savez", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        run_grid(cache_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


WAIT = """
import os, pathlib, time
from icml24.papers.actor_critic import grid

def patient(task, cache_dir=None, real=grid.run_task, marks=pathlib.Path({marks!r})):
    (marks / f"{{task.key}}@{{os.getpid()}}").touch()
    while not (marks / "go").exists():
        time.sleep(0.02)
    return real(task, cache_dir)
"""


@pytest.mark.filterwarnings("ignore")
def test_a_killed_worker_loses_nothing(tmp_path, monkeypatch):
    """Through the executor of the CLI's --scheduler: one of two workers dies in the middle of its task."""
    marks, cache, code = tmp_path / "marks", tmp_path / "cache", tmp_path / "code"
    marks.mkdir()
    code.mkdir()
    (code / "patience.py").write_text(WAIT.format(marks=str(marks)))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(code), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(str(code))
    import patience

    monkeypatch.setattr(grid, "run_task", patience.patient)
    killed = []

    def kill_one():
        deadline = time.monotonic() + 120
        while len(list(marks.glob("*@*"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        victim = int(next(marks.glob("*@*")).name.split("@")[1])
        os.kill(victim, signal.SIGKILL)
        killed.append(victim)
        (marks / "go").touch()

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as local,
        cluster.connect(local.scheduler_address) as executor,
    ):
        killer = threading.Thread(target=kill_one)
        killer.start()
        frame = ac.run_grid(
            SPECS, ["Pendulum-v1"], [0], [1], config=TINY, steps=40, client=executor, cache_dir=cache
        )
        killer.join()
    workers = [int(mark.name.split("@")[1]) for mark in marks.glob("*@*")]
    assert len(killed) == 1
    assert killed[0] in workers
    assert len(workers) == 3  # two tasks, one of them begun twice
    monkeypatch.undo()
    assert all(path.suffix == ".npz" and not path.name.startswith(".") for path in cache.iterdir())
    pd.testing.assert_frame_equal(frame, ac.run_grid(SPECS, ["Pendulum-v1"], [0], [1], config=TINY, steps=40))


def test_metaworld_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "metaworld", None)
    with pytest.raises(ImportError, match=r"metaworld==3\.1\.1"):
        data.make("hammer-v3", 0)
    monkeypatch.setitem(sys.modules, "dm_control", None)
    with pytest.raises(ImportError, match="pip install 'dm-control"):
        data.make("cheetah-run", 0)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: train([]), "empty"),
        (lambda: train(steps=0), "steps"),
        (lambda: train(steps=1.5), "steps"),
        (lambda: train(replay_ratio=0), "replay_ratio"),
        (lambda: train(seed=-1), "seed"),
        (lambda: ac.train("Pendulum-v9", SPECS, TINY, seed=0, steps=3, replay_ratio=1), "unknown task"),
        (lambda: ac.train("pendulum", SPECS, TINY, seed=0, steps=3, replay_ratio=1), "unknown task"),
        (lambda: ac.run_grid([], ["Pendulum-v1"], [0], [1], config=TINY, steps=4), "specs"),
        (lambda: ac.run_grid(SPECS, "Pendulum-v1", [0], [1], config=TINY, steps=4), "sequence"),
        (lambda: ac.run_grid(SPECS, ["Pendulum-v1"], [], [1], config=TINY, steps=4), "seeds"),
        (lambda: run_grid(client=3), "client"),
        (
            lambda: ac.run_grid(SPECS, ["Pendulum-v1"], 3, [1], config=TINY, steps=4),
            "seeds must be a sequence",
        ),
        (lambda: ac.run_grid(["cdq"], ["Pendulum-v1"], [0], [1], config=TINY, steps=4), "AgentSpec"),
        (lambda: train(["cdq"]), "AgentSpec"),
        (lambda: ac.train(None, SPECS, TINY, seed=0, steps=3, replay_ratio=1), "task"),
    ],
)
def test_rejects(call, match):
    with pytest.raises(ValueError, match=match):
        call()
