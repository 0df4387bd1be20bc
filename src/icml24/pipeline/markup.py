"""Small pieces of HTML and Markdown that staging writes into pages, everything escaped."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["escape_markdown", "href", "list_table", "one_block", "slugify", "verdict_class"]


def href(docname: str, target: str) -> str:
    """Relative address of `target` (a path from the site's root) seen from the page `docname`.

    Examples
    --------
    >>> href("book/learning/self_play", "downloads/self_play/self_play.md")
    '../../downloads/self_play/self_play.md'
    """
    return escape(posixpath.relpath(target, posixpath.dirname(docname) or "."), quote=True)


def one_block(lines: Iterable[str]) -> str:
    """Join HTML so that Markdown reads one block: a blank line would end it."""
    return "\n".join(line for part in lines for line in part.splitlines() if line.strip()) + "\n"


def escape_markdown(text: str) -> str:
    r"""Text shown as it is, but for code between backticks, which stays code, and addresses, which are linked.

    Examples
    --------
    >>> escape_markdown("a_b * `c_d` $x$")
    'a\\_b \\* `c_d` \\$x\\$'
    """
    parts = re.split(r"(``.+?``|`[^`]+`|https?://[^\s<>()]+[\w/])", " ".join(text.split()))
    return "".join(
        re.sub(r"([\\*_{}\[\]<>$|#~`@])", r"\\\1", part) if index % 2 == 0 else _code_or_link(part)
        for index, part in enumerate(parts)
    )


def _code_or_link(part: str) -> str:
    return f"`{part.strip('`')}`" if part.startswith("`") else f"<{part}>"


def list_table(head: Sequence[str], rows: Iterable[Sequence[str]], widths: str = "auto") -> str:
    """Write a MyST ``list-table``; cells are Markdown of one paragraph."""
    lines = ["```{list-table}", ":header-rows: 1", f":widths: {widths}", ""]
    for row in [head, *rows]:
        lines += [f"{'* -' if index == 0 else '  -'} {cell}" for index, cell in enumerate(row)]
    return "\n".join([*lines, "```", ""])


def slugify(text: str) -> str:
    """Lower-case words joined by hyphens, for ids and class names."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def verdict_class(verdict: str) -> str:
    """Class of a verdict's badge: ``not testable here`` becomes ``not-testable-here``."""
    return slugify(verdict)
