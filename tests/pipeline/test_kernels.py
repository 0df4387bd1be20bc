"""The book's kernelspec: which interpreter, which environment."""

from __future__ import annotations

import json
import os
import sys

from jupyter_client.kernelspec import KernelSpecManager

from icml24.pipeline import kernels


def test_spec_names_this_interpreter_one_thread_and_the_books_sources(book, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("MPLBACKEND", "agg")
    spec = kernels.kernel_spec(book.root, book.package)
    assert spec["argv"][:3] == [sys.executable, "-m", "ipykernel_launcher"]
    assert "{connection_file}" in spec["argv"]
    environment = spec["env"]
    assert {environment[name] for name in kernels.THREAD_VARIABLES} == {"1"}
    assert environment["PYTHONPATH"].split(os.pathsep) == [str(book.root / "src"), "/somewhere"]
    assert environment["ICML24_PACKAGE"] == "toybook"
    assert (environment["PYTHONHASHSEED"], environment["TQDM_DISABLE"]) == ("0", "1")
    assert environment["MPLBACKEND"] == "module://matplotlib_inline.backend_inline"


def test_written_spec_wins_when_its_folder_is_first(book, tmp_path, monkeypatch):
    other = kernels.write_spec(tmp_path / "other", "/elsewhere", "elsewhere")
    own = kernels.write_spec(tmp_path / "own", book.root, book.package)
    monkeypatch.setenv("JUPYTER_PATH", os.pathsep.join([str(own), str(other)]))
    found = KernelSpecManager().get_kernel_spec(kernels.NAME)
    assert found.env["ICML24_PACKAGE"] == "toybook"
    assert json.loads((own / "kernels" / "icml24" / "kernel.json").read_text())["argv"] == found.argv


def test_nothing_to_kill():
    assert kernels.kill_kernels("no such run") == 0
