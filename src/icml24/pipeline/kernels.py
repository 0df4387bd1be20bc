"""Kernels of the book: which interpreter and environment they get, how they start, and how they end.

A kernel is described by this module alone, never by what kernelspecs happen to be
installed: the interpreter is the running one, numerical libraries get one thread, and
the book's own sources come first on the import path. Kernels started here are known by
process id, so that a signal can end all of them at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager

from icml24.pipeline.files import write_atomic
from icml24.pipeline.memory import MemoryWatch, kill_tree

__all__ = ["NAME", "THREAD_VARIABLES", "kernel_spec", "kill_kernels", "manager_class", "write_spec"]

NAME = "icml24"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
START_SPACING_S = 0.2
SHUTDOWN_WAIT_S = 1.0

_live: dict[int, str] = {}
_ended: set[str] = set()
_starting = threading.Lock()
_last_start = 0.0


def kernel_spec(root: Path | str, package: str) -> dict[str, Any]:
    """Content of the book's ``kernel.json``.

    Parameters
    ----------
    root : Path or str
        Folder of the book; ``<root>/src`` comes first on the kernel's import path.
    package : str
        Package of the book's papers, told to the kernel as ``ICML24_PACKAGE``.
    """
    paths = [str(Path(root) / "src"), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        "argv": [
            sys.executable,
            "-m",
            "ipykernel_launcher",
            "-f",
            "{connection_file}",
            "--IPKernelApp.log_level=50",  # version 7 warns of plain TCP, and of the interrupt that ends it
            "--HistoryManager.hist_file=:memory:",  # no shared history database to wait for
            f"--IPKernelApp.ipython_dir={_ipython_folder(Path(root))}",  # nobody's start-up files
        ],
        "display_name": "ICML 2024 companion",
        "language": "python",
        "env": {
            **dict.fromkeys(THREAD_VARIABLES, "1"),
            "PYTHONHASHSEED": "0",
            "PYTHONSTARTUP": "",
            "TQDM_DISABLE": "1",
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
            "ICML24_PACKAGE": package,
        },
        "metadata": {"debugger": False},
    }


def write_spec(folder: Path, root: Path | str, package: str) -> Path:
    """Write the kernelspec below `folder` for tools that look it up by `NAME`, and return `folder`.

    Put the returned folder first in ``JUPYTER_PATH``; it then wins over every other
    kernelspec of that name (nbval: ``--nbval-kernel-name icml24``).
    """
    text = json.dumps(kernel_spec(root, package), indent=1) + "\n"
    write_atomic(folder / "kernels" / NAME / "kernel.json", text)
    return folder


def manager_class(spec: dict[str, Any], watch: MemoryWatch, token: str, cwd: str) -> type[AsyncKernelManager]:
    """Kernel manager for one execution: this spec, this memory watch, started one after another.

    Parameters
    ----------
    spec : dict
        From `kernel_spec`, possibly with more environment.
    watch : MemoryWatch
        Follows the kernel from its start.
    token : str
        Names the run; `kill_kernels` ends all kernels of a token.
    cwd : str
        Working folder of the kernel.
    """

    class Manager(AsyncKernelManager):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.shutdown_wait_time = SHUTDOWN_WAIT_S  # some kernels miss the message: do not wait 5 s

        @property
        def kernel_spec(self) -> KernelSpec:
            return KernelSpec(resource_dir="", **spec)

        async def start_kernel(self, **kwargs: Any) -> None:  # type: ignore[override]
            _wait_for_turn()
            try:
                await super().start_kernel(**(kwargs | {"cwd": cwd}))
            finally:
                _starting.release()
            process = getattr(self.provisioner, "process", None)
            if process is not None:
                _live[process.pid] = token
                watch.follow(process)
            if token in _ended:
                kill_kernels(token)

        async def cleanup_resources(self, restart: bool = False) -> None:  # type: ignore[override]
            watch.stop()
            if watch.pid is not None:
                _live.pop(watch.pid, None)
            await super().cleanup_resources(restart=restart)

    return Manager


def kill_kernels(token: str | None = None) -> int:
    """End the kernels of this process at once, children included; later starts of `token` end too.

    Parameters
    ----------
    token : str, optional
        Only those of this run.

    Returns
    -------
    int
        How many were alive.
    """
    if token is not None:
        _ended.add(token)
    pids = [pid for pid, owner in list(_live.items()) if token in (None, owner)]
    return sum(kill_tree(pid) for pid in pids)


def _wait_for_turn() -> None:
    """Take the start lock, and leave a little time since the last start (ports are picked by probing)."""
    global _last_start
    _starting.acquire()
    time.sleep(max(0.0, _last_start + START_SPACING_S - time.monotonic()))
    _last_start = time.monotonic()


_private_folder: tempfile.TemporaryDirectory[str] | None = None


def _ipython_folder(root: Path) -> str:
    """Folder for IPython's settings that holds none: in the book, else (on a worker) a private one."""
    global _private_folder
    folder = root / "_build" / "ipython"
    if (root / "_toc.yml").is_file():
        with contextlib.suppress(OSError):
            (folder / "profile_default").mkdir(parents=True, exist_ok=True)
            return str(folder)
    if _private_folder is None:
        _private_folder = tempfile.TemporaryDirectory(prefix="icml24-ipython-")
    return _private_folder.name
