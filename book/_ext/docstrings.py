"""Docstrings as pages: a norm ``|x|`` stays a norm, and a label ``eq-…`` becomes a link to the equation.

reStructuredText reads ``|x|`` as a substitution. Docstrings are written to be read with ``help`` too,
so the pages adapt and not the docstrings. Code and formulas are left as they are.
Staging writes the labels that exist into ``equations.json`` beside this book's configuration.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

# Literals, roles and single back-quoted words; then bare labels.
CODE = re.compile(r"(``.+?``|(?::[\w:]+:)?`[^`]+`)")
LABEL = re.compile(r"(?<![\w`:-])eq-[\w-]*\w")


def adapt(lines, labels):
    """Rewrite the lines of one docstring.

    Parameters
    ----------
    lines : list of str
        As autodoc gives them: unindented, without tabs.
    labels : set of str
        Equations that can be linked to.
    """
    block = None  # indentation of the directive or paragraph whose indented text is verbatim
    out = []
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if block is not None and line.strip() and indent <= block:
            block = None
        if block is None and re.match(r"\s*\.\. (math|code-block|code|only|raw)::|.*(?<!\.\.)::\s*$", line):
            block = indent
            out.append(line)
        elif block is not None or line.lstrip().startswith(">>>"):
            out.append(line)
        else:
            out.append(_prose(line, labels))
    return out


def _prose(line, labels):
    parts = CODE.split(line)
    for index, part in enumerate(parts):
        if index % 2:
            name = part.strip("`")
            if part.startswith("`") and name in labels:
                parts[index] = f":eq:`{name}`"
        else:
            part = LABEL.sub(lambda m: f":eq:`{m.group()}`" if m.group() in labels else m.group(), part)
            parts[index] = re.sub(r"(?<!\\)\|", r"\\|", part)
    return "".join(parts)


def known_labels(app):
    """Labels of the staged book, read once a build."""
    if not hasattr(app, "equation_labels"):
        path = Path(app.srcdir) / "equations.json"
        app.equation_labels = set(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else set()
    return app.equation_labels


def process(app, what, name, obj, options, lines):
    """Adapt a docstring before napoleon reads its sections."""
    lines[:] = adapt(lines, known_labels(app))


def setup(app):
    """Go before napoleon (priority 500)."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", process, priority=400)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
