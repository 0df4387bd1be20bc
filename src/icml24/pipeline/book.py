"""The book as its table of contents tells it: which chapters there are, and where each thing lives."""

from __future__ import annotations

import copy
import functools
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import yaml

from icml24.pipeline.errors import BookError, UnknownChapter, UnknownProfile, nearest

__all__ = ["KERNELSPEC", "PROFILES", "Book", "Chapter", "check_profile"]

PROFILES = ("quick", "full")
KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}


@dataclass(frozen=True)
class Chapter:
    """One paper's chapter: a Jupytext (md:myst) notebook listed in ``_toc.yml``.

    Attributes
    ----------
    slug : str
        Its one name, the stem of `source`.
    part, part_title : str
        Folder below ``book/``, and the caption of its part in ``_toc.yml``.
    source : Path
        The ``.md`` file.
    docname : str
        As in ``_toc.yml``, without suffix: ``book/learning/private_hpo``.
    """

    slug: str
    part: str
    part_title: str
    source: Path
    docname: str

    @property
    def title(self) -> str:
        """First heading of the text, or the slug when there is none."""
        return _first_heading(self.source.read_text(encoding="utf-8")) or self.slug

    def notebook(self) -> nbformat.NotebookNode:
        """Read the source as a notebook (v4.5) whose ids do not change from read to read.

        Raises
        ------
        BookError
            The text is not valid md:myst.
        """
        try:
            notebook = copy.deepcopy(_read_myst(self.source.read_text(encoding="utf-8")))
        except Exception as error:
            raise BookError(
                f"{self.source} is not a notebook that Jupytext can read: {error}. "
                "Expected md:myst with a jupytext and kernelspec front matter."
            ) from error
        notebook.nbformat, notebook.nbformat_minor = 4, 5
        for index, cell in enumerate(notebook.cells):
            cell["id"] = f"{self.slug[:60]}-{index:03d}"
        notebook.metadata["kernelspec"] = dict(KERNELSPEC)
        return notebook

    def code_cells(self) -> list[str]:
        """Source of each code cell, in order."""
        return [cell.source for cell in self.notebook().cells if cell.cell_type == "code"]


@dataclass(frozen=True)
class Book:
    """A folder with ``_toc.yml``, the chapters it lists, and the paths of what is made from them."""

    root: Path
    package: str
    title: str
    chapters: tuple[Chapter, ...]

    @classmethod
    def load(cls, root: Path | None = None) -> Book:
        """Read the book at `root`, or the one around the current folder.

        Parameters
        ----------
        root : Path, optional
            Folder holding ``_toc.yml``; without it, the nearest one at or above the
            current folder.

        Raises
        ------
        BookError
            No ``_toc.yml``; one that is not valid; a listed file that is not there; two
            chapters with the same slug.
        """
        root = _find_root() if root is None else Path(root).resolve()
        toc, config = _read_yaml(root / "_toc.yml"), root / "_config.yml"
        settings = _read_yaml(config) if config.is_file() else {}
        chapters: dict[str, Chapter] = {}
        for name, part_title in _entries(toc):
            chapter = _chapter(root, name, part_title)
            if chapter is None:
                continue
            if chapter.slug in chapters:
                raise BookError(
                    f"_toc.yml lists two chapters named {chapter.slug}: {chapters[chapter.slug].docname} and "
                    f"{chapter.docname}. A slug names one chapter; rename one of the files."
                )
            chapters[chapter.slug] = chapter
        return cls(root, _package(root), str(settings.get("title", root.name)), tuple(chapters.values()))

    def chapter(self, slug: str) -> Chapter:
        """Chapter of this slug.

        Raises
        ------
        UnknownChapter
            There is none; the message lists the nearest names.
        """
        for chapter in self.chapters:
            if chapter.slug == slug:
                return chapter
        raise UnknownChapter(
            f"no chapter named {slug!r} in _toc.yml; {nearest(slug, (c.slug for c in self.chapters))} "
            "`icml24 list` shows them all."
        )

    @property
    def slugs(self) -> tuple[str, ...]:
        """Slugs in the order of the table of contents."""
        return tuple(chapter.slug for chapter in self.chapters)

    @property
    def build(self) -> Path:
        """Everything made by a command; may be deleted at any time."""
        return self.root / "_build"

    @property
    def stage(self) -> Path:
        """What jupyter-book is given to render."""
        return self.build / "stage"

    @property
    def html(self) -> Path:
        """The site."""
        return self.build / "html"

    @property
    def source_dir(self) -> Path:
        """Folder put first on a kernel's import path."""
        return self.root / "src"

    @property
    def package_dir(self) -> Path:
        """Folder of the package that the chapters import."""
        return self.source_dir / self.package

    def executed(self, profile: str, slug: str) -> Path:
        """Executed notebook of a chapter and profile."""
        return self.build / "executed" / check_profile(profile) / f"{slug}.ipynb"

    def record(self, slug: str) -> Path:
        """Committed results of the last full run."""
        return self.root / "book" / "records" / f"{slug}.json"

    def reference(self, slug: str) -> Path:
        """Committed reference notebook that nbval compares with."""
        return self.root / "tests" / "notebooks" / f"{slug}.ipynb"


