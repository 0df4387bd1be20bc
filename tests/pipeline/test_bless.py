"""References: made without data in the chapter's own kind of kernel, text only, the same bytes every time."""

from __future__ import annotations

import os

import nbformat
import pytest
import toybook

from icml24.pipeline import bless
from icml24.pipeline.errors import ChapterFailed, UnknownChapter

CELLS = """
## Checks on small cases

```{code-cell} ipython3
import os, sys
print(os.environ.get("ICML24_DATA"), os.environ["OMP_NUM_THREADS"], profile)
print("to be dropped", file=sys.stderr)
```

```{code-cell} ipython3
:tags: [nbval-ignore-output, hide-input]

import time
print(time.time())
```

```{code-cell} ipython3
from IPython.display import HTML, display
display({"text/plain": "plain", "text/html": "<b>rich</b>", "image/png": "aGk="}, raw=True)
display({"text/html": "<b>rich alone</b>"}, raw=True)
object()
```
"""


@pytest.fixture
def blessed(book, monkeypatch, tmp_path):
    """The toy chapter with outputs of every kind, blessed while a data folder is set."""
    toybook.append(book, "book/one/alpha.md", CELLS)
    monkeypatch.setenv("ICML24_DATA", str(tmp_path))
    book.reference("alpha").parent.mkdir(parents=True)
    sanitize = "regex: \\b0x[0-9a-f]+\nreplace: <address>\n"
    (book.reference("alpha").parent / "sanitize.cfg").write_text(sanitize)
    assert bless.bless(book, "alpha") == book.reference("alpha")
    assert os.environ["ICML24_DATA"] == str(tmp_path)  # put back
    return book


def test_a_reference_holds_code_and_text_only(blessed):
    reference = nbformat.read(blessed.reference("alpha"), as_version=4)
    nbformat.validate(reference)
    assert [cell.source for cell in reference.cells] == blessed.chapter("alpha").code_cells()
    assert [cell.id for cell in reference.cells] == [f"alpha-{i:03d}" for i in range(6)]
    assert [cell.execution_count for cell in reference.cells] == [1, 2, 3, 4, 5, 6]
    assert reference.metadata == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    texts = [[o.get("text") or dict(o.data) for o in cell.outputs] for cell in reference.cells]
    assert texts[1] == ["seed 0: 102 [1, 2] None (3, 4) False\n"]
    assert texts[2] == [{"text/plain": "Claims of alpha, profile quick\nC1  reproduced\nC2  reproduced"}]
    assert texts[3] == [" 1 quick\n"]  # ICML24_DATA is empty for the kernel; stderr is gone
    assert texts[4] == []  # told to ignore its output
    assert texts[5] == [{"text/plain": "plain"}, {"text/plain": "<object at <address>>"}]
    assert reference.cells[5].outputs[1].execution_count == 6
    assert [list(cell.metadata.get("tags", [])) for cell in reference.cells] == [[]] * 4 + [
        ["nbval-ignore-output"],
        [],
    ]


def test_blessing_again_gives_the_same_bytes_and_prose_does_not_matter(blessed):
    path = blessed.reference("alpha")
    before, stamp = path.read_bytes(), path.stat().st_mtime_ns
    toybook.edit(blessed, "book/one/alpha.md", "Sums of squares grow", "A sum of squares grows")
    toybook.edit(blessed, "book/one/alpha.md", "hide-input", "hide-output")
    bless.bless(blessed, "alpha")
    assert path.read_bytes() == before
    assert path.stat().st_mtime_ns == stamp
    reference = nbformat.read(path, as_version=4)
    assert bless.differences(blessed.chapter("alpha"), reference) == []


def test_differences_name_chapter_and_cell(blessed):
    reference = nbformat.read(blessed.reference("alpha"), as_version=4)
    toybook.edit(blessed, "book/one/alpha.md", "scale * total", "2 * scale * total")
    toybook.edit(blessed, "book/one/alpha.md", "[nbval-ignore-output, hide-input]", "[hide-input]")
    assert bless.differences(blessed.chapter("alpha"), reference) == [
        "code cell 1 of alpha differs from its reference: from icml24 import ledger",
        "code cell 4 of alpha has the tags [] for nbval, its reference ['nbval-ignore-output']",
    ]
    toybook.append(blessed, "book/one/alpha.md", toybook.code_cell("1 + 1"))
    assert bless.differences(blessed.chapter("alpha"), reference) == [
        "the reference of alpha has 6 code cells, its chapter 7"
    ]


def test_a_failing_chapter_leaves_the_old_reference(book):
    path = bless.bless(book, "alpha")
    before = path.read_bytes()
    toybook.append(book, "book/one/alpha.md", toybook.code_cell("missing_name"))
    with pytest.raises(
        ChapterFailed, match=r"alpha cannot be blessed: cell \[4\] missing_name failed with NameError"
    ):
        bless.bless(book, "alpha")
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["alpha.ipynb"]


def test_an_unknown_chapter(book):
    with pytest.raises(UnknownChapter, match="did you mean alpha"):
        bless.bless(book, "alhpa")


def code(source, *outputs, count=1, tags=()):
    metadata = {"tags": list(tags)} if tags else {}
    return nbformat.v4.new_code_cell(source, outputs=list(outputs), execution_count=count, metadata=metadata)


PRINTED = nbformat.v4.new_output("stream", name="stdout", text="1\n")
FIGURE = nbformat.v4.new_output("display_data", data={"text/plain": "<Figure size 700x400 with 1 Axes>"})
BLANK = nbformat.v4.new_output("stream", name="stdout", text="\n")


def test_only_cells_whose_text_nbval_compares_are_counted():
    """Held against nbval's own reading of tags and comments."""
    from nbval.plugin import find_comment_markers, find_metadata_tags

    cells = [
        code("a", PRINTED),
        code("b", PRINTED, count=None),
        code("c"),
        code("d", FIGURE),
        code("e", FIGURE, PRINTED),
        code("f", PRINTED, tags=["nbval-ignore-output"]),
        code("g", PRINTED, tags=["nbval-skip"]),
        code("# NBVAL_IGNORE_OUTPUT\nh", PRINTED),
        code("i  # NBVAL_IGNORE_OUTPUT", PRINTED),  # not at the start of its line: no marker
        code("j", BLANK),
        nbformat.v4.new_markdown_cell("text"),
        code("k", PRINTED, tags=["hide-input"]),
    ]
    compared = bless.compared_cells(nbformat.v4.new_notebook(cells=cells))
    assert compared == [0, 4, 8, 10]
    ours = [cell for cell in cells if cell.cell_type == "code"]
    for index, cell in enumerate(ours):
        options = (
            {"check": True}
            | dict(find_metadata_tags(cell.metadata))
            | dict(find_comment_markers(cell.source))
        )
        if index in compared:
            assert options == {"check": True}, cell.source
        elif cell.source[-1] in "fgh":
            assert options.get("skip") or not options["check"], cell.source
