"""Rules about a chapter's text: length, headings, equations, figures, exercises, links."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from icml24.pipeline import equations
from icml24.pipeline._page import Page, Problem

__all__ = ["RULES", "labels_are_whole"]

WORDS = (1500, 3500)
EQUATIONS, FIGURES, EXERCISES = 8, 3, 2

#: Second-level headings every chapter has, in this order; a heading may say more than these words.
SECTIONS = (
    "Overview",
    "Setting and notation",
    "The algorithm",
    "Checks on small cases",
    "Experiments",
    "Ledger of claims",
    "What differs from the paper",
    "Exercises",
    "References",
)


def right_length(page: Page) -> Iterator[Problem]:
    """Between 1,500 and 3,500 words of prose."""
    low, high = WORDS
    if not low <= page.words <= high:
        fix = (
            "Say more where a reader would stop" if page.words < low else "Cut what a reader could do without"
        )
        yield Problem(page.where(), f"{page.words} words of prose, expected {low} to {high}", fix + ".")


def headings_in_order(page: Page) -> Iterator[Problem]:
    """One title with its label, no skipped level, the sections of the book's order."""
    headings = page.headings
    titles = [h for h in headings if h.level == 1]
    label = f"chap-{page.slug}"
    if len(titles) != 1 or headings[0].level != 1:
        yield Problem(
            page.where(titles[1].line if len(titles) > 1 else None),
            f"{len(titles)} first-level headings, expected one, before all others",
            "Give the page one title with `# …`.",
        )
    elif titles[0].label != label:
        yield Problem(
            page.where(titles[0].line), f"the title lacks its label ({label})=", "Put it on the line above."
        )
    for before, after in itertools.pairwise(headings):
        if after.level > before.level + 1:
            yield Problem(
                page.where(after.line),
                f"heading {after.text!r} skips from level {before.level} to {after.level}",
                f"Use {'#' * (before.level + 1)}.",
            )
    for heading in headings:
        if "errata" in heading.text.lower() and heading.label != f"errata-{page.slug}":
            yield Problem(
                page.where(heading.line),
                f"the errata section lacks its label (errata-{page.slug})=",
                "Put it on the line above the heading.",
            )
    yield from _sections(page)


def equations_labelled(page: Page) -> Iterator[Problem]:
    """At least eight labelled equations, each label with the chapter's prefix."""
    labels = equations.labels_in(page.text)
    if len(labels) < EQUATIONS:
        yield Problem(
            page.where(),
            f"{len(labels)} labelled equations, expected at least {EQUATIONS}",
            f"Label the equations that tests check: :label: eq-{page.slug}-<noun>.",
        )
    for block in page.blocks:
        given = str(block.options.get("label", ""))
        if block.name == "math" and given and not given.startswith("eq-"):
            yield _prefix(page, given, "eq")
    for label in labels:
        if not label.startswith(f"eq-{page.slug}-"):
            yield _prefix(page, label, "eq")


def figures_described(page: Page) -> Iterator[Problem]:
    """At least three figures, each with name, caption and alternative text."""
    shown = _figures(page)
    if len(shown) < FIGURES:
        yield Problem(
            page.where(),
            f"{len(shown)} figures, expected at least {FIGURES}",
            "Give a figure cell the options mystnb: figure: {name, caption} and image: {alt}.",
        )
    for figure in shown:
        if missing := [key for key in ("name", "caption", "alt") if not getattr(figure, key)]:
            yield Problem(
                page.where(figure.line),
                f"figure {figure.name or 'without name'} lacks {', '.join(missing)}",
                "A caption says what to see, the alternative text what one would say on the telephone.",
            )
        elif figure.alt == figure.caption:
            yield Problem(
                page.where(figure.line),
                f"figure {figure.name} has its caption as alternative text",
                "Describe what the picture shows; a screen reader reads the caption as well.",
            )
        if figure.name and not figure.name.startswith(f"fig-{page.slug}-"):
            yield _prefix(page, figure.name, "fig", figure.line)


def labels_referred_to(page: Page) -> Iterator[Problem]:
    """Every label of an equation or figure is referred to."""
    referred = _referred(page.text)
    for label in dict.fromkeys(_own_labels(page)):
        if label not in referred:
            role = "eq" if label.startswith("eq-") else "numref"
            yield Problem(
                page.where(page.line_of(label)),
                f"nothing refers to {label}",
                f"Refer to it with {{{role}}}`{label}` where the text uses it, or take the label away.",
            )


def exercises_solved(page: Page) -> Iterator[Problem]:
    """At least two exercises, each with a solution that is folded away."""
    exercises = {
        str(b.options.get("label", "")): b for b in page.blocks if b.name in ("exercise", "exercise-start")
    }
    solutions = {b.argument: b for b in page.blocks if b.name in ("solution", "solution-start")}
    if len(exercises) < EXERCISES:
        yield Problem(
            page.where(),
            f"{len(exercises)} exercises, expected at least {EXERCISES}",
            "Add {exercise} with :label:.",
        )
    for label, block in exercises.items():
        if "`" in block.argument:
            yield Problem(
                page.where(block.line),
                f"the title of exercise {label} holds a backtick, which ends the directive for sphinx-exercise",
                "Say it without code marks, or open the block with colons.",
            )
        if not label:
            yield Problem(
                page.where(block.line), "an exercise without :label:", f"Add :label: ex-{page.slug}-<noun>."
            )
        elif label not in solutions:
            yield Problem(
                page.where(block.line),
                f"exercise {label} has no solution",
                f"Add {{solution}} {label} below it.",
            )
    for label, block in solutions.items():
        if label not in exercises:
            yield Problem(
                page.where(block.line),
                f"a solution of {label!r}, which is no exercise here",
                "Name the exercise's label.",
            )
        if "dropdown" not in str(block.options.get("class", "")).split():
            yield Problem(
                page.where(block.line),
                f"the solution of {label} stands open",
                "Add the option :class: dropdown.",
            )
    starts = sum(b.name == "solution-start" for b in page.blocks)
    ends = sum(b.name == "solution-end" for b in page.blocks)
    if starts != ends:
        yield Problem(
            page.where(),
            f"{starts} solution-start but {ends} solution-end",
            "Close each with {solution-end}.",
        )


