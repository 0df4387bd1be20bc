r"""The ledger of claims: what a paper says, what was measured here, and a computed verdict.

A chapter measures, then calls `report` once. The table goes to the page as HTML, to the
notebook's outputs as JSON (`rows_in` reads it back), and to regression tests as plain text
that holds verdicts and reasons only: raw figures differ between machines, verdicts must not.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from math import isfinite, isnan
from numbers import Real
from pathlib import Path
from typing import Any

from icml24 import datasets
from icml24._claims import PROFILES, Claim, Test, parse

__all__ = [
    "MIME",
    "VERDICTS",
    "Claim",
    "Ledger",
    "Measured",
    "Test",
    "Untestable",
    "load_claims",
    "read_claims",
    "render_html",
    "report",
    "rows_in",
]

#: Every verdict, from best to worst; the last is no verdict on the claim.
VERDICTS = ("reproduced", "direction only", "not reproduced", "not testable here")

#: MIME type under which a notebook stores the rows.
MIME = "application/vnd.icml24.ledger+json"
#: Longest list of figures, in characters, that stands in its column of the table.
LONG_TEXT = 110


@dataclass(frozen=True)
class Untestable:
    """In place of a value: the claim cannot be tested in this run, and why.

    The reason is printed as plain text that regression tests compare: keep figures out of it.
    """

    reason: str

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str) or not self.reason.strip():
            raise ValueError("Untestable needs a reason in words, such as Untestable('no GPU here')")


@dataclass(frozen=True)
class Measured:
    """A measured value with what the table should show of it.

    Parameters
    ----------
    value : float, bool or mapping of name to those
        What the claim's test compares.
    low, high : float, optional
        Ends of an interval around a single number; both or neither.
    text : str, optional
        Shown in the table instead of the formatted value.
    """

    value: Any
    low: float | None = None
    high: float | None = None
    text: str | None = None


class Ledger:
    """The rows of one chapter's report; already displayed by the time a caller holds it."""

    def __init__(self, slug: str, profile: str, rows: Iterable[Mapping[str, Any]]) -> None:
        self.slug = slug
        self.profile = profile
        self.rows = [dict(row) for row in rows]

    @property
    def verdicts(self) -> dict[str, str]:
        """Verdict by claim id."""
        return {row["id"]: row["verdict"] for row in self.rows}

    def mimebundle(self) -> dict[str, Any]:
        """Return the three forms of the ledger, by MIME type."""
        data = {"slug": self.slug, "profile": self.profile, "rows": self.rows}
        return {"text/plain": repr(self), "text/html": render_html(self.rows), MIME: data}

    def __repr__(self) -> str:
        width = max((len(row["id"]) for row in self.rows), default=0)
        lines = [f"Claims of {self.slug}, profile {self.profile}"]
        for row in self.rows:
            reason = f": {row['reason']}" if row["reason"] else ""
            lines.append(f"{row['id']:<{width}}  {row['verdict']}{reason}")
        return "\n".join(lines)

    def _ipython_display_(self) -> None:
        """Nothing: `report` has shown the table, also when its result ends a cell."""


def report(
    slug: str,
    measured: Mapping[str, Any],
    *,
    profile: str = "quick",
    package: str | None = None,
) -> Ledger:
    r"""Compare a chapter's measurements with its claims, show the table, return the ledger.

    Parameters
    ----------
    slug : str
        The chapter; its claims are in ``papers/<slug>/claims.toml`` of the package.
    measured : mapping of claim id to value
        A value is a finite number, a truth value, a mapping of name to those (for tests with
        `of`), `Measured` (interval or own text), or `Untestable`.
    profile : {"quick", "full"}
        The profile that was run. A claim of profile "full" reads "not testable here" in a
        quick run, whatever was measured, and may be left out of `measured` there.
    package : str, optional
        Package that holds the papers; default ``$ICML24_PACKAGE``, then ``icml24``.

    Returns
    -------
    Ledger
        With `verdicts`. It displays nothing more when it ends a cell.

    Raises
    ------
    ValueError
        Unknown or missing claim ids, NaN or infinite values, entries that a test needs and
        the mapping lacks, an unknown profile.
    TypeError
        A value of another kind, or a truth value where the test compares numbers.

    Notes
    -----
    A claim bound to a data set (`dataset` in ``claims.toml``) reads "not testable here"
    while that data set is absent, with the command that fetches it; whatever was measured
    on a stand-in is not shown against the paper's figure.
    """
    if profile not in PROFILES:
        raise ValueError(f"profile {profile!r} is unknown; expected one of {list(PROFILES)}")
    claims = load_claims(slug, package)
    blocked = {claim.id: reason for claim in claims if (reason := _blocked(claim, profile))}
    _check_ids(slug, claims, measured, optional=set(blocked))
    rows = [_row(claim, measured.get(claim.id), blocked.get(claim.id)) for claim in claims]
    ledger = Ledger(slug, profile, rows)
    _show(ledger)
    return ledger


