from __future__ import annotations

import json
import os
import shutil

import nbformat
import pytest
import stored
import toybook
import yaml

from icml24.pipeline import records_view, stage
from icml24.pipeline.book import Book
from icml24.pipeline.errors import BookError, StaleBook, UnknownProfile


def outputs(source):
    if "ledger.report" in source:
        return [stored.ledger_output("alpha", [stored.row("C1")])]
    return [stored.picture()] if "total" in source else []


@pytest.fixture
def executed(book):
    for chapter in book.chapters:
        stored.store(book, chapter.slug, outputs)
    return book


def held(folder):
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def test_everything_is_laid_out(executed):
    stage.stage(executed)
    assert held(executed.stage) == {
        "_config.yml", "_toc.yml", "downloads.json", "equations.json", "book/index.md",
        "book/one/alpha.ipynb", "book/two/beta.ipynb",
        *(
            f"book/_generated/{name}.md"
            for name in ("scoreboard", "gallery", "equations", "errata", "datasets", "benchmarks")
        ),
        *(f"extra/downloads/{s}/{s}{end}" for s in ("alpha", "beta") for end in (".ipynb", "-clean.ipynb", ".md")),
        "extra/figures/alpha.png",
    }  # fmt: skip
    menu = json.loads((executed.stage / "downloads.json").read_text())
    for docname, files in menu.items():
        assert (executed.stage / f"{docname}.ipynb").is_file()
        assert all((executed.stage / "extra" / path).is_file() for _, path in files)
    assert (
        'href="one/alpha.html#ledger-alpha"' in (executed.stage / "book/_generated/scoreboard.md").read_text()
    )


def test_staging_again_touches_nothing(executed):
    stage.stage(executed)
    for path in executed.stage.rglob("*"):
        os.utime(path, ns=(10**18, 10**18))
    assert stage.stage(Book.load(executed.root)) == stage.Changes((), ())
    assert all(p.stat().st_mtime_ns == 10**18 for p in executed.stage.rglob("*") if p.is_file())


def test_an_edit_of_prose_changes_that_page_only(executed):
    stage.stage(executed)
    toybook.edit(executed, "book/index.md", "Two chapters.", "Two good chapters.")
    assert stage.stage(executed).written == ("book/index.md",)


def test_prose_of_a_chapter_comes_from_its_source(executed):
    """The key ignores prose, so an executed notebook may be older than the text: the text must be today's."""
    stage.stage(executed)
    toybook.edit(
        executed, "book/one/alpha.md", "Sums of squares grow like a cube.", "Sums of squares grow fast."
    )
    changes = stage.stage(executed)
    assert "book/one/alpha.ipynb" in changes.written
    assert "grow fast" in (executed.stage / "book/one/alpha.ipynb").read_text()
    taken_home = nbformat.read(executed.stage / "extra/downloads/alpha/alpha.ipynb", as_version=4)
    assert "grow fast" in "".join(cell.source for cell in taken_home.cells)
    assert any(cell.get("outputs") for cell in taken_home.cells)


def test_text_of_today_keeps_outputs_and_injected_parameters(executed):
    chapter = executed.chapter("alpha")
    run = nbformat.read(executed.executed("quick", "alpha"), as_version=4)
    where = next(i for i, cell in enumerate(run.cells) if "parameters" in cell.metadata.get("tags", []))
    run.cells.insert(
        where + 1, nbformat.v4.new_code_cell("seed = 3", metadata={"tags": ["injected-parameters"]})
    )
    toybook.edit(executed, "book/one/alpha.md", "# Alpha rays", "# Gamma rays")
    today = stage.with_text_of_today(chapter.notebook(), run)
    assert "# Gamma rays" in today.cells[0].source
    code = [(cell.source, cell.outputs) for cell in today.cells if cell.cell_type == "code"]
    assert code == [(cell.source, cell.outputs) for cell in run.cells if cell.cell_type == "code"]
    assert today.metadata["icml24"]["slug"] == "alpha"


def test_outputs_are_never_put_under_other_code(executed):
    run = nbformat.read(executed.executed("quick", "alpha"), as_version=4)
    toybook.edit(executed, "book/one/alpha.md", "{scale * total:.17g}", "{2 * total:.17g}")
    toybook.edit(executed, "book/one/alpha.md", "# Alpha rays", "# Gamma rays")
    assert stage.with_text_of_today(executed.chapter("alpha").notebook(), run) == run


def test_a_chapter_taken_out_is_gone(executed):
    stage.stage(executed)
    toybook.edit(executed, "_toc.yml", "chapters: [{file: book/two/beta}]", "chapters: []")
    smaller = Book.load(executed.root)
    changes = stage.stage(smaller)
    assert {name for name in changes.removed if "beta" in name} == {
        "book/two/beta.ipynb", *(f"extra/downloads/beta/beta{end}" for end in (".ipynb", "-clean.ipynb", ".md"))
    }  # fmt: skip
    assert "beta" not in (smaller.stage / "_toc.yml").read_text()


