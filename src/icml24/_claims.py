r"""Claims as written in ``claims.toml``: what a paper says, and the test this book holds it to.

Nothing here knows a measurement; `icml24.ledger` brings claims and measurements together.
A file that is not in order is refused whole, with every fault in one message.
"""

from __future__ import annotations

import operator
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["OPERATORS", "PROFILES", "Claim", "Test", "parse"]

PROFILES = ("quick", "full")

#: Every operator a test may use; ``is_true`` takes no threshold, ``between`` a pair (ends included).
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
    "==": operator.eq,
    "between": lambda value, pair: pair[0] <= value <= pair[1],
    "is_true": lambda value, _: value is True,
}

_TEXT_FIELDS = ("id", "statement", "paper_value", "source", "metric", "scale")
_FIELDS = {*_TEXT_FIELDS, "test", "direction", "profile", "dataset"}
_OPTIONAL = {"direction", "profile", "dataset"}


class _Readable(Protocol):
    def read_text(self, encoding: str = ...) -> str: ...


@dataclass(frozen=True)
class Test:
    r"""One comparison of a measured value with a threshold chosen before the run.

    Attributes
    ----------
    operator : str
        A key of `OPERATORS`.
    threshold : float, pair of float or None
        None for ``is_true`` only; a pair ``(low, high)`` for ``between`` only.
    of : str or None
        Entry of a measured mapping to compare; ``"*"`` means each entry in turn.
        None for a claim whose measured value is one number.
    """

    __test__ = False  # the name is a word of this domain, not a test for pytest to collect

    operator: str
    threshold: float | tuple[float, float] | None = None
    of: str | None = None

    def holds(self, value: float | bool) -> bool:
        """Whether the test holds for one plain number or truth value."""
        return bool(OPERATORS[self.operator](value, self.threshold))

    def __str__(self) -> str:
        if self.operator == "is_true":
            text = "is true"
        elif isinstance(self.threshold, tuple):
            text = f"between {self.threshold[0]:g} and {self.threshold[1]:g}"
        else:
            text = f"{self.operator} {self.threshold:g}"
        if self.of is None:
            return text
        return f"{'every entry' if self.of == '*' else self.of} {text}"


@dataclass(frozen=True)
class Claim:
    """One row of ``claims.toml``; `tests` and `direction` hold all their parts at once."""

    id: str
    statement: str
    paper_value: str
    source: str
    metric: str
    scale: str
    tests: tuple[Test, ...]
    direction: tuple[Test, ...] = ()
    profile: str = "quick"
    dataset: str | None = None

    @property
    def test(self) -> str:
        """The test in words, with the weaker one behind it when there is one."""
        text = " and ".join(map(str, self.tests))
        if self.direction:
            text += f" (direction only: {' and '.join(map(str, self.direction))})"
        return text


def parse(source: _Readable) -> tuple[Claim, ...]:
    r"""Read and check a ``claims.toml``.

    Parameters
    ----------
    source : Path or importlib.resources Traversable
        The file to read.

    Returns
    -------
    tuple of Claim
        In the order of the file.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ValueError
        It is no TOML, or a claim is not in order; the message lists every fault.
    """
    try:
        content = tomllib.loads(source.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(
            f"no claims at {source}; expected a file with one [[claim]] table per claim of the paper"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{source} is no valid TOML: {error}") from error
    faults = [f"unknown table {key!r}; expected [[claim]]" for key in sorted(set(content) - {"claim"})]
    entries = content.get("claim", [])
    if not isinstance(entries, list) or not entries:
        faults.append("no claims; expected one [[claim]] table per claim")
        entries = []
    claims: list[Claim] = []
    for number, entry in enumerate(entries, 1):
        name = f"claim {entry.get('id', f'number {number}')}"
        problems: list[str] = []
        claim = _claim(entry, problems)
        faults += [f"{name}: {problem}" for problem in problems]
        if claim is not None:
            if any(claim.id == other.id for other in claims):
                faults.append(f"{name}: this id is used twice")
            claims.append(claim)
    if faults:
        raise ValueError(f"{source}: " + "; ".join(faults))
    return tuple(claims)


def _claim(entry: Mapping[str, Any], faults: list[str]) -> Claim | None:
    if unknown := sorted(set(entry) - _FIELDS):
        faults.append(f"unknown fields {unknown}; a claim has {sorted(_FIELDS)}")
    if missing := sorted(_FIELDS - _OPTIONAL - set(entry)):
        faults.append(f"missing fields {missing}")
    for field in (*_TEXT_FIELDS, "dataset"):
        if field in entry and not (isinstance(entry[field], str) and entry[field].strip()):
            faults.append(f"{field} must be a text that is not empty, got {entry[field]!r}")
    profile = entry.get("profile", "quick")
    if profile not in PROFILES:
        faults.append(f"profile {profile!r} must be one of {list(PROFILES)}")
    tests = _tests("test", entry["test"], faults) if "test" in entry else ()
    direction = _tests("direction", entry["direction"], faults) if "direction" in entry else ()
    if faults:
        return None
    texts = {field: entry[field].strip() for field in _TEXT_FIELDS}
    return Claim(**texts, tests=tests, direction=direction, profile=profile, dataset=entry.get("dataset"))


def _tests(field: str, value: Any, faults: list[str]) -> tuple[Test, ...]:
    parts = value if isinstance(value, list) else [value]
    if not parts or not all(isinstance(part, dict) for part in parts):
        faults.append(
            f"{field} must be a table {{operator = …, threshold = …}} or a list of them, got {value!r}"
        )
        return ()
    tests = [test for part in parts if (test := _test(field, part, faults)) is not None]
    if len(parts) > 1 and any(test.of is None for test in tests):
        faults.append(f"{field} has several parts: each needs `of`, the name of the measured entry it tests")
    return tuple(tests)


def _test(field: str, part: Mapping[str, Any], faults: list[str]) -> Test | None:
    if unknown := sorted(set(part) - {"operator", "threshold", "of"}):
        faults.append(f"{field} has unknown keys {unknown}; expected operator, threshold, of")
    name, threshold, of = part.get("operator"), part.get("threshold"), part.get("of")
    if of is not None and not isinstance(of, str):
        faults.append(f"{field}: `of` must be the name of a measured entry, got {of!r}")
        return None
    if name not in OPERATORS:
        faults.append(f"{field} operator {name!r} must be one of {list(OPERATORS)}")
        return None
    if name == "is_true":
        if threshold is not None:
            faults.append(f"{field}: is_true takes no threshold")
            return None
        return Test("is_true", None, of)
    if name == "between":
        pair = threshold if isinstance(threshold, list) else []
        if len(pair) != 2 or not all(map(_is_number, pair)) or not pair[0] <= pair[1]:
            faults.append(f"{field}: between needs threshold = [low, high], low first, got {threshold!r}")
            return None
        return Test("between", (float(pair[0]), float(pair[1])), of)
    if not _is_number(threshold):
        faults.append(f"{field}: {name} needs a finite number as threshold, got {threshold!r}")
        return None
    return Test(name, float(threshold), of)  # type: ignore[arg-type]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")
