"""A look at the machine: would the book run here, and would it compute the numbers that were tested?

An error is what stops a chapter or falsifies a result; a warning is what makes a result
differ in the last digits, or switches off something optional. Nothing is changed.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
import psutil

from icml24 import datasets
from icml24.pipeline.book import KERNELSPEC, Book
from icml24.pipeline.execute import Task, execute
from icml24.pipeline.kernels import THREAD_VARIABLES
from icml24.pipeline.keys import THREADS
from icml24.pipeline.provenance import repository_state

__all__ = ["BROWSERS", "FORBIDDEN", "Finding", "doctor"]

#: Beginnings of the names of distributions that belong to a CUDA build, or break beside a CPU one.
FORBIDDEN = ("nvidia-", "cuda-", "triton", "pytorch-triton", "torchvision")

#: Programs that the tests of the site can drive.
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

PYTHON = (3, 11)
DISK_GB = {"error": 0.2, "warning": 2.0}
MEMORY_GB = 2.0


@dataclass(frozen=True)
class Finding:
    """One thing looked at.

    Attributes
    ----------
    name : str
    ok : bool
        False for an error only: the exit status is that of the errors.
    detail : str
        What was found and, where something should change, what to do.
    severity : {"ok", "warning", "error"}
    """

    name: str
    ok: bool
    detail: str
    severity: str = "ok"


def doctor(book: Book) -> list[Finding]:
    """Look at the interpreter, versions, kernels, data, browser and disk, in this order.

    Returns
    -------
    list of Finding
        A look that itself fails is an error among them, not an exception.
    """
    findings: list[Finding] = []
    for name, look in _LOOKS.items():
        try:
            findings += look(book)
        except Exception as error:  # a broken installation is what this command is for
            findings.append(_error(name, f"could not be looked at: {type(error).__name__}: {error}"))
    return findings


def _fine(name: str, detail: str) -> Finding:
    return Finding(name, True, detail)


def _warning(name: str, detail: str) -> Finding:
    return Finding(name, True, f"warning: {detail}", "warning")


def _error(name: str, detail: str) -> Finding:
    return Finding(name, False, detail, "error")


def _python(book: Book) -> Iterator[Finding]:
    here = f"{platform.python_implementation()} {platform.python_version()}"
    wanted = ".".join(map(str, PYTHON))
    if sys.version_info < PYTHON:
        yield _error("python", f"{here}; the book needs {wanted} or newer")
    elif sys.version_info[:2] != PYTHON:
        yield _warning("python", f"{here}; the locked versions were tested together on {wanted}")
    else:
        yield _fine("python", here)


def _environment(book: Book) -> Iterator[Finding]:
    if sys.prefix != sys.base_prefix:
        yield _fine("environment", f"virtual environment {Path(sys.prefix).name}")
    elif os.environ.get("CONDA_PREFIX"):
        yield _fine("environment", f"conda environment {Path(os.environ['CONDA_PREFIX']).name}")
    else:
        yield _warning("environment", "neither a virtual nor a conda environment; `make env` creates one")


def _versions(book: Book) -> Iterator[Finding]:
    lock = book.root / "requirements.lock"
    if not lock.is_file():
        yield _warning("versions", "no requirements.lock beside _toc.yml: nothing to compare with")
        return
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)", lock.read_text(encoding="utf-8"), re.MULTILINE))
    installed = _installed()
    here = {name: installed.get(_canonical(name)) for name in pins}
    missing = [name for name, version in here.items() if version is None]
    other = [
        f"{name} {version} (locked {pins[name]})"
        for name, version in here.items()
        if version is not None and version.split("+")[0] != pins[name].split("+")[0]
    ]
    if missing:
        yield _error("versions", f"not installed: {_some(missing)}; run `make env`")
    if other:
        yield _warning("versions", f"other than tested, numbers may differ: {_some(other)}")
    if not missing and not other:
        yield _fine("versions", f"all {len(pins)} as in requirements.lock")


def _cuda(book: Book) -> Iterator[Finding]:
    found = sorted(name for name in _installed() if name.startswith(FORBIDDEN))
    if found:
        yield _error(
            "CPU builds",
            f"found {_some(found)}; the book runs on the CPU build of torch: remove the environment and make it "
            "anew with TORCH_INDEX naming an index of CPU builds",
        )
    else:
        yield _fine("CPU builds", "no distribution of a CUDA build")


def _threads(book: Book) -> Iterator[Finding]:
    shell = {name: os.environ[name] for name in THREAD_VARIABLES if os.environ.get(name)}
    said = ", ".join(f"{name}={value}" for name, value in shell.items()) or "no variable set"
    detail = f"kernels get {THREADS} thread whatever the shell says; this shell: {said}"
    yield _fine("threads", f"{detail}; {psutil.cpu_count() or 1} cores")


def _kernel(book: Book) -> Iterator[Finding]:
    """Start a kernel as a chapter gets one, and let it say what it is."""
    cell = nbformat.v4.new_code_cell(f"import {book.package}", id="doctor-000")
    notebook = nbformat.v4.new_notebook(cells=[cell], metadata={"kernelspec": dict(KERNELSPEC)})
    text = nbformat.writes(notebook)
    token = uuid.uuid4().hex
    result = execute(Task("doctor", "doctor", str(book.root), book.package, text, {}, None, token))
    if not result.ok:
        yield _error("kernel", f"a kernel does not start, or cannot import {book.package}: {result.error}")
    else:
        yield _fine("kernel", f"starts and imports {book.package} ({result.seconds:.1f} s)")


def _kernelspec(book: Book) -> Iterator[Finding]:
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        argv = KernelSpecManager().get_kernel_spec("python3").argv
    except NoSuchKernel:
        yield _warning(
            "kernelspec", "no python3 kernelspec: downloaded notebooks will not open; install ipykernel"
        )
        return
    program = shutil.which(argv[0]) if os.sep not in argv[0] else argv[0]
    same = argv[0] in ("python", "python3") or Path(program or "").resolve() == Path(sys.executable).resolve()
    if same:
        yield _fine("kernelspec", "python3 is this interpreter")
    else:
        yield _warning(
            "kernelspec",
            f"python3 is another interpreter ({argv[0]}); the book's own runs are not affected, notebooks opened "
            "in Jupyter are",
        )


def _data(book: Book) -> Iterator[Finding]:
    given = os.environ.get("ICML24_DATA")
    if given and not Path(given).expanduser().is_dir():
        yield _error("data", f"ICML24_DATA names {given}, which is no folder; correct it or unset it")
    for name, data in datasets.REGISTRY.items():
        states = datasets.verify(name)
        present = sum(state.state == "ok" for state in states)
        corrupt = [state.file for state in states if state.state == "corrupt"]
        if corrupt:
            yield _error(f"data {name}", f"{_some(corrupt)} differ from the registered files; get them again")
        elif not present:
            yield _fine(
                f"data {name}",
                f"not here (optional): {datasets.how_to_get(name)}; chapters use their default",
            )
        else:
            yield _fine(f"data {name}", f"{present} of {len(data.files)} files, hashes right")


def _repository(book: Book) -> Iterator[Finding]:
    commit, dirty = repository_state(book.root)
    if commit is None:
        yield _warning("repository", "no git repository: pages will not say which commit made them")
    else:
        yield _fine("repository", f"commit {commit[:12]}{' with uncommitted changes' if dirty else ''}")


def _browser(book: Book) -> Iterator[Finding]:
    found = next((name for name in BROWSERS if shutil.which(name)), None)
    if found is None:
        yield _warning("browser", f"none of {', '.join(BROWSERS)}; the tests of the site will be skipped")
    else:
        yield _fine("browser", found)


def _disk(book: Book) -> Iterator[Finding]:
    free = shutil.disk_usage(book.root).free / 1e9
    detail = f"{free:.1f} GB free"
    if free < DISK_GB["error"]:
        yield _error("disk", f"{detail}; results cannot be stored below {DISK_GB['error']} GB: make room")
    elif free < DISK_GB["warning"]:
        yield _warning(
            "disk", f"{detail}; the site, its notebooks and caches take up to {DISK_GB['warning']:.0f} GB"
        )
    else:
        yield _fine("disk", detail)


def _memory(book: Book) -> Iterator[Finding]:
    free = psutil.virtual_memory().available / 1e9
    if free < MEMORY_GB:
        yield _warning("memory", f"{free:.1f} GB available; a chapter may take 1.5 GB: use --jobs 1")
    else:
        yield _fine("memory", f"{free:.1f} GB available")


_LOOKS: dict[str, Callable[[Book], Iterator[Finding]]] = {
    "python": _python,
    "environment": _environment,
    "versions": _versions,
    "CPU builds": _cuda,
    "threads": _threads,
    "kernel": _kernel,
    "kernelspec": _kernelspec,
    "data": _data,
    "repository": _repository,
    "browser": _browser,
    "disk": _disk,
    "memory": _memory,
}


def _installed() -> dict[str, str]:
    """Version of every installed distribution, by canonical name."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            found.setdefault(_canonical(name), distribution.version)
    return found


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _some(names: list[str], most: int = 6) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
