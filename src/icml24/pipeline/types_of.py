"""Types as annotations write them, and whether a value or a command-line word has that type.

Understood are ``int``, ``float``, ``str``, ``bool``, ``None``, ``list[...]``,
``tuple[...]``, ``dict``, ``Literal[...]``, ``Optional[...]``, ``Union[...]`` and ``|``.
Any other annotation accepts every plain value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

__all__ = ["Mismatch", "from_text", "from_value", "name_of", "split"]

_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")
_SCALARS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a string"}
_SEQUENCES = {"list": list, "tuple": tuple, "Sequence": list, "List": list, "Tuple": tuple}


class Mismatch(ValueError):
    """The value does not have the type; the message says what was expected."""


def from_value(annotation: str, value: Any) -> Any:
    """Return `value` in the annotated type (an int becomes a float, a list a tuple), or raise `Mismatch`."""
    return _match(_parse(annotation), value)


def from_text(annotation: str, text: str) -> Any:
    """Read a command line's word as a value of the annotated type, or raise `Mismatch`.

    Examples
    --------
    >>> from_text("float", "1")
    1.0
    >>> from_text("list[int]", "1,2")
    [1, 2]
    >>> from_text("int | None", "none") is None
    True
    """
    return _read(_parse(annotation), text.strip())


def name_of(value: Any) -> str:
    """Annotation that describes a default written without one."""
    return "Any" if value is None else type(value).__name__


def split(text: str) -> list[str]:
    """Split at the commas outside brackets and quotes; surrounding blanks go."""
    parts, depth, quote = [""], 0, ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "[({":
            depth += 1
        elif char in "])}":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append("")
            continue
        parts[-1] += char
    parts = [part.strip() for part in parts]
    return parts[:-1] if len(parts) > 1 and not parts[-1] else parts


def _parse(annotation: str) -> ast.expr:
    node = ast.parse(annotation, mode="eval").body
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _parse(node.value)
    return node


def _head(node: ast.expr) -> str:
    """Name of a type without module and arguments: ``typing.Optional[int]`` is ``Optional``."""
    if isinstance(node, ast.Subscript):
        return _head(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Constant) and node.value is None:
        return "None"
    return node.id if isinstance(node, ast.Name) else "Any"


def _arguments(node: ast.expr) -> list[ast.expr]:
    if not isinstance(node, ast.Subscript):
        return []
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


def _alternatives(node: ast.expr) -> list[ast.expr]:
    """Members of a union, or the type itself."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _alternatives(node.left) + _alternatives(node.right)
    if _head(node) == "Optional":
        return [*_alternatives(_arguments(node)[0]), ast.Constant(None)]
    if _head(node) == "Union":
        return [member for part in _arguments(node) for member in _alternatives(part)]
    return [node]


def _expected(node: ast.expr) -> str:
    members = _alternatives(node)
    if len(members) > 1:
        return " or ".join(_expected(member) for member in members)
    head, arguments = _head(node), _arguments(node)
    if head == "Literal":
        return "one of " + ", ".join(ast.unparse(a) for a in arguments)
    if head in _SEQUENCES:
        inside = " of " + ", ".join(ast.unparse(a) for a in arguments) if arguments else ""
        return f"a {_SEQUENCES[head].__name__}{inside}"
    if head == "dict":
        return "a dict"
    return _SCALARS.get(head, head)


def _match(node: ast.expr, value: Any) -> Any:
    members = _alternatives(node)
    if len(members) > 1:
        for member in sorted(members, key=lambda m: _head(m) == "float"):  # 1 stays an int in int | float
            try:
                return _match(member, value)
            except Mismatch:
                continue
        raise Mismatch(_expected(node))
    head = _head(node)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if head in _SEQUENCES and isinstance(value, (list, tuple)):
        return _match_sequence(node, list(value))
    if head == "float" and number:
        return float(value)
    accepted = {
        "int": isinstance(value, int) and number,
        "bool": isinstance(value, bool),
        "str": isinstance(value, str),
        "None": value is None,
        "dict": isinstance(value, dict),
        "Literal": any(ast.literal_eval(a) == value for a in _arguments(node)),
    }
    known = head in accepted or head == "float" or head in _SEQUENCES
    if accepted.get(head, not known):
        return value
    raise Mismatch(_expected(node))


def _match_sequence(node: ast.expr, items: list[Any]) -> Any:
    return _each(node, items, _match)


def _each(node: ast.expr, items: list[Any], convert: Callable[[ast.expr, Any], Any]) -> Any:
    """Convert each item of a list or tuple; a wrong one is named by its place."""
    converted = []
    for place, (inner, item) in enumerate(zip(_inner(node, len(items)), items, strict=True), start=1):
        try:
            converted.append(convert(inner, item))
        except Mismatch as error:
            raise Mismatch(f"{_expected(node)} (item {place} is {item!r}, not {error})") from None
    return _SEQUENCES[_head(node)](converted)


def _inner(node: ast.expr, length: int) -> list[ast.expr]:
    """Type of each of `length` members of a list or tuple."""
    arguments = [a for a in _arguments(node) if not (isinstance(a, ast.Constant) and a.value is ...)]
    if not arguments:
        return [ast.Name("Any")] * length
    fixed = _SEQUENCES[_head(node)] is tuple and len(arguments) == len(_arguments(node))
    if not fixed:
        return [arguments[0]] * length
    if len(arguments) != length:
        raise Mismatch(f"{_expected(node)} ({len(arguments)} values, not {length})")
    return arguments


def _read(node: ast.expr, text: str) -> Any:
    members = _alternatives(node)
    if len(members) > 1:
        for member in sorted(members, key=lambda m: (_head(m) == "str", _head(m) == "float")):
            try:
                return _read(member, text)
            except Mismatch:
                continue
        raise Mismatch(_expected(node))
    head = _head(node)
    if head == "None" and text.lower() in ("none", "null"):
        return None
    if head == "bool" and text.lower() in (*_TRUE, *_FALSE):
        return text.lower() in _TRUE
    if head == "int" and re.fullmatch(r"[+-]?\d+(_\d+)*", text):
        return int(text)
    if head == "float":
        try:
            return float(text)
        except ValueError:
            raise Mismatch(_expected(node)) from None
    if head == "str":
        return text
    if head in _SEQUENCES:
        return _each(node, _items(text), _read)
    value = _literal(text)
    if head == "Literal":
        value = text if any(ast.literal_eval(a) == text for a in _arguments(node)) else value
    return _match(node, value)


def _items(text: str) -> list[str]:
    if len(split(text)) == 1 and text[:1] in ("[", "(") and text[-1:] in ("]", ")"):
        text = text[1:-1].strip()
    unquoted = (re.sub(r"\A(['\"])(.*)\1\Z", r"\2", part) for part in split(text))
    return list(unquoted) if text else []


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
