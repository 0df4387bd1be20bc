"""`doctor`: each look finds what it looks for, and only an error fails the command."""

from __future__ import annotations

import collections
import importlib.metadata
import os
import platform
import sys

import pytest
import toybook

from icml24 import datasets
from icml24.pipeline import doctor

Usage = collections.namedtuple("Usage", "total used free")
Memory = collections.namedtuple("Memory", "available")


def look(book, name):
    """Findings of one look, as (severity, ok, detail)."""
    return [(f.severity, f.ok, f.detail) for f in doctor._LOOKS[name](book)]


def one(book, name):
    (finding,) = look(book, name)
    assert finding[1] == (finding[0] != "error")
    return finding[0], finding[2]


class Installed:
    def __init__(self, name, version):
        self.metadata, self.version = {"Name": name}, version


@pytest.fixture
def installed(monkeypatch):
    """Pretend that these distributions, and no others, are installed."""

    def only(**versions):
        found = [Installed(name.replace("__", "-"), version) for name, version in versions.items()]
        monkeypatch.setattr(importlib.metadata, "distributions", lambda: found)

    return only


def test_everything_is_looked_at_once_and_this_machine_can_run_the_book(book):
    findings = doctor.doctor(book)
    names = [finding.name for finding in findings]
    expected = ["python", "environment", "versions", "CPU builds", "threads", "kernel", "kernelspec"]
    assert names[: len(expected)] == expected
    assert names[-4:] == ["repository", "browser", "disk", "memory"]
    assert {f"data {name}" for name in datasets.REGISTRY} <= set(names)
    kernel = next(finding for finding in findings if finding.name == "kernel")
    assert kernel.ok, kernel.detail
    assert "imports toybook" in kernel.detail


@pytest.mark.parametrize(
    ("version", "severity", "words"),
    [
        ((3, 10, 4), "error", "the book needs 3.11 or newer"),
        ((3, 11, 4), "ok", platform.python_version()),
        ((3, 13, 0), "warning", "tested together on 3.11"),
    ],
)
def test_python(book, monkeypatch, version, severity, words):
    monkeypatch.setattr(sys, "version_info", version)
    found, detail = one(book, "python")
    assert found == severity
    assert words in detail


def test_environment(book, monkeypatch):
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    assert one(book, "environment")[0] == "warning"
    monkeypatch.setenv("CONDA_PREFIX", "/opt/conda/envs/book")
    assert one(book, "environment") == ("ok", "conda environment book")
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    assert one(book, "environment")[1].startswith("virtual environment")


def test_versions_against_the_lock(book, installed):
    assert one(book, "versions")[0] == "warning"  # no lock
    (book.root / "requirements.lock").write_text(
        "# tested\ntorch==2.13.0\nscikit-learn==1.9.1\nnumpy==2.4.6\n"
    )
    installed(
        torch="2.13.0+cpu", scikit_learn="1.9.1", numpy="2.4.6"
    )  # other spelling, local version: the same
    assert one(book, "versions") == ("ok", "all 3 as in requirements.lock")
    installed(torch="2.13.0", scikit_learn="1.8.0")
    missing, other = look(book, "versions")
    assert missing[:2] == ("error", False)
    assert missing[2] == "not installed: numpy; run `make env`"
    assert other[:2] == ("warning", True)
    assert "scikit-learn 1.8.0 (locked 1.9.1)" in other[2]


@pytest.mark.parametrize("name", ["nvidia__nccl__cu12", "cuda__bindings", "triton", "torchvision"])
def test_a_cuda_build_is_an_error(book, installed, name):
    installed(torch="2.13.0", **{name: "1"})
    severity, detail = one(book, "CPU builds")
    assert severity == "error"
    assert name.replace("__", "-") in detail
    assert "TORCH_INDEX" in detail
    installed(torch="2.13.0")
    assert one(book, "CPU builds")[0] == "ok"


def test_threads(book, monkeypatch):
    for name in doctor.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert "this shell: no variable set" in one(book, "threads")[1]
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    severity, detail = one(book, "threads")
    assert severity == "ok"
    assert "kernels get 1 thread" in detail
    assert "OMP_NUM_THREADS=7" in detail


