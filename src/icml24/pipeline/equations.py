"""Labelled equations of the chapters, and the tests that say they check them.

Both sides are read from the sources, nothing is imported or run: labels from the pages'
text, marks ``@pytest.mark.equation("eq-…")`` from the syntax trees of the tests.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from icml24.pipeline.book import Book

__all__ = ["EquationTest", "labels_in", "tests_by_label", "tests_in"]

# ```{math} with its option, or $$ … $$ (label), at the start of a line. Indented ones count too.
_LABEL = re.compile(r"^\s*:label:\s*(eq-[\w-]+)\s*$|\$\$\s*\((eq-[\w-]+)\)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class EquationTest:
    """One test function that carries the mark: `says` is its docstring's first line, or its name in words."""

    label: str
    name: str
    says: str
    path: Path
    line: int


def labels_in(text: str) -> list[str]:
    """Equation labels (``eq-…``) of a page's text, in order; a label given twice is listed twice.

    Examples
    --------
    >>> labels_in("$$ x = 1 $$ (eq-toy-unit)")
    ['eq-toy-unit']
    """
    return [first or second for first, second in _LABEL.findall(text)]


def tests_in(path: Path) -> list[EquationTest]:
    """Return the marked tests of one file, in order; a mark may stand at a function, its class, or the module.

    Raises
    ------
    SyntaxError
        The file is not Python.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    found = []
    for function, inherited in _functions(tree.body, _module_labels(tree)):
        for label in dict.fromkeys([*inherited, *_labels(function.decorator_list)]):
            found.append(EquationTest(label, function.name, _says(function), path, function.lineno))
    return found


def tests_by_label(book: Book) -> dict[str, list[EquationTest]]:
    """Return every marked test of the book's ``tests/`` folder, by label, in the order of files and lines."""
    found: dict[str, list[EquationTest]] = {}
    for path in sorted((book.root / "tests").rglob("test_*.py")):
        for test in tests_in(path):
            found.setdefault(test.label, []).append(test)
    return found


_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _functions(body: list[ast.stmt], inherited: list[str]) -> Iterator[tuple[_Function, list[str]]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(node.body, [*inherited, *_labels(node.decorator_list)])
        elif isinstance(node, _Function) and node.name.startswith("test"):
            yield node, inherited


def _module_labels(tree: ast.Module) -> list[str]:
    labels = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets
        ):
            values = node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
            labels += _labels(values)
    return labels


def _labels(decorators: list[ast.expr]) -> list[str]:
    """Labels given to ``pytest.mark.equation(…)`` among the decorators."""
    return [
        argument.value
        for call in decorators
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("pytest.mark.equation", "mark.equation")
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


def _says(function: _Function) -> str:
    doc = ast.get_docstring(function)
    if doc:
        return " ".join(doc.split("\n\n")[0].split())
    return function.name.removeprefix("test_").replace("_", " ")
