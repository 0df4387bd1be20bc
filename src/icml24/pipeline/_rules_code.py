"""Rules about a chapter's code and its four places: cells, claims, package, tests, reference."""

from __future__ import annotations

import ast
import io
import itertools
import re
import tokenize
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import nbformat

from icml24 import datasets, ledger
from icml24.pipeline import bless, equations, parameters
from icml24.pipeline._api import api_problems
from icml24.pipeline._page import Page, Problem, relative
from icml24.pipeline.book import Book
from icml24.pipeline.errors import BookError

__all__ = ["RULES", "nothing_orphaned"]

CLAIMS, COMPARED = 4, 5
REQUIRED_PARAMETERS = {"profile": ("str", "quick"), "seed": ("int", 0)}


def source_round_trips(page: Page) -> Iterator[Problem]:
    """Jupytext reads the source and writes the same bytes."""
    import jupytext
    from jupytext.config import load_jupytext_config

    config = load_jupytext_config(str(page.chapter.source))
    again = jupytext.writes(
        jupytext.reads(page.text, fmt="md:myst", config=config), fmt="md:myst", config=config
    )
    if again == page.text:
        return
    ours, theirs = (text.splitlines(keepends=True) for text in (page.text, again))
    pairs = itertools.zip_longest(ours, theirs, fillvalue="")
    line, old, new = next((i, old, new) for i, (old, new) in enumerate(pairs, 1) if old != new)
    yield Problem(
        page.where(line),
        f"Jupytext would write {new!r} where the source has {old!r}",
        f"Run `jupytext --to md:myst {page.where()}` and keep what it writes.",
    )


