"""The references themselves: current, really compared, and sharp enough to see one changed digit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from icml24.pipeline.bless import compared_cells, differences
from icml24.pipeline.book import Book

HERE = Path(__file__).parent
ROOT = next(folder for folder in HERE.parents if (folder / "_toc.yml").is_file())
BOOK = Book.load(ROOT)
AT_LEAST = 5


@pytest.mark.parametrize("slug", BOOK.slugs)
def test_each_chapter_has_a_reference_with_its_code(slug):
    path = BOOK.reference(slug)
    assert path.is_file(), f"{slug} has no reference notebook; run `icml24 bless {slug}`"
    found = differences(BOOK.chapter(slug), nbformat.read(path, as_version=4))
    assert not found, f"run `icml24 bless {slug}`: " + "; ".join(found)


@pytest.mark.parametrize("slug", BOOK.slugs)
def test_enough_cells_of_each_reference_are_compared(slug):
    if not BOOK.reference(slug).is_file():
        pytest.fail(f"{slug} has no reference notebook; run `icml24 bless {slug}`")
    reference = nbformat.read(BOOK.reference(slug), as_version=4)
    assert len(compared_cells(reference)) >= AT_LEAST, (
        f"nbval compares only cells {compared_cells(reference)} of {slug}; expected at least {AT_LEAST} cells "
        "that print something which must not drift"
    )


def test_no_reference_is_left_over():
    stray = {path.stem for path in HERE.glob("*.ipynb")} - set(BOOK.slugs)
    assert not stray, f"references without a chapter in _toc.yml: {sorted(stray)}"


@pytest.mark.parametrize("slug", BOOK.slugs)
def test_a_reference_holds_text_and_nothing_else(slug):
    text = BOOK.reference(slug).read_text(encoding="utf-8")
    reference = nbformat.reads(text, as_version=4)
    nbformat.validate(reference)
    assert set(reference.metadata) == {"kernelspec", "language_info"}
    for index, cell in enumerate(reference.cells):
        assert cell.cell_type == "code"
        assert cell.id == f"{slug[:60]}-{index:03d}"
        for output in cell.outputs:
            assert output.output_type in ("stream", "display_data", "execute_result")
            assert output.get("name", "stdout") == "stdout"
            assert set(output.get("data", {})) <= {"text/plain"}
    assert str(ROOT) not in text
    assert str(Path.home()) not in text


CELLS = [
    ("profile: str = 'quick'  # quick or full", ()),
    ("print('ratio 1.25, rounded')", ()),
    ("{'n': 215, 'usable': 209}", ()),
    ("from IPython.display import HTML, display; display(HTML('<b>7</b>'))", ()),
    ("import random; print(random.random())", ("nbval-ignore-output",)),
    ("import sys; print('a warning', file=sys.stderr); print(f'{2 / 3:.3f}')", ()),
    ("object()", ()),
]


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """Reference that `reference_of` keeps of the cells above, run once by nbclient."""
    from nbclient import NotebookClient

    from icml24.pipeline.bless import _patterns, reference_of

    cells = [nbformat.v4.new_code_cell(source, metadata={"tags": list(tags)}) for source, tags in CELLS]
    executed = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(executed, kernel_name="python3", timeout=60).execute()
    return reference_of(executed, "toy", _patterns(HERE / "sanitize.cfg"))


def copy_of(notebook):
    return nbformat.reads(nbformat.writes(notebook), as_version=4)


def uncounted(notebook):
    """As a reference would be had its execution counts been stripped: the trap that `bless` avoids."""
    changed = copy_of(notebook)
    changed.cells[1].execution_count = None
    changed.cells[1].outputs = []
    return changed


DIGITS = {1: ("1.25", "1.26"), 2: ("209", "208"), 5: ("0.667", "0.668")}
ENVIRONMENT = """\
import os
print([os.environ[n] for n in ('OMP_NUM_THREADS', 'MKL_NUM_THREADS', 'OPENBLAS_NUM_THREADS')])
print(repr(os.environ['ICML24_DATA']), os.environ['PYTHONHASHSEED'])
from icml24 import datasets; print(datasets.found(['nanomorphology']))"""


@pytest.fixture(scope="module")
def compared(toy, tmp_path_factory):
    """What nbval says of four notebooks, with the same conftest and sanitizing file in a book of their own."""
    root = tmp_path_factory.mktemp("toy")
    folder = root / "tests" / "notebooks"
    folder.mkdir(parents=True)
    (root / "_toc.yml").write_text("format: jb-book\nroot: index\n")
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '-ra'\n")
    for name in ("conftest.py", "sanitize.cfg"):
        shutil.copy(HERE / name, folder / name)
    digits = copy_of(toy)
    for cell, (old, new) in DIGITS.items():
        output = digits.cells[cell].outputs[0]
        holder, key = (output, "text") if "text" in output else (output.data, "text/plain")
        assert old in holder[key]
        holder[key] = holder[key].replace(old, new)
    seen = "['1', '1', '1']\n'' 0\n{}\n"
    stream = nbformat.v4.new_output("stream", name="stdout", text=seen)
    environment = nbformat.v4.new_code_cell(ENVIRONMENT, execution_count=1, outputs=[stream])
    notebooks = {
        "same": toy,
        "digits": digits,
        "uncounted": uncounted(toy),
        "environment": nbformat.v4.new_notebook(cells=[environment], metadata=toy.metadata),
    }
    for name, notebook in notebooks.items():
        nbformat.write(notebook, folder / f"{name}.ipynb")
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "--color=no", "--nbval"]
    command += ["--nbval-current-env", "--nbval-sanitize-with", str(folder / "sanitize.cfg"), str(folder)]
    env = os.environ | {"ICML24_DATA": str(root), "OMP_NUM_THREADS": "2"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, env=env, timeout=300)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def cells_that(word, name, output):
    """Numbers of the cells of a notebook with this outcome, from the summary's ``PASSED ….ipynb::Cell 3``."""
    return [int(n) for n in re.findall(rf"^{word} \S*/{name}\.ipynb::Cell (\d+)", output, re.MULTILINE)]


def test_an_unchanged_reference_passes(toy, compared):
    assert compared_cells(toy) == [1, 2, 3, 5, 6]
    assert cells_that("PASSED", "same", compared) == list(range(len(CELLS))), compared


def test_one_changed_digit_fails_and_names_chapter_and_cell(compared):
    assert cells_that("FAILED", "digits", compared) == list(DIGITS), compared  # these cells, and no others
    for old, new in DIGITS.values():  # both texts are shown
        assert old in compared
        assert new in compared


def test_a_cell_without_its_count_is_not_counted_as_compared(toy, compared):
    """nbval runs such a cell and compares nothing, so `compared_cells` must leave it out."""
    assert compared_cells(uncounted(toy)) == [2, 3, 5, 6]
    assert cells_that("PASSED", "uncounted", compared) == list(range(len(CELLS))), compared


def test_kernels_of_nbval_see_one_thread_and_no_data(compared):
    assert cells_that("PASSED", "environment", compared) == [0], compared
