r"""The grid of runs, as tasks that any executor can carry out and that no restart repeats.

A task is one (environment, agents of one architecture, seed, replay ratio): a pure function of
its arguments that returns a small dict of arrays. With a folder, each result is written under a
name made of all its arguments, in one atomic step, so a second call skips what is done, and a
worker that dies leaves nothing half-written.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import uuid
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from icml24.common.checks import WrongType, whole

from .agents import AgentSpec
from .data import normalised_score
from .group import Group
from .sac import SACConfig
from .training import METRICS, train

if TYPE_CHECKING:
    from dask.distributed import Client

__all__ = ["GridTask", "grid_tasks", "run_grid", "run_task"]


@dataclass(frozen=True)
class GridTask:
    """Arguments of one call of `run_task`; plain values only, so that any executor can send them."""

    task: str
    specs: tuple[tuple[str, str, str], ...]
    seed: int
    replay_ratio: int
    config: SACConfig
    steps: int

    @property
    def key(self) -> str:
        """Name of the result: readable parts, and a hash of all arguments."""
        digest = hashlib.sha256(repr(asdict(self)).encode()).hexdigest()[:16]
        return f"{self.task}-r{self.replay_ratio}-s{self.seed}-{len(self.specs)}-{digest}"


def grid_tasks(
    specs: Sequence[AgentSpec],
    tasks: Sequence[str],
    seeds: Sequence[int],
    replay_ratios: Sequence[int],
    *,
    config: SACConfig,
    steps: int,
    group_size: int | None = None,
) -> list[GridTask]:
    """Split a grid into tasks; agents of one architecture stay together, because stacking pays.

    `group_size` limits the agents of a task, whose replay buffers share a machine's memory.

    Raises
    ------
    ValueError
        An empty axis, or counts that are not positive whole numbers.
    """
    axes = {"specs": specs, "tasks": tasks, "seeds": seeds, "replay_ratios": replay_ratios}
    if isinstance(tasks, str):
        raise WrongType(f"tasks must be a sequence of names, as in [{tasks!r}]; got one string")
    for name, axis in axes.items():
        if not isinstance(axis, Collection):
            raise WrongType(f"{name} must be a sequence; got {type(axis).__name__}: use [{axis!r}]")
        if len(axis) == 0:
            raise ValueError(f"{name} is empty; expected at least one")
    if not all(isinstance(spec, AgentSpec) for spec in specs):
        raise WrongType("specs must hold AgentSpec instances, as in [AgentSpec(network='layer_norm')]")
    steps = whole("steps", steps, 1)
    groups: dict[tuple[bool, ...], list[tuple[str, str, str]]] = {}
    for spec in specs:
        groups.setdefault(Group.kind(spec), []).append((spec.critic, spec.network, spec.plasticity))
    size = len(specs) if group_size is None else whole("group_size", group_size, 1)
    parts = [tuple(group[k : k + size]) for group in groups.values() for k in range(0, len(group), size)]
    return [
        GridTask(task, part, whole("seed", seed), whole("replay_ratio", ratio, 1), config, steps)
        for task in tasks
        for seed in seeds
        for ratio in replay_ratios
        for part in parts
    ]


def run_task(task: GridTask, cache_dir: str | None = None) -> dict[str, np.ndarray]:
    """Carry out one task, or read its result when the folder has it.

    Returns
    -------
    dict of str to ndarray
        ``steps`` (evaluations,), ``returns`` and every metric (specs, evaluations).
    """
    path = None if cache_dir is None else Path(cache_dir) / f"{task.key}.npz"
    if path is not None and path.is_file():
        with np.load(path) as stored:
            return {name: stored[name] for name in stored.files}
    records = train(
        task.task,
        [AgentSpec(*parts) for parts in task.specs],
        task.config,
        seed=task.seed,
        steps=task.steps,
        replay_ratio=task.replay_ratio,
    )
    result = {"steps": records[0].steps.numpy(), "returns": np.stack([r.returns.numpy() for r in records])}
    result |= {name: np.stack([r.metrics[name].numpy() for r in records]) for name in METRICS}
    if path is not None:
        _write(path, result)
    return result


def run_grid(
    specs: Sequence[AgentSpec],
    tasks: Sequence[str],
    seeds: Sequence[int],
    replay_ratios: Sequence[int],
    *,
    config: SACConfig,
    steps: int,
    client: Client | Executor | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    group_size: int | None = None,
) -> pd.DataFrame:
    """Train every agent on every task, seed and replay ratio.

    Parameters
    ----------
    specs : sequence of AgentSpec
    tasks : sequence of str
    seeds, replay_ratios : sequence of int
    config : SACConfig
    steps : int
        Environment steps a run.
    client : dask.distributed.Client or concurrent.futures.Executor, optional
        Where tasks run; None runs them here, one after another. A Dask client repeats a task that
        failed once, and moves one whose worker died.
    cache_dir : path, optional
        Folder of finished tasks, shared by all workers; it makes the grid resumable.
    group_size : int, optional
        Most agents in one task. A buffer of a million transitions of a dog takes 2 GB for each.

    Returns
    -------
    pandas.DataFrame
        One row per (task, spec, seed, replay ratio): the columns ``task``, ``agent``, ``critic``,
        ``network``, ``plasticity``, ``seed``, ``replay_ratio``, ``final_return``, ``mean_return``,
        ``score`` (normalised final return) and the last value of each metric.

    Raises
    ------
    ValueError
        An empty axis or a count out of range.
    """
    todo = grid_tasks(specs, tasks, seeds, replay_ratios, config=config, steps=steps, group_size=group_size)
    folder = None if cache_dir is None else str(Path(cache_dir).absolute())
    with _executor(client) as executor:
        if executor is None:
            results = {task.key: run_task(task, folder) for task in todo}
        else:
            futures = {executor.submit(run_task, task, folder): task.key for task in todo}
            results = {futures[done]: done.result() for done in as_completed(futures)}
    rows = [row for task in todo for row in _rows(task, results[task.key])]
    order = {(spec.critic, spec.network, spec.plasticity): k for k, spec in enumerate(specs)}
    place = {name: k for k, name in enumerate(tasks)}
    rows.sort(
        key=lambda row: (
            place[row["task"]],
            order[row["critic"], row["network"], row["plasticity"]],
            list(seeds).index(row["seed"]),
            list(replay_ratios).index(row["replay_ratio"]),
        )
    )
    return pd.DataFrame(rows)


def _rows(task: GridTask, result: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    return [
        {
            "task": task.task,
            "agent": AgentSpec(*parts).name,
            **dict(zip(("critic", "network", "plasticity"), parts, strict=True)),
            "seed": task.seed,
            "replay_ratio": task.replay_ratio,
            "final_return": float(returns[-1]),
            "mean_return": float(returns.mean()),
            "score": float(normalised_score(task.task, float(returns[-1]))),
            **{name: float(result[name][k, -1]) for name in METRICS},
        }
        for k, (parts, returns) in enumerate(zip(task.specs, result["returns"], strict=True))
    ]


@contextlib.contextmanager
def _executor(client: Client | Executor | None) -> Iterator[Executor | None]:
    """The executor behind `client`; a Dask client stays open."""
    if client is None or isinstance(client, Executor):
        yield client
        return
    if not hasattr(client, "get_executor"):
        raise WrongType(f"client must be a Dask client or an executor; got {type(client).__name__}")
    # Not pure: Dask would answer an equal call from memory. Retries are for exceptions; lost workers need none.
    with client.get_executor(pure=False, retries=1) as executor:
        yield executor


def _write(path: Path, result: dict[str, np.ndarray]) -> None:
    """Write a result whole or not at all; several machines may share the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")
    content = io.BytesIO()
    np.savez(content, **result)
    try:
        temporary.write_bytes(content.getvalue())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