def test_a_package_that_a_kernel_cannot_import(book):
    toybook.edit(book, "pyproject.toml", 'package = "toybook"', 'package = "absent"')
    severity, detail = one(type(book).load(book.root), "kernel")
    assert severity == "error"
    assert "cannot import absent" in detail
    assert "ModuleNotFoundError" in detail


def test_a_kernelspec_of_another_interpreter(book, monkeypatch, tmp_path):
    import json

    spec = tmp_path / "kernels" / "python3"
    spec.mkdir(parents=True)

    def write(program):
        content = {"argv": [program, "-m", "ipykernel_launcher"], "display_name": "P", "language": "python"}
        (spec / "kernel.json").write_text(json.dumps(content))

    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    write("/opt/other/bin/python")
    severity, detail = one(book, "kernelspec")
    assert severity == "warning"
    assert "/opt/other/bin/python" in detail
    write(sys.executable)
    assert one(book, "kernelspec")[0] == "ok"


def test_data(book, monkeypatch, tmp_path):
    registered = doctor.datasets.REGISTRY["nanomorphology"]
    monkeypatch.setattr(doctor.datasets, "REGISTRY", {"nanomorphology": registered})
    monkeypatch.setenv("ICML24_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ICML24_DATA", str(tmp_path / "absent"))
    first, second = look(book, "data")
    assert first[0] == "error"
    assert "which is no folder" in first[2]
    assert second[0] == "ok"
    assert "icml24 data fetch nanomorphology" in second[2]
    folder = tmp_path / "data" / "nanomorphology"
    folder.mkdir(parents=True)
    monkeypatch.setenv("ICML24_DATA", str(folder.parent))
    (folder / "procedure_patterns.txt").write_text("not the file")
    severity, detail = one(book, "data")
    assert severity == "error"
    assert "procedure_patterns.txt differ from the registered" in detail


def test_repository(book):
    import subprocess

    assert one(book, "repository")[0] == "warning"
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(book.root), *command], check=True)
    severity, detail = one(book, "repository")
    assert severity == "ok"
    assert "uncommitted" not in detail
    toybook.append(book, "_config.yml", "\n")
    assert one(book, "repository")[1].endswith("with uncommitted changes")


def test_browser(book, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    severity, detail = one(book, "browser")
    assert severity == "warning"
    assert "tests of the site will be skipped" in detail
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert one(book, "browser") == ("ok", "chromium")


@pytest.mark.parametrize(("free", "severity"), [(0.1e9, "error"), (1e9, "warning"), (50e9, "ok")])
def test_disk(book, monkeypatch, free, severity):
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: Usage(0, 0, free))
    found, detail = one(book, "disk")
    assert found == severity
    assert f"{free / 1e9:.1f} GB free" in detail


@pytest.mark.parametrize(("free", "severity"), [(1e9, "warning"), (8e9, "ok")])
def test_memory(book, monkeypatch, free, severity):
    monkeypatch.setattr(doctor.psutil, "virtual_memory", lambda: Memory(free))
    assert one(book, "memory")[0] == severity


def test_a_look_that_breaks_is_a_finding(book, monkeypatch):
    def broken(book):
        raise RuntimeError("no such thing")

    monkeypatch.setattr(doctor, "_LOOKS", {"disk": broken, "memory": doctor._LOOKS["memory"]})
    first, second = doctor.doctor(book)
    assert (first.name, first.ok, first.severity) == ("disk", False, "error")
    assert first.detail == "could not be looked at: RuntimeError: no such thing"
    assert second.name == "memory"


@pytest.mark.parametrize(("absent", "status"), [(False, 0), (True, 1)])
def test_exit_status_is_that_of_the_errors(book, absent, status):
    """Without a lock and a repository there are warnings, which do not fail the command."""
    import json

    data = str(book.root / "absent") if absent else ""
    done = toybook.call(book, "doctor", "--json", env=toybook.environment() | {"ICML24_DATA": data})
    findings = json.loads(done.stdout)
    assert done.returncode == status, done.stdout + done.stderr
    assert any(finding["severity"] == "warning" for finding in findings)
    assert any(not finding["ok"] for finding in findings) is absent
    assert os.environ.get("ICML24_DATA") is None