def parameters_declared(page: Page) -> Iterator[Problem]:
    """The first code cell is the parameter cell; every line of it has a type and a comment for help."""
    try:
        known = parameters.declared(page.chapter)
    except BookError as error:
        yield Problem(page.where(), str(error), "Tag the first code cell `parameters`.")
        return
    cell, line = page.code[0]
    if parameters.TAG not in cell.metadata.get("tags", []):
        yield Problem(
            page.where(line), "the first code cell is not the parameter cell", "Move the parameters up."
        )
        cell, line = next((c, n) for c, n in page.code if parameters.TAG in c.metadata.get("tags", []))
    annotated = {
        node.target.id
        for node in ast.parse(cell.source).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    for name, parameter in known.items():
        if name not in annotated:
            yield Problem(
                page.where(line),
                f"parameter {name} has no annotation",
                f"Write `{name}: {parameter.type} = …`; values are checked against it.",
            )
        if not parameter.help:
            yield Problem(
                page.where(line),
                f"parameter {name} has no help",
                "Say in a comment at the end of its line what it does.",
            )
    for name, (kind, default) in REQUIRED_PARAMETERS.items():
        found = known.get(name)
        if found is None or found.type != kind or found.default != default:
            yield Problem(
                page.where(line), f"no parameter `{name}: {kind} = {default!r}`", "Every chapter has it."
            )


def no_trailing_semicolon(page: Page) -> Iterator[Problem]:
    """No statement ends in a semicolon: it silences a value under Papermill and not under nbval."""
    for cell, line in page.code:
        for row in _semicolons(cell.source):
            yield Problem(
                page.where(line),
                f"`{cell.source.splitlines()[row - 1].strip()}` ends in a semicolon",
                "Assign the value instead, `fig = …` or `_ = …`.",
            )


def claims_reported(page: Page) -> Iterator[Problem]:
    """claims.toml is in order, four claims live offline, and the chapter reports exactly them."""
    path = _package(page) / "claims.toml"
    where = relative(path, page.book.root)
    try:
        claims = ledger.read_claims(path)
    except (ValueError, FileNotFoundError) as error:
        yield Problem(
            where, str(error).removeprefix(f"{path}: "), "Write one [[claim]] table per claim of the paper."
        )
        return
    live = [claim for claim in claims if claim.profile == "quick" and not claim.dataset]
    if len(live) < CLAIMS:
        yield Problem(
            where,
            f"{len(live)} claims can be tested offline at quick, expected at least {CLAIMS}",
            "Test more of what the paper claims on the built-in default data.",
        )
    for claim in claims:
        name, _, file = (claim.dataset or "").partition("/")
        known = not name or (name in datasets.REGISTRY and (not file or _has_file(name, file)))
        if not known:
            yield Problem(
                where,
                f"claim {claim.id} needs data set {claim.dataset!r}, which is not registered",
                f"Register it in datasets.toml; known are {sorted(datasets.REGISTRY)}.",
            )
    yield from _report_call(page, [claim.id for claim in claims])


def four_places_filled(page: Page) -> Iterator[Problem]:
    """Package, tests and reference stand where the slug says."""
    package, tests = _package(page), page.book.root / "tests" / "papers" / page.slug
    if not (package / "__init__.py").is_file():
        yield Problem(
            relative(package, page.book.root),
            "the chapter has no package",
            "Write its __init__.py with the public API.",
        )
    if not any(
        re.search(r"^\s*(async )?def test", p.read_text(encoding="utf-8"), re.M)
        for p in tests.glob("test_*.py")
    ):
        yield Problem(
            relative(tests, page.book.root), "the chapter has no tests", "Write one test file per module."
        )
    yield from _reference(page)


def equations_tested(page: Page) -> Iterator[Problem]:
    """Every labelled equation has a test that says it checks it, and that can fail."""
    marked = equations.tests_by_label(page.book)
    for label in dict.fromkeys(equations.labels_in(page.text)):
        if label not in marked:
            yield Problem(
                page.where(page.line_of(label)),
                f"no test checks {label}",
                f'Write one in tests/papers/{page.slug}/ and mark it @pytest.mark.equation("{label}").',
            )
        for test in (test for test in marked.get(label, ()) if not test.asserts):
            yield Problem(
                f"{relative(test.path, page.book.root)}:{test.line}",
                f"{test.name} is marked with {label} and asserts nothing",
                "Compare what it computes with something, so that it can fail.",
            )


def public_interface_documented(page: Page) -> Iterator[Problem]:
    """__all__ of the package is its whole public interface, and each name has a docstring."""
    package = _package(page)
    if (package / "__init__.py").is_file():
        for path, line, what, fix in api_problems(package):
            yield Problem(f"{relative(path, page.book.root)}:{line}", what, fix)


RULES: tuple[Callable[[Page], Iterator[Problem]], ...] = (
    source_round_trips,
    parameters_declared,
    no_trailing_semicolon,
    claims_reported,
    four_places_filled,
    equations_tested,
    public_interface_documented,
)


def nothing_orphaned(book: Book, pages: Mapping[str, Page]) -> Iterator[Problem]:
    """Over the book: no package, tests, reference or record without a chapter, no mark without a label."""
    places = {
        "package": [p for p in (book.package_dir / "papers").glob("*/") if (p / "__init__.py").is_file()],
        "tests": [p for p in (book.root / "tests" / "papers").glob("*/") if any(p.glob("test_*.py"))],
        "reference": sorted(book.reference("x").parent.glob("*.ipynb")),
        "record": sorted(book.record("x").parent.glob("*.json")),
    }
    for kind, paths in places.items():
        for path in sorted(paths):
            if path.stem not in pages:
                yield Problem(
                    relative(path, book.root),
                    f"{kind} of {path.stem}, which is no chapter of _toc.yml",
                    "List the chapter there, or remove what is left of it.",
                )
    labels = {label for page in pages.values() for label in equations.labels_in(page.text)}
    for label, tests in equations.tests_by_label(book).items():
        if label not in labels:
            for test in (test for test in tests if not _is_stray(test.path, book, pages)):
                yield Problem(
                    f"{relative(test.path, book.root)}:{test.line}",
                    f"{test.name} is marked with {label}, which no chapter labels",
                    "Correct the mark, or label the equation.",
                )


def _is_stray(path: Path, book: Book, pages: Mapping[str, Page]) -> bool:
    """Whether a test belongs to a paper without a chapter, which is a problem of its own."""
    papers = book.root / "tests" / "papers"
    return path.is_relative_to(papers) and path.relative_to(papers).parts[0] not in pages


def _package(page: Page) -> Path:
    return page.book.package_dir / "papers" / page.slug


def _has_file(name: str, file: str) -> bool:
    return any(entry.name == file for entry in datasets.REGISTRY[name].files)


def _semicolons(source: str) -> list[int]:
    """Rows (from 1) of a cell whose last token is a semicolon; none when the cell is not Python."""
    rows, last = [], ""
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in (tokenize.NEWLINE, tokenize.ENDMARKER):
                if last == ";":
                    rows.append(token.start[0] if token.type == tokenize.NEWLINE else token.start[0] - 1)
                last = ""
            elif token.type not in (tokenize.COMMENT, tokenize.NL):
                last = token.string
    except (tokenize.TokenError, IndentationError):
        pass
    return rows


def _report_call(page: Page, ids: list[str]) -> Iterator[Problem]:
    calls = [
        (node, line)
        for cell, line in page.code
        for node in ast.walk(_tree(cell.source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("ledger.report", "report")
    ]
    if len(calls) != 1:
        yield Problem(
            page.where(calls[1][1] if calls else None),
            f"{len(calls)} calls of ledger.report, expected one",
            f'Hand the measurements over once: ledger.report("{page.slug}", {{…}}, profile=profile).',
        )
        return
    call, line = calls[0]
    given = call.args[0] if call.args else None
    if not (isinstance(given, ast.Constant) and given.value == page.slug):
        yield Problem(
            page.where(line), "ledger.report names another chapter", f'Its first argument is "{page.slug}".'
        )
    if not any(k.arg == "profile" and ast.unparse(k.value) == "profile" for k in call.keywords):
        yield Problem(
            page.where(line),
            "ledger.report is not told the profile",
            "Add profile=profile; else a full run is taken for a quick one.",
        )
    written = {text for cell, _ in page.code for text in _keys(_tree(cell.source))}
    for path in sorted(_package(page).rglob("*.py")):
        written |= _keys(_tree(path.read_text(encoding="utf-8")))
    if missing := [name for name in ids if name not in written]:
        yield Problem(
            page.where(line),
            f"claims {missing} are not reported",
            "Measure them, or say why not: Untestable(…).",
        )
    measured = call.args[1] if len(call.args) > 1 else None
    if isinstance(measured, ast.Dict):
        keys = [k.value for k in measured.keys if isinstance(k, ast.Constant)]
        if unknown := [key for key in keys if key not in ids]:
            yield Problem(
                page.where(line),
                f"reported claims {unknown} are not in claims.toml",
                "Write them down first.",
            )


def _tree(source: str) -> ast.AST:
    try:
        return ast.parse(source)
    except SyntaxError:
        return ast.Module(body=[], type_ignores=[])


def _keys(tree: ast.AST) -> set[str]:
    """Strings that stand as keys: in dict displays, as subscripts, as keywords of dict(…)."""
    found = set()
    for node in ast.walk(tree):
        candidates: list[ast.expr | None] = []
        if isinstance(node, ast.Dict):
            candidates = list(node.keys)
        elif isinstance(node, ast.Subscript):
            candidates = [node.slice]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "dict":
            found |= {k.arg for k in node.keywords if k.arg}
        found |= {c.value for c in candidates if isinstance(c, ast.Constant) and isinstance(c.value, str)}
    return found


def _reference(page: Page) -> Iterator[Problem]:
    path = page.book.reference(page.slug)
    where, renew = relative(path, page.book.root), f"Run `icml24 bless {page.slug}`."
    if not path.is_file():
        yield Problem(where, "the chapter has no reference notebook", renew)
        return
    reference = nbformat.read(path, as_version=4)
    for difference in bless.differences(page.chapter, reference):
        yield Problem(where, difference, renew)
    compared = bless.compared_cells(reference)
    if len(compared) < COMPARED:
        yield Problem(
            where,
            f"{len(compared)} cells are compared by nbval, expected at least {COMPARED}",
            "Print more of what must not drift, rounded, in cells without nbval-ignore-output.",
        )
    stored = [cell for cell in reference.cells if cell.cell_type == "code"]
    for cell, (ours, line) in zip(stored, page.code, strict=False):
        drawn = any("<Figure size" in str(o.get("data", {}).get("text/plain", "")) for o in cell.outputs)
        if drawn and "figure" not in ours.metadata.get("mystnb", {}):
            yield Problem(
                page.where(line),
                "the cell shows a figure without name, caption and alternative text",
                "Give it the options mystnb: figure: {name, caption} and image: {alt}.",
            )
