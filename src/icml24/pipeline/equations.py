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
    """One test function that carries the mark.

    `says` is its docstring's first line, or its name in words; `asserts` tells whether it can
    fail on what it computed: by an assertion of its own or of a helper in the same file, by
    ``pytest.raises``, or by a function with "assert" or "check" in its name.
    """

    label: str
    name: str
    says: str
    path: Path
    line: int
    asserts: bool = True


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
    helpers = _asserting_helpers(tree)
    found = []
    for function, inherited in _functions(tree.body, _module_labels(tree)):
        for label in dict.fromkeys([*inherited, *_labels(function.decorator_list)]):
            asserts = _asserts(function, helpers)
            found.append(EquationTest(label, function.name, _says(function), path, function.lineno, asserts))
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


def _asserting_helpers(tree: ast.Module) -> set[str]:
    """Names of the file's functions that assert something, other helpers' assertions included."""
    functions = [node for node in ast.walk(tree) if isinstance(node, _Function)]
    names: set[str] = set()
    while found := {f.name for f in functions if f.name not in names and _asserts(f, names)}:
        names |= found
    return names


def _asserts(function: _Function, helpers: set[str]) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            if name in helpers or name == "raises" or "assert" in name or "check" in name:
                return True
    return False


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
