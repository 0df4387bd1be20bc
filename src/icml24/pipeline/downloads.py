"""What a reader can take home from a chapter: the executed notebook, a clean one, and the source."""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Mapping
from typing import Any

import nbformat
import yaml

from icml24.pipeline.book import Book, Chapter

__all__ = ["chapter_files", "links", "opening_text"]

_LABELS = {
    "executed notebook": "{slug}.ipynb",
    "clean notebook": "{slug}-clean.ipynb",
    "source": "{slug}.md",
}


def links(slug: str) -> dict[str, str]:
    """Label of each download and its path from the site's root."""
    return {label: f"downloads/{slug}/{name.format(slug=slug)}" for label, name in _LABELS.items()}


def chapter_files(
    book: Book, chapter: Chapter, executed: nbformat.NotebookNode, source: nbformat.NotebookNode
) -> dict[str, bytes]:
    """Content of each download, by its path from the site's root.

    Parameters
    ----------
    executed : NotebookNode
        With outputs.
    source : NotebookNode
        `chapter.notebook()`; it is not changed.

    Notes
    -----
    Both notebooks open with `opening_text`; formulas, which Jupyter does not know in MyST's
    spelling, are rewritten as displayed mathematics. Code is left as it is.
    """
    text = opening_text(book, chapter)
    paths = links(chapter.slug)
    return {
        paths["executed notebook"]: _portable(chapter, executed, text),
        paths["clean notebook"]: _portable(chapter, _clean(source), text),
        paths["source"]: chapter.source.read_bytes(),
    }


def opening_text(book: Book, chapter: Chapter) -> str:
    """Markdown that says what the notebook is and how to install what it needs."""
    project = _project(book)
    name = project.get("name", book.package)
    address = project.get("urls", {}).get("Repository")
    direct = (
        f'In Colab or any other Python 3.11 or newer: `%pip install "{name} @ git+{address}"`.\n'
        if address
        else f"In any other environment: `%pip install -e <folder of the repository>` installs `{name}`.\n"
    )
    macros = _macros(book)
    return (
        f"> **Before you run this notebook**: it needs the package `{book.package}`, which comes with the book "
        f"*{book.title}*.\n> In a copy of the book's repository, `make env` creates `.venv` with every version "
        "as tested; then open this file with\n> `.venv/bin/jupyter lab` or choose `.venv` as its kernel.\n"
        f"> {direct}>\n"
        f"> The page's source is `{chapter.docname}.md`. Boxes such as theorems and exercises are written in MyST; "
        "the extension\n> `jupyterlab-myst` shows them typeset." + (f"\n\n$$\n{macros}\n$$" if macros else "")
    )


def _clean(source: nbformat.NotebookNode) -> nbformat.NotebookNode:
    notebook = copy.deepcopy(source)
    notebook.metadata.pop("jupytext", None)
    return notebook


def _portable(chapter: Chapter, notebook: nbformat.NotebookNode, text: str) -> bytes:
    copied = copy.deepcopy(notebook)
    for cell in copied.cells:
        if cell.cell_type == "markdown":
            cell.source = _plain_mathematics(cell.source)
    cell = nbformat.v4.new_markdown_cell(text)
    cell["id"] = f"{chapter.slug[:50]}-install"
    copied.cells.insert(0, cell)
    return (nbformat.writes(copied).rstrip("\n") + "\n").encode()


_MATH = re.compile(
    r"^(`{3,})\{math\}[^\n]*\n((?:[ \t]*:[\w-]+:[^\n]*\n)*)(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL
)


def _plain_mathematics(text: str) -> str:
    def rewrite(match: re.Match[str]) -> str:
        body = match.group(3).strip()
        if r"\\" in body and r"\begin{" not in body:
            body = f"\\begin{{aligned}}\n{body}\n\\end{{aligned}}"
        label = re.search(r":label:\s*(\S+)", match.group(2))
        tag = f" \\tag{{{label.group(1)}}}" if label else ""
        return f"$$\n{body}{tag}\n$$"

    return _MATH.sub(rewrite, text)


def _project(book: Book) -> Mapping[str, Any]:
    path = book.root / "pyproject.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")).get("project", {}) if path.is_file() else {}


def _macros(book: Book) -> str:
    """Return the book's TeX macros as definitions, for notebooks read outside the site."""
    path = book.root / "_config.yml"
    value: Any = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for key in ("sphinx", "config", "mathjax3_config", "tex", "macros"):
        value = value.get(key, {}) if isinstance(value, dict) else {}
    lines = []
    for name, macro in (value or {}).items():
        body, count = (macro[0], macro[1]) if isinstance(macro, list) else (macro, 0)
        lines.append(f"\\def\\{name}{''.join(f'#{i + 1}' for i in range(count))}{{{body}}}")
    return "\n".join(lines)
