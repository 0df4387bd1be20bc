"""A chapter's source read line by line: its blocks, headings, labels and prose, each with a line number.

This is a reader of MyST's outline, not of all of Markdown: fences (backticks, tildes, colons)
open blocks, blocks nest, and everything a rule of `check` asks about can be told from that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import nbformat
import yaml

from icml24.pipeline.book import Book, Chapter

__all__ = ["Block", "Heading", "Page", "Problem", "relative"]

#: Blocks whose content is not prose; a plain fence has the empty name.
_NO_PROSE = frozenset(
    {"", "code-cell", "code", "code-block", "math", "literalinclude", "raw", "eval-rst", "mermaid"}
    | {"bibliography", "contents", "tableofcontents", "image"}
)

_FENCE = re.compile(r"^(\s*)(`{3,}|~{3,}|:{3,})\s*(?:\{([^}]+)\}|(\S*))\s*(.*?)\s*$")
_OPTION = re.compile(r"^\s*:([\w-]+):\s*(.*?)\s*$")


@dataclass(frozen=True)
class Problem:
    """Something `check` found: where it is, what is wrong, what to do about it."""

    where: str
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}. {self.fix}"


@dataclass
class Block:
    """A fenced block: ``name`` is the directive's (empty for plain code), ``line`` that of its fence."""

    name: str
    argument: str
    line: int
    inside: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    body: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Heading:
    """A heading: `level` 1 to 6, its text, and the ``(label)=`` right above it, if any."""

    level: int
    text: str
    line: int
    label: str | None


@dataclass(frozen=True)
class Page:
    """A chapter together with what its source says."""

    book: Book
    chapter: Chapter
    text: str

    @classmethod
    def read(cls, book: Book, chapter: Chapter) -> Page:
        """Read the source of a chapter."""
        return cls(book, chapter, chapter.source.read_text(encoding="utf-8"))

    @property
    def slug(self) -> str:
        """Slug of the chapter."""
        return self.chapter.slug

    def where(self, line: int | None = None) -> str:
        """Path from the book's root, with the line when there is one."""
        name = relative(self.chapter.source, self.book.root)
        return name if line is None else f"{name}:{line}"

    def line_of(self, text: str) -> int | None:
        """Line on which `text` first stands."""
        position = self.text.find(text)
        return None if position < 0 else self.text.count("\n", 0, position) + 1

    @cached_property
    def notebook(self) -> nbformat.NotebookNode:
        """The chapter as a notebook."""
        return self.chapter.notebook()

    @cached_property
    def code(self) -> list[tuple[nbformat.NotebookNode, int]]:
        """Code cells with the line of their fence."""
        cells = [cell for cell in self.notebook.cells if cell.cell_type == "code"]
        lines = [block.line for block in self.blocks if block.name == "code-cell"]
        return list(zip(cells, lines + [0] * (len(cells) - len(lines)), strict=False))

    @cached_property
    def blocks(self) -> list[Block]:
        """Every block, in the order of the lines that open them."""
        return self._outline[0]

    @cached_property
    def prose(self) -> list[tuple[int, str]]:
        """Lines of running text with their numbers: no code, mathematics, options, headings or labels."""
        return [
            (number, line)
            for number, line in self._outline[1]
            if not re.match(r"\s*(#{1,6}\s|\([\w.-]+\)=\s*$|%|<!--)", line)
        ]

    @cached_property
    def headings(self) -> list[Heading]:
        """Headings, in order."""
        found, label = [], None
        for number, line in self._outline[1]:
            if match := re.match(r"(#{1,6})\s+(.+?)\s*#*\s*$", line):
                found.append(Heading(len(match[1]), match[2], number, label))
            if line.strip():
                target = re.match(r"\(([\w.-]+)\)=\s*$", line.strip())
                label = target[1] if target else None
        return found

    @cached_property
    def words(self) -> int:
        """Number of words of the prose; a formula or a role counts as one."""
        text = "\n".join(line for _, line in self.prose)
        text = re.sub(r"\$\$.*?\$\$(?:\s*\([\w-]+\))?", " ", text, flags=re.DOTALL)
        text = re.sub(r"\$[^$]+\$", " x ", text)
        text = re.sub(r"\{[\w:.-]+\}`[^`]*`", " x ", text)
        return sum(bool(re.search(r"\w", word)) for word in text.split())

    @cached_property
    def _outline(self) -> tuple[list[Block], list[tuple[int, str]]]:
        """Blocks, and the numbered lines outside code and mathematics (headings and labels among them)."""
        blocks: list[Block] = []
        stack: list[tuple[str, Block]] = []
        prose: list[tuple[int, str]] = []
        for number, line in self._body():
            match = _FENCE.match(line)
            verbatim = stack and stack[-1][1].name in _NO_PROSE
            if match and stack and _closes(match, stack[-1][0]):
                _close(stack.pop()[1])
                continue
            if match and not verbatim:
                block = Block((match[3] or "").strip(), match[5], number, tuple(b.name for _, b in stack))
                blocks.append(block)
                for _, outer in stack:
                    outer.body.append(line)
                stack.append((match[2], block))
                continue
            for _, outer in stack:
                outer.body.append(line)
            if not any(block.name in _NO_PROSE for _, block in stack) and not (stack and _OPTION.match(line)):
                prose.append((number, line))
        for _, block in stack:
            _close(block)
        return blocks, prose

    def _body(self) -> Iterator[tuple[int, str]]:
        """Numbered lines behind the front matter."""
        lines = self.text.splitlines()
        start = 0
        if lines and lines[0].strip() == "---":
            start = next((i + 1 for i, line in enumerate(lines[1:], 1) if line.strip() == "---"), 0)
        return ((number, line) for number, line in enumerate(lines[start:], start + 1))


def relative(path: Path, root: Path) -> str:
    """Path from the book's root, for messages."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def _closes(match: re.Match[str], fence: str) -> bool:
    bare = not (match[3] or match[4] or match[5])
    return bare and match[2][0] == fence[0] and len(match[2]) >= len(fence)


def _close(block: Block) -> None:
    """Move a directive's options (``:key: value`` lines, or YAML between dashes) out of its body."""
    lines = block.body
    if lines and lines[0].strip() == "---":
        end = next((i for i, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
        if end is not None:
            try:
                options = yaml.safe_load("\n".join(lines[1:end]))
            except yaml.YAMLError:
                options = None
            block.options = options if isinstance(options, dict) else {}
            block.body = lines[end + 1 :]
        return
    count = 0
    for line in lines:
        match = _OPTION.match(line)
        if not match:
            break
        block.options[match[1]] = match[2]
        count += 1
    block.body = lines[count:]
