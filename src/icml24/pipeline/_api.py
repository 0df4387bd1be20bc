"""The public interface of a paper's package, read from its syntax trees: nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

__all__ = ["api_problems"]

Found = tuple[Path, int, str, str]

_Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def api_problems(package: Path) -> Iterator[Found]:
    """Yield (file, line, what, fix) where ``__all__`` and the documented names differ.

    ``__all__`` must be a literal list; each of its names must be bound in ``__init__`` (by a
    definition, an import, or the string keys of a table for lazy loading), functions and
    classes must have a docstring, constants a ``#:`` comment or a docstring below; and what
    ``__init__`` imports from its own modules under a public name must be in ``__all__``.
    """
    init = package / "__init__.py"
    tree = _parse(init)
    if ast.get_docstring(tree) is None:
        yield init, 1, "the package has no docstring", "Say which paper it computes."
    names, line = _all(tree)
    if names is None:
        yield init, 1, "no literal __all__", "List the public interface in __all__ = [...]."
        return
    if not names:
        yield init, line, "__all__ is empty", "List the public interface."
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        yield init, line, f"__all__ lists {repeated} twice", "List each name once."
    bound, imported = _bound(tree)
    definitions = _definitions(package)
    for name in dict.fromkeys(names):
        if name not in bound:
            yield (
                init,
                line,
                f"__all__ lists {name}, which __init__ does not bind",
                "Import it, or take it out.",
            )
            continue
        path, node = definitions.get(bound[name], (init, None))
        if isinstance(node, _Documented) and ast.get_docstring(node) is None:
            yield (
                path,
                node.lineno,
                f"public {name} has no docstring",
                "Document shapes, units, errors and source.",
            )
        elif isinstance(node, ast.Assign | ast.AnnAssign) and not _explained(path, node):
            yield (
                path,
                node.lineno,
                f"public constant {name} is not explained",
                "Put a `#:` comment above it.",
            )
    for name in sorted(imported - set(names)):
        yield (
            init,
            line,
            f"__init__ imports {name} and __all__ lacks it",
            "Add it, or do not import it there.",
        )


def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def _all(tree: ast.Module) -> tuple[list[str] | None, int]:
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if (
            isinstance(target, ast.Name)
            and target.id == "__all__"
            and isinstance(value, ast.List | ast.Tuple)
        ):
            names = [e.value for e in value.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
            return (names if len(names) == len(value.elts) else None), node.lineno
    return None, 1


def _bound(tree: ast.Module) -> tuple[dict[str, str], set[str]]:
    """Names that ``__init__`` binds with the name each was defined under, and those it imports from its own modules."""
    bound: dict[str, str] = {}
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = alias.asname or alias.name
                bound[name] = alias.name
                if (node.level or ".papers." in f"{node.module}.") and not name.startswith("_"):
                    imported.add(name)
        elif isinstance(node, ast.Dict):
            keys = [k.value for k in node.keys if isinstance(k, ast.Constant) and isinstance(k.value, str)]
            bound |= {key: key for key in keys}
    for node in tree.body:
        if isinstance(node, _Documented):
            bound[node.name] = node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            bound |= {name: name for name in _targets(node)}
    return bound, imported


def _definitions(package: Path) -> dict[str, tuple[Path, ast.stmt]]:
    """Top-level definition of each name in the package's modules; a function or class comes before a constant."""
    found: dict[str, tuple[Path, ast.stmt]] = {}
    for path in sorted(package.rglob("*.py")):
        for node in _parse(path).body:
            if isinstance(node, _Documented):
                found[node.name] = (path, node)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                for name in _targets(node):
                    found.setdefault(name, (path, node))
    return found


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [t.id for t in targets if isinstance(t, ast.Name)]


def _explained(path: Path, node: ast.stmt) -> bool:
    """Whether a constant has a ``#:`` comment above or behind it, or a string right below."""
    lines = path.read_text(encoding="utf-8").splitlines()
    end = node.end_lineno or node.lineno
    if "#:" in lines[node.lineno - 1] or (
        node.lineno > 1 and lines[node.lineno - 2].lstrip().startswith("#:")
    ):
        return True
    below = next((line.strip() for line in lines[end:] if line.strip()), "")
    return below.startswith(('"""', 'r"""', "'''"))
