"""A chapter's parameter cell: which names there are, of which type, and what a run gives them.

The cell tagged ``parameters`` holds annotated assignments, ``steps: int = 200  # help``.
Their annotations are the only declaration; values are held against them before any
kernel starts, for Papermill itself would inject anything under any name.
"""

from __future__ import annotations

import ast
import io
import json
import tokenize
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from icml24.pipeline import types_of
from icml24.pipeline.book import Chapter, check_profile
from icml24.pipeline.errors import BadParameter, BookError, UnknownParameter, nearest
from icml24.pipeline.files import sha256_bytes

__all__ = [
    "Parameter",
    "check",
    "declared",
    "effective",
    "injected",
    "overrides_hash",
    "parse",
    "plain",
    "split_values",
]

TAG = "parameters"


@dataclass(frozen=True)
class Parameter:
    """One line of a parameter cell.

    Attributes
    ----------
    name : str
    type : str
        The annotation as written; without one, the type of the default.
    default : object
        The default's value, or its source text when it is not a literal.
    help : str
        Comment at the end of the line.
    """

    name: str
    type: str
    default: Any
    help: str = ""


def declared(chapter: Chapter) -> dict[str, Parameter]:
    """Parameters of a chapter, in the order of its parameter cell.

    Raises
    ------
    BookError
        The chapter has no cell tagged ``parameters``, more than one, or one that is not Python.
    """
    cells = [
        cell.source
        for cell in chapter.notebook().cells
        if cell.cell_type == "code" and TAG in cell.metadata.get("tags", [])
    ]
    if len(cells) != 1:
        raise BookError(
            f"chapter {chapter.slug} has {len(cells)} code cells tagged {TAG!r}; expected exactly one "
            f"(in {chapter.source})."
        )
    try:
        return {p.name: p for p in _read_cell(cells[0])}
    except (SyntaxError, tokenize.TokenError) as error:
        raise BookError(f"the parameter cell of chapter {chapter.slug} is not Python: {error}") from error


def parse(chapter: Chapter, pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Values of a command line's ``NAME VALUE`` pairs, read by the declared types.

    Raises
    ------
    UnknownParameter, BadParameter
        As `check`; all that is wrong is in one message.
    """
    known = declared(chapter)
    values: dict[str, Any] = {}
    wrong: list[BookError] = []
    for name, text in pairs:
        try:
            parameter = _known(chapter, known, name)
            values[name] = types_of.from_text(parameter.type, text)
        except types_of.Mismatch as error:
            wrong.append(_bad(chapter, known[name], text, error))
        except BookError as error:
            wrong.append(error)
    _raise_together(wrong)
    return check(chapter, values)


def check(chapter: Chapter, values: Mapping[str, Any]) -> dict[str, Any]:
    """Hold Python values against the parameter cell and return them as plain Python.

    A value that equals the declared default is left out: nothing needs to be injected
    for it, and the run is the same as the one without it.

    Parameters
    ----------
    values : mapping of str to object
        NumPy scalars and arrays, paths and tuples are turned into the plain type declared.

    Raises
    ------
    UnknownParameter
        A name that the cell does not declare; the nearest names are listed.
    BadParameter
        A value of another type (names parameter, expected type and value), or the
        name ``profile``, which has its own option.
    """
    known = declared(chapter)
    checked: dict[str, Any] = {}
    wrong: list[BookError] = []
    for name, value in values.items():
        try:
            parameter = _known(chapter, known, name)
            checked[name] = types_of.from_value(parameter.type, plain(value))
        except types_of.Mismatch as error:
            wrong.append(_bad(chapter, known[name], value, error))
        except BookError as error:
            wrong.append(error)
    _raise_together(wrong)
    return {n: v for n, v in checked.items() if _canonical(v) != _canonical(known[n].default)}


def injected(profile: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """What Papermill injects: nothing for ``quick``, the profile's name for ``full``, and the overrides."""
    base = {} if check_profile(profile) == "quick" else {"profile": profile}
    return {**base, **overrides}


def effective(chapter: Chapter, profile: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Value of every parameter of a run: defaults, then the profile, then the overrides."""
    return {name: p.default for name, p in declared(chapter).items()} | injected(profile, overrides)


def overrides_hash(overrides: Mapping[str, Any]) -> str:
    """Short name of a set of overrides, for the file that holds their run."""
    return sha256_bytes(_canonical(dict(overrides)))[:10]


def split_values(text: str) -> list[str]:
    """Split a sweep's ``V1,V2,…`` at the commas outside brackets and quotes.

    Examples
    --------
    >>> split_values("0.1,1")
    ['0.1', '1']
    >>> split_values("[1,2],[3]")
    ['[1,2]', '[3]']
    """
    return types_of.split(text)


def plain(value: Any) -> Any:
    """Turn NumPy scalars and arrays, paths and mappings into what JSON and Papermill can hold.

    Raises
    ------
    types_of.Mismatch
        A value of any other kind, a set for instance.
    """
    if type(value).__module__.split(".")[0] == "numpy" and hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, (list, tuple)):
        return type(value)(plain(item) for item in value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise types_of.Mismatch("a number, string, bool, None, list, tuple or dict")


def _read_cell(source: str) -> Iterable[Parameter]:
    comments = {
        token.start[0]: token.string.lstrip("# ").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    for node in ast.parse(source).body:
        value: ast.expr | None
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name, value, written = node.target.id, node.value, ast.unparse(node.annotation)
        elif (
            isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
        ):
            name, value, written = node.targets[0].id, node.value, ""
        else:
            continue
        if value is None:
            continue
        try:
            default = ast.literal_eval(value)
        except ValueError:
            default = ast.get_source_segment(source, value) or ast.unparse(value)
            written = written or "Any"
        help_text = comments.get(node.end_lineno or node.lineno, "")
        yield Parameter(name, written or types_of.name_of(default), default, help_text)


def _known(chapter: Chapter, known: Mapping[str, Parameter], name: str) -> Parameter:
    if name == "profile":
        raise BadParameter("the profile is chosen with --profile quick|full, not with -p profile.")
    if name not in known:
        settable = [other for other in known if other != "profile"]
        raise UnknownParameter(f"chapter {chapter.slug} has no parameter {name!r}; {nearest(name, settable)}")
    return known[name]


def _bad(chapter: Chapter, parameter: Parameter, value: Any, error: types_of.Mismatch) -> BadParameter:
    kind = "" if isinstance(value, str) else f" ({type(value).__name__})"
    hint = f" ({parameter.help})" if parameter.help else ""
    return BadParameter(
        f"parameter {parameter.name!r} of chapter {chapter.slug} is declared {parameter.type}{hint}; "
        f"got {value!r}{kind}, expected {error}."
    )


def _raise_together(wrong: list[BookError]) -> None:
    if not wrong:
        return
    if len(wrong) == 1:
        raise wrong[0]
    raise type(wrong[0])("\n".join(str(error) for error in wrong))


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
