"""What is stamped on a notebook, and what is taken out of it."""

from __future__ import annotations

import platform
import subprocess

import nbformat
from nbformat import v4

from icml24.pipeline import provenance


def executed():
    outputs = [
        v4.new_output("stream", name="stderr", text="/tmp/ipykernel_12/345.py:3: UserWarning: no\n"),
        v4.new_output(
            "stream", name="stdout", text="/books/toy/src/a.py and /x/lib/site-packages/numpy/b.py\n"
        ),
    ]
    cells = [
        v4.new_markdown_cell(
            "# A", id="alpha-000", metadata={"papermill": {"start_time": "now"}, "tags": []}
        ),
        v4.new_markdown_cell("error", id="x", metadata={"tags": ["papermill-error-cell-tag"]}),
        v4.new_code_cell(
            "a",
            id="alpha-001",
            outputs=outputs,
            execution_count=1,
            metadata={"execution": {"shell.execute_reply": "now"}},
        ),
        v4.new_code_cell("b", id="8f2c", metadata={"tags": ["injected-parameters"]}),
    ]
    metadata = {"papermill": {"version": "1"}, "language_info": {"name": "python", "version": "3.11.1"}}
    metadata["kernelspec"] = {"name": "icml24", "display_name": "?", "language": "python"}
    return v4.new_notebook(cells=cells, metadata=metadata)


def test_clean_drops_what_varies_and_keeps_the_rest():
    notebook = provenance.clean(executed(), "alpha", "/books/toy")
    assert [cell.id for cell in notebook.cells] == ["alpha-000", "alpha-001", "alpha-injected-002"]
    assert [dict(cell.metadata) for cell in notebook.cells] == [{}, {}, {"tags": ["injected-parameters"]}]
    assert notebook.metadata.kernelspec == {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    assert notebook.metadata.language_info == {"name": "python"}
    assert "papermill" not in notebook.metadata
    texts = [output.text for output in notebook.cells[1].outputs]
    assert texts == ["<cell>:3: UserWarning: no\n", "src/a.py and numpy/b.py\n"]
    assert notebook.cells[1].execution_count == 1
    nbformat.validate(notebook)


def test_stamp_is_readable_json():
    notebook = provenance.stamp(executed(), {"slug": "alpha", "parameters": {"pair": (1, 2)}})
    again = nbformat.reads(nbformat.writes(notebook), as_version=4)
    assert again.metadata.icml24 == {"slug": "alpha", "parameters": {"pair": [1, 2]}}


def test_repository_state(tmp_path):
    assert provenance.repository_state(tmp_path) == (None, None)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    (tmp_path / "a").write_text("1")
    for arguments in (["init", "-q"], ["add", "a"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *arguments], check=True)
    commit, dirty = provenance.repository_state(tmp_path)
    assert (len(commit), dirty) == (40, False)
    (tmp_path / "new").write_text("untracked files do not count")
    assert provenance.repository_state(tmp_path) == (commit, False)
    (tmp_path / "a").write_text("2")
    assert provenance.repository_state(tmp_path) == (commit, True)


def test_versions_that_differ():
    same = {"python": platform.python_version(), "nbformat": nbformat.__version__}
    assert provenance.differing_versions(same) == {}
    found = provenance.differing_versions(same | {"nbformat": "0.1", "no-such-thing": "1"})
    assert found == {"nbformat": ("0.1", nbformat.__version__), "no-such-thing": ("1", "absent")}


def test_machine_says_what_timings_depend_on():
    machine = provenance.machine()
    assert set(machine) == {"cpu", "cores", "system"}
    assert machine["cpu"]
    assert machine["cores"] >= 1