def check_profile(profile: str) -> str:
    """Return `profile`, or raise `UnknownProfile` when it is neither ``quick`` nor ``full``."""
    if profile not in PROFILES:
        raise UnknownProfile(f"no profile named {profile!r}; expected {' or '.join(PROFILES)}.")
    return profile


@functools.lru_cache(maxsize=64)
def _read_myst(text: str) -> nbformat.NotebookNode:
    """Notebook of a text; one command asks for the same chapter several times."""
    import jupytext

    return jupytext.reads(text, fmt="md:myst")


def _find_root() -> Path:
    here = Path.cwd().resolve()
    for folder in (here, *here.parents):
        if (folder / "_toc.yml").is_file():
            return folder
    raise BookError(
        f"no book here: neither {here} nor a folder above it holds _toc.yml. Run inside the book."
    )


def _read_yaml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise BookError(f"{path} is missing; a book has its table of contents there.")
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise BookError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(value, dict):
        raise BookError(f"{path} holds {type(value).__name__}; expected a mapping of keys.")
    return value


def _package(root: Path) -> str:
    path = root / "pyproject.toml"
    if not path.is_file():
        return "icml24"
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise BookError(f"{path} is not valid TOML: {error}") from error
    return str(settings.get("tool", {}).get("icml24", {}).get("package", "icml24"))


def _entries(toc: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (file, caption of its part) for every file below the root page, in order."""
    groups = [(toc, "")] + [(part, str(part.get("caption", ""))) for part in toc.get("parts") or []]
    for group, caption in groups:
        pending = list(group.get("chapters") or group.get("sections") or [])
        while pending:
            entry = pending.pop(0)
            if "file" in entry:
                yield str(entry["file"]), caption
            pending[:0] = entry.get("sections") or []


def _chapter(root: Path, name: str, part_title: str) -> Chapter | None:
    """Chapter behind an entry of the table of contents; None for a page without code."""
    source = root / (name if name.endswith(".md") else f"{name}.md")
    docname = name.removesuffix(".md")
    if not source.is_file():
        if any((root / f"{docname}{suffix}").is_file() for suffix in ("", ".rst", ".ipynb")):
            return None
        if _is_generated(docname):
            return None
        raise BookError(f"_toc.yml lists {name}, but {source} is not there. Write it, or take the line out.")
    front = _front_matter(source.read_text(encoding="utf-8"))
    if not ("jupytext" in front or "kernelspec" in front):
        return None
    folder = source.parent.name if source.parent != root / "book" else ""
    return Chapter(source.stem, folder, part_title, source, docname)


def _is_generated(docname: str) -> bool:
    """Whether staging writes this page (the appendix), so that no source needs to exist."""
    return docname.startswith("book/appendix/")


def _front_matter(text: str) -> dict[str, Any]:
    match = re.match(r"---\s*\n(.*?)\n---\s*\n", text, flags=re.DOTALL)
    if match is None:
        return {}
    try:
        value = yaml.safe_load(match.group(1))
    except yaml.YAMLError:
        return {}
    return value if isinstance(value, dict) else {}


def _first_heading(text: str) -> str | None:
    body = re.sub(r"\A---\s*\n.*?\n---\s*\n", "", text, flags=re.DOTALL)
    fence = ""
    for line in body.splitlines():
        mark = re.match(r"\s*(`{3,}|~{3,}|:{3,})", line)
        if mark and not fence:
            fence = mark.group(1)
        elif fence and line.strip().startswith(fence):
            fence = ""
        elif not fence and (heading := re.match(r"#\s+(.+?)\s*#*\s*$", line)):
            return heading.group(1)
    return None
