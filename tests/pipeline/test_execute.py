"""One execution in a real kernel: what it is given, what comes back, and the ways in which it fails."""

from __future__ import annotations

import math
import os
import pickle
import sys

import nbformat
import pytest
import toybook

from icml24.pipeline.execute import Task, execute

VALUES = {
    "text": 'it\'s "so" \\ new\nline é {x} {{y}}',
    "pair": (1, (2.5, "a")),
    "single": (7,),
    "nothing": None,
    "yes": True,
    "sizes": [1, [2, 3]],
    "table": {"a": [1, None]},
    "far": -math.inf,
    "small": 1e-300,
}


def task(book, *cells, parameters=None, memory_mb=600, **changes):
    """Task of a chapter made of these code cells, the first one its parameter cell."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    notebook.cells[0].metadata["tags"] = ["parameters"]
    for index, cell in enumerate(notebook.cells):
        cell["id"] = f"alpha-{index:03d}"
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    given = {"name": "alpha", "slug": "alpha", "root": str(book.root), "package": book.package, "token": "t"}
    source = nbformat.writes(notebook)
    return Task(**(given | changes), source=source, parameters=parameters or {}, memory_mb=memory_mb)


def outputs(result):
    notebook = nbformat.reads(result.text, as_version=4)
    nbformat.validate(notebook)
    return [
        "".join(o.get("text", "") for o in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_a_kernel_gets_its_values_environment_and_sources(book, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.setenv("PYTHONSTARTUP", "/nonexistent.py")
    look = "import os, sys, toybook\n"
    look += "print(sys.executable, os.environ['OMP_NUM_THREADS'], os.environ['ICML24_DATA'])"
    names = ", ".join(f"{name!r}: {name}" for name in VALUES)
    chunks = "for i in range(20):\n    print(i, end=' ', flush=True)\n    print(i, end=' ', file=sys.stderr, flush=True)"
    result = execute(
        task(
            book,
            "text = ''",
            f"print(repr({{{names}}}))",
            look,
            chunks,
            parameters=VALUES,
            data_folder="/data",
        )
    )
    assert (result.ok, result.error) == (True, "")
    _, injected, printed, seen, _ = outputs(result)
    assert injected == ""
    assert eval(printed, {"inf": math.inf}) == VALUES
    assert seen == f"{sys.executable} 1 /data\n"
    last = nbformat.reads(result.text, as_version=4).cells[-1]
    assert [(o.name, o.text.count(" ")) for o in last.outputs] == [("stdout", 20), ("stderr", 20)]
    stamp = nbformat.reads(result.text, as_version=4).metadata.icml24
    assert stamp.status == "ok"
    assert stamp.peak_mb > 20
    assert stamp.wall_s > 0
    assert str(book.root) not in result.text
    assert os.environ["OMP_NUM_THREADS"] == "4"


def test_a_cell_that_raises(book):
    result = execute(
        task(book, "a = 1", "print('so far')", "\n  \nraise ValueError('no \\x1b[1mgood')", "print('never')")
    )
    assert (result.ok, result.cell, result.error) == (
        False,
        "[3] raise ValueError('no \\x1b[1mgood')",
        "ValueError: no good",
    )
    first, so_far, _, never = outputs(result)
    assert (first, so_far, never) == ("", "so far\n", "")
    notebook = nbformat.reads(result.text, as_version=4)
    assert notebook.cells[2].outputs[0].ename == "ValueError"
    assert len(notebook.cells) == 4  # no cells of Papermill's own
    stamp = notebook.metadata.icml24
    assert (stamp.status, stamp.error.cell, stamp.error.ename, stamp.error.evalue) == (
        "failed",
        3,
        "ValueError",
        "no good",
    )


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("import sys; sys.exit()", "SystemExit"),
        ("import os; os._exit(3)", "exit status 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "died by SIGSEGV"),
        (
            "block = bytearray(900 * 10**6)\nimport time; time.sleep(20)",
            "memory limit exceeded: chapter alpha reached",
        ),
    ],
)
def test_a_kernel_that_ends_early(book, cell, said):
    result = execute(task(book, "a = 1", "print('so far')", cell, "print('never')"))
    assert result.ok is False
    assert said in result.error
    assert result.cell == f"[3] {cell.splitlines()[0]}"
    assert outputs(result)[1] == "so far\n"
    assert outputs(result)[3] == ""
    if "memory" in said:
        assert result.peak_mb > 600
        assert "allowed are 600 MB" in result.error
        assert "--memory-limit" in result.error


def test_a_worker_with_other_versions_refuses(book):
    result = execute(task(book, "a = 1", versions={"nbformat": "0.0.1"}))
    assert result.ok is False
    assert "expected 0.0.1" in result.error
    assert "Install the lock" in result.error
    assert result.cell == "before the first cell"


def test_tasks_travel(book):
    made = task(book, "a = 1", parameters=VALUES)
    assert pickle.loads(pickle.dumps(made)) == made
    assert toybook.PARAMETERS in toybook.ALPHA
