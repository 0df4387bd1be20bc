"""What is written into an executed notebook: where its numbers come from, and nothing that varies idly."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat

from icml24.pipeline.book import KERNELSPEC

__all__ = ["clean", "differing_versions", "machine", "now", "repository_state", "stamp"]

_ERROR_TAG = "papermill-error-cell-tag"


def clean(notebook: nbformat.NotebookNode, slug: str, root: str = "") -> nbformat.NotebookNode:
    """Take out what differs between two equal runs: times, random ids, the kernel's name, local paths.

    Parameters
    ----------
    notebook : NotebookNode
        Changed in place and returned.
    slug : str
        Prefix of cell ids; cells that have one keep it.
    root : str
        The book's folder, removed from printed text.
    """
    notebook.cells = [c for c in notebook.cells if _ERROR_TAG not in c.metadata.get("tags", [])]
    for index, cell in enumerate(notebook.cells):
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
        if not cell.metadata.get("tags", True):
            del cell.metadata["tags"]  # Papermill adds an empty list
        if not str(cell.get("id", "")).startswith(slug[:60]):
            cell["id"] = f"{slug[:50]}-injected-{index:03d}"
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                output["text"] = _without_paths("".join(output.text), root)
    notebook.metadata.pop("papermill", None)
    notebook.metadata["kernelspec"] = dict(KERNELSPEC)
    notebook.metadata.get("language_info", {}).pop("version", None)
    return notebook


def stamp(notebook: nbformat.NotebookNode, facts: Mapping[str, Any]) -> nbformat.NotebookNode:
    """Store the facts of an execution as the notebook's ``icml24`` metadata."""
    notebook.metadata["icml24"] = nbformat.from_dict(dict(facts))
    return notebook


def repository_state(root: Path) -> tuple[str | None, bool | None]:
    """Commit of the book and whether tracked files differ from it; (None, None) outside a repository."""
    commit = _git(root, "rev-parse", "HEAD")
    if commit is None:
        return None, None
    return commit.strip(), bool((_git(root, "status", "--porcelain", "--untracked-files=no") or "").strip())


def machine() -> dict[str, Any]:
    """Processor, number of cores, operating system: what timings depend on."""
    return {"cpu": _cpu(), "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}"}


def now() -> str:
    """Coordinated universal time to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def differing_versions(expected: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Distributions whose version here is not the expected one, as name -> (expected, here)."""
    here: dict[str, str] = {"python": platform.python_version()}
    for name in expected:
        if name not in here:
            try:
                here[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                here[name] = "absent"
    return {name: (wanted, here[name]) for name, wanted in expected.items() if here[name] != wanted}


def _without_paths(text: str, root: str) -> str:
    """Replace the kernel's temporary cell files, the installation and the book's folder in printed text."""
    text = re.sub(r"\S*ipykernel_\d+[/\\]\d+\.py", "<cell>", text)
    text = re.sub(r"\S*[/\\]site-packages[/\\]", "", text)
    return text.replace(root.rstrip("/\\") + os.sep, "") if root else text


def _cpu() -> str:
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match.group(1).strip() if match else platform.processor() or platform.machine()


def _git(root: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(root), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return None