def load_claims(slug: str, package: str | None = None) -> tuple[Claim, ...]:
    """Return the claims of a paper from ``papers/<slug>/claims.toml`` of an importable package."""
    package = package or os.environ.get("ICML24_PACKAGE") or "icml24"
    return parse(files(package) / "papers" / slug / "claims.toml")


def read_claims(path: Path) -> tuple[Claim, ...]:
    """Return the claims of the file at `path`, imported package or not."""
    return parse(path)


def rows_in(notebook: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every ledger row stored in an executed notebook's outputs, in order."""
    return [
        dict(row)
        for cell in notebook["cells"]
        for output in cell.get("outputs", ())
        for row in output.get("data", {}).get(MIME, {}).get("rows", ())
    ]


def render_html(
    rows: Iterable[Mapping[str, Any]], recorded_rows: Iterable[Mapping[str, Any]] | None = None
) -> str:
    r"""Return the table claim · paper · here · verdict, everything escaped.

    Parameters
    ----------
    rows : iterable of mapping
        As stored by `report`.
    recorded_rows : iterable of mapping, optional
        Rows of the recorded full run: they add a column, matched by claim id.
    """
    recorded = None if recorded_rows is None else {row["id"]: row for row in recorded_rows}
    heads = ["Claim", "Paper", "Here", "Verdict"] + ([] if recorded is None else ["Full run"])
    out = [
        '<div class="table-scroll ledger-scroll" role="region" tabindex="0" aria-label="Ledger of claims">',
        '<table class="ledger"><thead><tr>',
        *(f'<th scope="col">{head}</th>' for head in heads),
        "</tr></thead><tbody>",
    ]
    for row in rows:
        out.append(
            f'<tr class="claim"><th scope="row"><strong>{escape(row["id"])}</strong> {escape(row["statement"])}</th>'
            f"<td>{escape(row['paper_value'])}<br><small>{escape(row['source'])}</small></td>"
            f"<td>{_figures(row)}</td>"
            f"<td>{_verdict_html(row)}</td>"
        )
        full = None if recorded is None else recorded.get(row["id"])
        if recorded is not None:
            cell = "not recorded" if full is None else f"{_figures(full)}<br>{_verdict_html(full)}"
            out.append(f"<td>{cell}</td>")
        # How it was measured takes the whole width below, so that the figures keep theirs;
        # a long list of figures goes there as well, or its column would be all the page is tall.
        detail = [row["metric"], f"test: {row['test']}", f"scale: {row['scale']}"]
        detail += [
            f"{where}: {held['text']}"
            for where, held in (("here", row), ("full run", full))
            if held is not None and len(held["text"]) > LONG_TEXT
        ]
        out.append(
            f'</tr><tr class="detail"><td colspan="{len(heads)}"><small>{escape("; ".join(detail))}</small></td></tr>'
        )
    out.append("</tbody></table></div>")
    return "".join(out)


def _figures(row: Mapping[str, Any]) -> str:
    return escape(row["text"]) if len(row["text"]) <= LONG_TEXT else "listed below"


def _verdict_html(row: Mapping[str, Any]) -> str:
    verdict = row["verdict"]
    reason = f"<br><small>{escape(row['reason'])}</small>" if row["reason"] else ""
    return f'<span class="verdict verdict-{verdict.replace(" ", "-")}">{escape(verdict)}</span>{reason}'


def _blocked(claim: Claim, profile: str) -> str:
    if claim.profile == "full" and profile != "full":
        return "tested in the full profile only"
    if claim.dataset and not datasets.available(claim.dataset):
        name, _, file = claim.dataset.partition("/")
        return f"needs the data set {claim.dataset}: {datasets.how_to_get(name, file or None)}"
    return ""


def _check_ids(slug: str, claims: Iterable[Claim], measured: Mapping[str, Any], optional: set[str]) -> None:
    known = [claim.id for claim in claims]
    faults = []
    if unknown := [name for name in measured if name not in known]:
        faults.append(f"unknown claim ids {unknown}")
    if missing := [name for name in known if name not in measured and name not in optional]:
        faults.append(f"no value for {missing}")
    if faults:
        raise ValueError(
            f"report({slug!r}): {' and '.join(faults)}; claims.toml has {known}. "
            "Give every claim a value, or Untestable(reason)"
        )


def _row(claim: Claim, given: Any, reason: str | None) -> dict[str, Any]:
    wrapped = given if isinstance(given, Measured) else Measured(given)
    if not reason and isinstance(wrapped.value, Untestable):
        reason = wrapped.value.reason
    row: dict[str, Any] = {
        "id": claim.id,
        "statement": claim.statement,
        "paper_value": claim.paper_value,
        "source": claim.source,
        "metric": claim.metric,
        "test": claim.test,
        "scale": claim.scale,
    }
    if reason:
        nothing = {"measured": None, "text": "–", "low": None, "high": None}
        return row | nothing | {"verdict": "not testable here", "reason": reason, "failed": []}
    value = _plain(claim.id, wrapped.value)
    low, high = _interval(claim.id, value, wrapped)
    failed = [str(test) for test in claim.tests if not _holds(claim.id, test, value)]
    if not failed:
        verdict, reason = "reproduced", ""
    elif claim.direction and all(_holds(claim.id, test, value) for test in claim.direction):
        verdict, reason = "direction only", "only the weaker test holds"
    else:
        verdict, reason = "not reproduced", ""
    text = wrapped.text if wrapped.text is not None else _text(value, low, high)
    shown = {"measured": value, "text": text, "low": low, "high": high}
    return row | shown | {"verdict": verdict, "reason": reason, "failed": failed}


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        if not value:
            raise ValueError(f"claim {name}: the mapping of measured values is empty")
        return {str(key): _number(f"{name}[{key!r}]", entry) for key, entry in value.items()}
    return _number(name, value)


def _number(name: str, value: Any) -> float | bool:
    if not isinstance(value, Real) and callable(getattr(value, "item", None)):
        try:
            value = value.item()  # a NumPy or torch scalar
        except (RuntimeError, ValueError):
            raise TypeError(
                f"claim {name}: expected one number, got {type(value).__name__} of several"
            ) from None
    if isinstance(value, bool):
        return value
    if not isinstance(value, Real):
        raise TypeError(
            f"claim {name}: expected a number, a truth value, a mapping of those, Measured or Untestable, "
            f"got {type(value).__name__}"
        )
    number = float(value)
    if not isfinite(number):
        what = "NaN" if isnan(number) else "infinite"
        raise ValueError(
            f"claim {name}: the measured value is {what}; give a finite figure or Untestable(reason)"
        )
    return number


def _interval(name: str, value: Any, wrapped: Measured) -> tuple[float | None, float | None]:
    if wrapped.low is None and wrapped.high is None:
        return None, None
    if wrapped.low is None or wrapped.high is None or isinstance(value, dict | bool):
        raise ValueError(f"claim {name}: an interval needs both low and high, and one number between them")
    low, high = _number(f"{name} low", wrapped.low), _number(f"{name} high", wrapped.high)
    if not low <= high:
        raise ValueError(f"claim {name}: the interval has low = {low:g} above high = {high:g}")
    return low, high


def _holds(name: str, test: Test, value: Any) -> bool:
    if not isinstance(value, dict):
        if test.of is not None:
            raise ValueError(f"claim {name}: the test needs a mapping with {test.of!r}, got one value")
        return _compare(name, test, value)
    if test.of is None:
        raise ValueError(f"claim {name}: got a mapping, but the test in claims.toml names no entry (`of`)")
    if test.of == "*":
        return all([_compare(name, test, entry) for entry in value.values()])
    if test.of not in value:
        raise ValueError(f"claim {name}: no measured entry {test.of!r}; got {list(value)}")
    return _compare(name, test, value[test.of])


def _compare(name: str, test: Test, value: float | bool) -> bool:
    if isinstance(value, bool) != (test.operator == "is_true"):
        kind = "a truth value (is_true)" if test.operator == "is_true" else "a number"
        raise TypeError(f"claim {name}: the test '{test}' needs {kind}, got {value!r}")
    return test.holds(value)


def _text(value: Any, low: float | None, high: float | None) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(entry, None, None)}" for key, entry in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = f"{value:.4g}"
    return text if low is None or high is None else f"{text} [{low:.4g}, {high:.4g}]"


def _show(ledger: Ledger) -> None:
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:
        print(ledger)
        return
    if get_ipython() is None:
        print(ledger)
    else:
        display(ledger.mimebundle(), raw=True)