def test_pages_material_and_nothing_else_is_copied(executed):
    for name in (
        "book/one/plot.svg",
        "book/references.bib",
        "book/records/alpha.json.tmp",
        "book/unlisted.md",
    ):
        (executed.root / name).parent.mkdir(exist_ok=True)
        (executed.root / name).write_text("x")
    (executed.root / "book/_ext/__pycache__").mkdir(parents=True)
    (executed.root / "book/_ext/__pycache__/a.pyc").write_bytes(b"x")
    (executed.root / "book/_ext/a.py").write_text("")
    stage.stage(executed)
    found = held(executed.stage)
    assert {"book/one/plot.svg", "book/references.bib", "book/_ext/a.py"} <= found
    assert not [name for name in found if "pycache" in name or "records" in name or "unlisted" in name]


def test_api_pages_hang_below_their_page(executed):
    toc = yaml.safe_load((executed.root / "_toc.yml").read_text())
    toc["parts"].append({"caption": "Appendix", "chapters": [{"file": "book/appendix/api"}]})
    (executed.root / "_toc.yml").write_text(yaml.safe_dump(toc))
    (executed.root / "book/appendix").mkdir()
    (executed.root / "book/appendix/api.md").write_text("# API\n")
    stage.stage(Book.load(executed.root))
    names = [f"book/appendix/api/{name}" for name in ("alpha", "beta", "common")]
    staged = yaml.safe_load((executed.stage / "_toc.yml").read_text())
    assert staged["parts"][-1]["chapters"][0]["sections"] == [{"file": name} for name in names]
    assert set(names) == {
        n.removesuffix(".md") for n in held(executed.stage) if n.startswith("book/appendix/api/")
    }


def test_every_chapter_that_is_not_whole_is_named(executed):
    """One changed, one never run with this profile, one failed: three reasons, nothing staged."""
    toybook.edit(executed, "src/toybook/papers/alpha/core.py", "sum(", "0 + sum(")
    executed.executed("quick", "beta").unlink()
    with pytest.raises(StaleBook) as caught:
        stage.stage(executed)
    message = str(caught.value)
    assert "alpha: its code, parameters, data or libraries changed" in message
    assert "beta: it has not been run with profile quick" in message
    assert "icml24 run" in message
    assert "--allow-stale" in message
    assert not executed.stage.exists()


def test_a_failed_chapter_is_not_published(executed):
    stage.stage(executed)
    before = held(executed.stage)
    toybook.edit(executed, "src/toybook/papers/alpha/core.py", "sum(", "0 + sum(")
    failed = executed.executed("quick", "alpha").with_name("alpha.failed.ipynb")
    notebook = nbformat.v4.new_notebook(
        metadata={"icml24": {"status": "failed", "error": "cell 3: ValueError: no_x"}}
    )
    nbformat.write(notebook, failed)
    with pytest.raises(StaleBook, match=r"alpha: its last run failed \(cell 3: ValueError: no_x\)"):
        stage.stage(executed)
    assert held(executed.stage) == before


def test_an_old_failure_does_not_hold_back_a_fresh_chapter(executed):
    path = executed.executed("quick", "alpha")
    shutil.copy(path, path.with_name("alpha.failed.ipynb"))
    stage.stage(executed)


def test_allow_stale_shows_the_last_good_run_marked(executed):
    toybook.edit(executed, "src/toybook/papers/alpha/core.py", "sum(", "0 + sum(")
    stage.stage(executed, allow_stale=True)
    pages = {
        s: nbformat.read(executed.stage / f"book/{s}.ipynb", as_version=4) for s in ("one/alpha", "two/beta")
    }
    warned = {name: [c.source for c in page.cells if "{warning}" in c.source] for name, page in pages.items()}
    assert warned["two/beta"] == []
    assert "not up to date" in warned["one/alpha"][0]
    assert "of 2026-11-30" in warned["one/alpha"][0]


def test_allow_stale_cannot_show_what_never_ran(executed):
    executed.executed("quick", "beta").unlink()
    with pytest.raises(StaleBook, match="no good run to show"):
        stage.stage(executed, allow_stale=True)


def test_profiles_are_apart(executed):
    with pytest.raises(StaleBook, match="has not been run with profile full"):
        stage.stage(executed, profile="full")
    with pytest.raises(UnknownProfile):
        stage.stage(executed, profile="fast")


def test_a_broken_record_is_named(executed):
    path = executed.record("alpha")
    path.parent.mkdir()
    path.write_text('{"rows": [{"id": "C1"}]}')
    with pytest.raises(BookError, match=r"book/records/alpha\.json is not the record"):
        stage.stage(executed)
    path.write_text(json.dumps({"rows": [stored.row("C1")], "provenance": {"seed": 1}, "data": {"x": "ab"}}))
    stage.stage(executed)
    record = records_view.load(executed, "alpha")
    assert (record.rows[0]["id"], record.provenance, record.data) == ("C1", {"seed": 1}, {"x": "ab"})


@pytest.mark.parametrize(
    ("break_it", "match"),
    [
        (lambda book: (book.root / "_config.yml").unlink(), "_config.yml is missing"),
        (lambda book: toybook.edit(book, "_toc.yml", "root: book/index", "title: x"), "names no root page"),
        (
            lambda book: book.executed("quick", "alpha").write_text("{"),
            "out of date|not up to date|not a notebook",
        ),
    ],
)
def test_what_is_missing_is_named(executed, break_it, match):
    break_it(executed)
    with pytest.raises(BookError, match=match):
        stage.stage(executed)
