"""What is committed speaks of the book alone: no paths of a machine, no hosts it must not need."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = {
    ".py",
    ".md",
    ".toml",
    ".yml",
    ".yaml",
    ".cfg",
    ".ipynb",
    ".json",
    ".txt",
    ".css",
    ".js",
    ".sh",
    ".lock",
    "",
}


def tracked() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listing.returncode:
        pytest.skip("not a git checkout: the list of committed files is unknown")
    paths = (ROOT / name for name in listing.stdout.split("\0") if name)
    return [p for p in paths if p.suffix in TEXT and p.is_file() and p != Path(__file__)]


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        (r"(?<![\w.])/(?:work|root|home)/\w", "a path of one machine"),
        (r"(?<![\w.])/tmp/(?!ipykernel)[A-Za-z]", "a path of one machine"),
        (r"https?://[\w.-]*(?:jsdelivr|unpkg|cdnjs|cloudflare|googleapis)", "a content delivery network"),
        (r"\b(?:files\.pythonhosted|pypi\.org/simple|registry\.npmjs|deb\.debian)\b", "a registry's host"),
    ],
)
def test_no_committed_text_names(pattern, what):
    hits = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in tracked()
        for number, line in enumerate(path.read_text(encoding="utf8", errors="replace").splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert hits == [], f"{what} in committed text"


def test_no_large_file_is_committed():
    big = [str(p.relative_to(ROOT)) for p in tracked() if p.stat().st_size > 1_000_000]
    assert big == []


def test_make_targets_named_in_the_readme_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf8"), re.M))
    named = set(re.findall(r"make ([a-z]+)", (ROOT / "README.md").read_text(encoding="utf8")))
    assert named
    assert named <= targets
