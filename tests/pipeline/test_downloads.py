from __future__ import annotations

import json

import nbformat
import stored
import toybook

from icml24.pipeline import downloads


def files(book, slug="alpha"):
    path = stored.store(book, slug, lambda source: [stored.stream("hello\n")])
    notebook = nbformat.read(path, as_version=4)
    chapter = book.chapter(slug)
    return downloads.chapter_files(book, chapter, notebook, chapter.notebook())


def test_three_files_with_the_chapters_code(book):
    made = files(book)
    assert list(made) == list(downloads.links("alpha").values())
    executed, clean = (nbformat.reads(data.decode(), as_version=4) for data in list(made.values())[:2])
    for notebook in (executed, clean):
        nbformat.validate(notebook)
        code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
        assert code == book.chapter("alpha").code_cells()
    assert all(cell.outputs for cell in executed.cells if cell.cell_type == "code")
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in clean.cells)
    assert clean.metadata["kernelspec"]["name"] == "python3"
    assert made["downloads/alpha/alpha.md"] == book.chapter("alpha").source.read_bytes()


def test_notebooks_open_with_how_to_install(book):
    for data in list(files(book).values())[:2]:
        opening = "".join(json.loads(data)["cells"][0]["source"])
        assert "`toybook`" in opening
        assert "pip install" in opening


def test_a_public_address_is_offered_when_there_is_one(book):
    toybook.append(book, "pyproject.toml", '\n[project.urls]\nRepository = "https://example.org/toy"\n')
    opening = downloads.opening_text(book, book.chapter("alpha"))
    assert '%pip install "toybook @ git+https://example.org/toy"' in opening


def test_formulas_become_displayed_mathematics(book):
    toybook.edit(
        book,
        "book/two/beta.md",
        "As in",
        "```{math}\n:label: eq-beta-pair\na &= b \\\\\nc &= d\n```\n\nAs in",
    )
    clean = nbformat.reads(files(book, "beta")["downloads/beta/beta-clean.ipynb"].decode(), as_version=4)
    text = "\n".join(cell.source for cell in clean.cells if cell.cell_type == "markdown")
    assert "{math}" not in text
    assert "$$\n\\bar x = \\frac{1}{n} \\sum_{i} x_i \\tag{eq-beta-mean}\n$$" in text
    assert "\\begin{aligned}\na &= b \\\\\nc &= d\n\\end{aligned} \\tag{eq-beta-pair}" in text


def test_macros_of_the_site_are_defined(book):
    config = "sphinx: {config: {mathjax3_config: {tex: {macros: {E: '\\mathbb{E}', norm: ['|#1|', 1]}}}}}\n"
    toybook.append(book, "_config.yml", config)
    opening = downloads.opening_text(book, book.chapter("alpha"))
    assert "\\def\\E{\\mathbb{E}}\n\\def\\norm#1{|#1|}" in opening
