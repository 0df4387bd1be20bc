"""The set-up: one list of dependencies, a lock that matches it, no CUDA build."""

from __future__ import annotations

import re
import runpy
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(r).name) for r in requirements}


def lock(name: str = "requirements.lock") -> dict[str, str]:
    lines = (ROOT / name).read_text(encoding="utf8").splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(k): v for k, v in pins.items()}


def test_no_cuda_build_is_installed():
    guard = runpy.run_path(str(ROOT / "scripts" / "guard_cuda.py"))
    assert guard["forbidden"]() == []


@pytest.mark.parametrize(
    ("installed", "found"),
    [
        ("nvidia-cublas-cu12", True),
        ("triton", True),
        ("torchvision", True),
        ("Cuda_Bindings", True),
        ("torch", False),
    ],
)
def test_the_guard_knows_a_cuda_build_when_it_sees_one(monkeypatch, installed, found):
    class Distribution:
        metadata = {"Name": installed}  # noqa: RUF012

    guard = runpy.run_path(str(ROOT / "scripts" / "guard_cuda.py"))
    monkeypatch.setattr(metadata, "distributions", lambda: [Distribution()])
    assert bool(guard["forbidden"]()) is found


def test_environment_yml_equals_pyproject():
    spec = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf8"))["dependencies"]
    pip = next(entry["pip"] for entry in spec if isinstance(entry, dict))
    expected = [*PROJECT["dependencies"], *EXTRAS["test"]]
    assert sorted(p for p in pip if p != "-e .") == sorted(expected)
    assert pip[-1] == "-e ."
    assert [entry for entry in spec if isinstance(entry, str)] == ["python=3.11", "pip"]


@pytest.mark.parametrize(
    ("file", "extras"), [("requirements.lock", ["test", "lint"]), ("requirements-bench.lock", ["bench"])]
)
def test_lock_satisfies_pyproject(file, extras):
    pins = lock(file)
    for text in [*PROJECT["dependencies"], *(r for extra in extras for r in EXTRAS[extra])]:
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        assert name in pins, f"{requirement.name} is missing in {file}; run make lock"
        assert requirement.specifier.contains(pins[name], prereleases=True), (
            f"{name}=={pins[name]} against {text}"
        )
    assert not any("+" in version for version in pins.values()), (
        "a local version cannot be installed elsewhere"
    )
    assert not any(n.startswith(("nvidia-", "cuda-", "triton", "torchvision")) for n in pins)


def test_installed_versions_are_the_locked_ones():
    pins = lock()
    wrong = {}
    for name in names([*PROJECT["dependencies"], *EXTRAS["test"]]):
        version = metadata.version(name).split("+")[0]
        if version != pins[name]:
            wrong[name] = (version, pins[name])
    assert wrong == {}, "installed and locked versions differ; run make env"


def test_readme_gives_a_reason_for_each_dependency():
    text = (ROOT / "README.md").read_text(encoding="utf8")
    rows = re.findall(r"^\|([^|]+)\|([^|]+)\|", text, re.M)
    listed = {canonicalize_name(n) for cell, _ in rows for n in re.findall(r"`([A-Za-z0-9_.-]+)`", cell)}
    wanted = names([*PROJECT["dependencies"], *(r for extra in EXTRAS.values() for r in extra)])
    assert wanted <= listed, f"no line in the README's table: {sorted(wanted - listed)}"
