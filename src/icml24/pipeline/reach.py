"""Which modules of the book's own package a piece of code reaches by import, found without running it.

Every ``import`` counts, also those inside functions; blocks under ``if TYPE_CHECKING``
do not, for they never run. A string that is exactly a module's dotted name counts as
an import of it (``importlib.import_module``, tables of lazily loaded names).
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Reach", "reach"]


@dataclass(frozen=True)
class Reach:
    """What some code cells reach.

    Attributes
    ----------
    modules : dict of str to Path
        Dotted name and source of each module of the given packages, parents included.
    foreign : frozenset of str
        Top-level names imported from elsewhere (``numpy``, ``torch``, …).
    """

    modules: Mapping[str, Path]
    foreign: frozenset[str]


def reach(cells: Iterable[str], packages: Mapping[str, Path]) -> Reach:
    """Follow the imports of code cells through the given packages.

    Parameters
    ----------
    cells : iterable of str
        Sources of a notebook's code cells; IPython magics and shell lines are skipped.
    packages : mapping of str to Path
        Name and folder of each package to look into.
    """
    found: dict[str, Path] = {}
    foreign: set[str] = set()
    tops = frozenset(packages)
    pending: list[str] = []
    for cell in cells:
        pending += _imports(_parse(_without_magics(cell)), "", False, tops)
    while pending:
        name = pending.pop()
        top = name.split(".")[0]
        if top not in packages:
            foreign.add(top)
            continue
        if name.endswith(".*"):  # a star may bring any submodule
            pending += _submodules(name[:-2], packages[top])
            continue
        for module in _with_parents(name):
            path = _locate(module, packages[top])
            if path is None or module in found:
                continue
            found[module] = path
            pending += _module_imports(module, path, path.stat().st_mtime_ns, tops)
    return Reach(dict(sorted(found.items())), frozenset(foreign))


def _locate(module: str, folder: Path) -> Path | None:
    """Source of a module below the folder of its top-level package."""
    base = folder.joinpath(*module.split(".")[1:])
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if path.is_file() and (path.name != "__init__.py" or base.is_dir()):
            return path
    return None


def _with_parents(module: str) -> Iterator[str]:
    parts = module.split(".")
    return (".".join(parts[: i + 1]) for i in range(len(parts)))


def _submodules(package: str, folder: Path) -> list[str]:
    base = folder.joinpath(*package.split(".")[1:])
    if not base.is_dir():
        return []
    return [f"{package}.{path.stem}" for path in base.iterdir() if path.suffix == ".py" or path.is_dir()]


@functools.lru_cache(maxsize=4096)
def _module_imports(module: str, path: Path, mtime: int, tops: frozenset[str]) -> tuple[str, ...]:
    """Names that a module imports; `mtime` makes an edited file a new question."""
    del mtime
    return tuple(_imports(_parse(path.read_text(encoding="utf-8")), module, path.name == "__init__.py", tops))


def _imports(tree: ast.AST, module: str, is_package: bool, tops: frozenset[str]) -> Iterator[str]:
    """Yield each dotted name that `tree` imports; names that turn out to be no modules do no harm."""
    for node in _running(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, module, is_package)
            if base:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value
            if name.split(".")[0] in tops and re.fullmatch(r"\w+(\.\w+)+", name):
                yield name


def _running(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk a tree without the blocks that only a type checker sees."""
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            pending += node.orelse
        else:
            pending += ast.iter_child_nodes(node)


def _absolute(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """Dotted name that a ``from … import`` starts at, relative levels resolved."""
    if not node.level:
        return node.module or ""
    parts = module.split(".") if module else []
    up = node.level - 1 if is_package else node.level
    parts = parts[: len(parts) - up] if up <= len(parts) else []
    return ".".join([*parts, node.module] if node.module else parts)


def _parse(source: str) -> ast.AST:
    """Syntax tree; when the whole does not parse, of the lines that look like imports."""
    try:
        return ast.parse(source)
    except SyntaxError:
        lines = re.findall(r"^\s*((?:from\s+[\w.]+\s+)?import\s+[\w., ]+)$", source, flags=re.MULTILINE)
        try:
            return ast.parse("\n".join(lines))
        except SyntaxError:
            return ast.Module(body=[], type_ignores=[])


def _without_magics(cell: str) -> str:
    """Blank the lines that IPython alone understands; their indentation stays valid Python."""
    return re.sub(r"^(\s*)(?:%|!|\?).*$", r"\1pass", cell, flags=re.MULTILINE)