def links_stay_at_home(page: Page) -> Iterator[Problem]:
    """No page loads scripts, styles, frames or pictures of other hosts; links to pages have no suffix."""
    for number, line in enumerate(page.text.splitlines(), 1):
        if _LOADS.search(line):
            yield Problem(
                page.where(number),
                "something is loaded from another host",
                "The site works offline: keep scripts, styles, frames and pictures in the book.",
            )
    for number, line in page.prose:
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            if re.search(r"^(?![a-z]+:).*\.md(#.*)?$", target):
                yield Problem(
                    page.where(number),
                    f"the link to {target} breaks once chapters are notebooks",
                    f"Write {target.replace('.md', '')} or use {{ref}}.",
                )


RULES: tuple[Callable[[Page], Iterator[Problem]], ...] = (
    right_length,
    headings_in_order,
    equations_labelled,
    figures_described,
    labels_referred_to,
    exercises_solved,
    links_stay_at_home,
)


def labels_are_whole(pages: Mapping[str, Page], chosen: set[str]) -> Iterator[Problem]:
    """Over the book: no label twice, no reference to an ``eq-`` or ``fig-`` label that is nowhere."""
    count = Counter(label for page in pages.values() for label in _own_labels(page))
    for page in (page for slug, page in pages.items() if slug in chosen):
        for label in dict.fromkeys(_own_labels(page)):
            if count[label] > 1:
                yield Problem(
                    page.where(page.line_of(label)),
                    f"label {label} is declared {count[label]} times in the book",
                    "One label names one thing; rename the others.",
                )
        for label in sorted(_referred(page.text)):
            if re.match(r"(eq|fig)-", label) and not count[label]:
                yield Problem(
                    page.where(page.line_of(f"`{label}`") or page.line_of(label)),
                    f"a reference to {label}, which no chapter declares",
                    "Correct the name, or label what it should lead to.",
                )


_LOADS = re.compile(
    r"""<(?:script|iframe|img|source|video|audio|embed|link)\b[^>]*\b(?:src|href)\s*=\s*["']?(?:https?:)?//"""
    r"""|<object\b[^>]*\bdata\s*=\s*["']?(?:https?:)?//"""
    r"""|!\[[^\]]*\]\((?:https?:)?//|^\s*[`:]{3,}\s*\{(?:figure|image)\}\s*(?:https?:)?//""",
    re.IGNORECASE,
)


def _sections(page: Page) -> Iterator[Problem]:
    seconds = [h for h in page.headings if h.level == 2]
    position, last = 0, ""
    for name in SECTIONS:
        places = [i for i, h in enumerate(seconds) if h.text.lower().startswith(name.lower())]
        if not places:
            yield Problem(
                page.where(), f"no section {name!r}", f"Add `## {name}`{f' after {last!r}' if last else ''}."
            )
            continue
        if places[0] < position:
            yield Problem(
                page.where(seconds[places[0]].line),
                f"section {name!r} comes before {last!r}",
                "Keep the book's order.",
            )
        elif name == "The algorithm" and last == "Setting and notation" and places[0] == position:
            yield Problem(
                page.where(seconds[places[0]].line),
                "no derivation between 'Setting and notation' and 'The algorithm'",
                "Derive what the algorithm computes, in a section of its own.",
            )
        position, last = max(position, places[0] + 1), name


def _prefix(page: Page, label: str, kind: str, line: int | None = None) -> Problem:
    return Problem(
        page.where(line or page.line_of(label)),
        f"label {label} does not start with {kind}-{page.slug}-",
        f"Name it {kind}-{page.slug}-<noun>.",
    )


class _Figure(NamedTuple):
    line: int
    name: str
    caption: str
    alt: str


def _figures(page: Page) -> list[_Figure]:
    """Every declared figure, of code cells and of directives, in order."""
    found = []
    for cell, line in page.code:
        options = cell.metadata.get("mystnb", {})
        if "figure" in options:
            figure, image = options["figure"] or {}, options.get("image") or {}
            texts = (figure.get("name"), figure.get("caption"), image.get("alt"))
            found.append(_Figure(line, *(str(text or "").strip() for text in texts)))
    for block in page.blocks:
        if block.name in ("figure", "glue:figure"):
            name, alt = (str(block.options.get(key, "")).strip() for key in ("name", "alt"))
            found.append(_Figure(block.line, name, " ".join(block.body).strip(), alt))
    return sorted(found)


def _own_labels(page: Page) -> list[str]:
    return equations.labels_in(page.text) + [figure.name for figure in _figures(page) if figure.name]


def _referred(text: str) -> set[str]:
    """Targets of roles such as {eq}`x` and {numref}`text <x>`, and of links such as [text](#x)."""
    roles = re.findall(r"\{(?:eq|numref|ref|math:numref)\}`(?:[^`<]*<)?([\w.-]+)>?`", text)
    return set(roles) | set(re.findall(r"\]\(#?((?:eq|fig)-[\w-]+)\)", text))
