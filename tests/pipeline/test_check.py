"""`check`: a whole chapter passes, and each way of breaking it gives one problem with a place and a remedy."""

from __future__ import annotations

import re

import nbformat
import pytest
import toybook
import wholebook
from wholebook import CHAPTER, CLAIMS, CORE, INIT, TESTS, found, only

from icml24.pipeline import check
from icml24.pipeline._rules_text import SECTIONS
from icml24.pipeline.errors import UnknownChapter


@pytest.fixture
def whole(tmp_path):
    return wholebook.make(tmp_path / "whole")


def test_a_whole_chapter_has_no_problem(whole):
    assert found(whole) == []
    assert check.check(whole, ["gamma"]) == []


def test_a_problem_has_place_matter_and_remedy(whole):
    toybook.edit(whole, CHAPTER, "(chap-gamma)=\n", "")
    (problem,) = check.check(whole)
    lines = (whole.root / CHAPTER).read_text(encoding="utf-8").splitlines()
    assert problem.where == f"{CHAPTER}:{lines.index('# Gamma waves') + 1}"
    assert problem.what == "the title lacks its label (chap-gamma)="
    assert problem.fix == "Put it on the line above."


def test_an_exercise_and_a_solution_that_miss_each_other(whole):
    toybook.edit(whole, CHAPTER, ":label: ex-gamma-one\n", ":label: ex-gamma-uno\n")
    first, second = found(whole)
    assert "exercise ex-gamma-uno has no solution" in first
    assert "a solution of 'ex-gamma-one', which is no exercise here" in second


def test_claims_and_report_that_miss_each_other(whole):
    toybook.edit(whole, CLAIMS, wholebook.claim(4), wholebook.claim(6))
    first, second = found(whole)
    assert "claims ['C6'] are not reported" in first
    assert "reported claims ['C4'] are not in claims.toml" in second


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_that_is_missing(whole, section):
    toybook.edit(whole, CHAPTER, f"## {section}\n", "## Another matter\n")
    assert any(f"no section {section!r}" in problem for problem in found(whole))


def test_sections_in_another_order(whole):
    toybook.edit(whole, CHAPTER, "## Experiments\n", "## Ledger\n")
    toybook.edit(whole, CHAPTER, "## Ledger of claims\n", "## Experiments\n")
    toybook.edit(whole, CHAPTER, "## Ledger\n", "## Ledger of claims\n")
    only(whole, "section 'Ledger of claims' comes before 'Experiments'")


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        ("By {eq}`eq-gamma-eight`", "## The algorithm", "7 labelled equations, expected at least 8"),
        ("{numref}`fig-gamma-three`", "## Ledger of claims", "2 figures, expected at least 3"),
        ("````{exercise}\n:label: ex-gamma-two", "## References", "1 exercises, expected at least 2"),
    ],
)
def test_too_few_of_something(whole, start, end, words):
    path = whole.root / CHAPTER
    text = path.read_text(encoding="utf-8")
    i = text.index(start)
    path.write_text(text[:i] + text[text.index(end, i) :], encoding="utf-8")
    problems = [p for p in found(whole) if "is marked with eq-gamma-eight" not in p]
    assert len(problems) == 1
    assert words in problems[0]


def test_parameters_that_do_not_come_first(whole):
    cell = wholebook.PARAMETERS.split("\n\n```")[0] + "\n"
    toybook.edit(whole, CHAPTER, cell, "```{code-cell} ipython3\nimport math\n```\n\n" + cell)
    only(whole, "the first code cell is not the parameter cell")


def test_a_label_declared_twice(whole):
    toybook.edit(whole, CHAPTER, ":label: eq-gamma-two\n", ":label: eq-gamma-one\n")
    problems = found(whole)
    assert any("label eq-gamma-one is declared 2 times in the book" in p for p in problems)
    assert any("a reference to eq-gamma-two, which no chapter declares" in p for p in problems)


def test_two_reports_and_none(whole):
    toybook.edit(whole, CHAPTER, "## What differs", wholebook.REPORT + "\n## What differs")
    only(whole, "2 calls of ledger.report, expected one")
    text = (whole.root / CHAPTER).read_text(encoding="utf-8")
    (whole.root / CHAPTER).write_text(text.replace(wholebook.REPORT + "\n", ""), encoding="utf-8")
    only(whole, "0 calls of ledger.report, expected one")


def test_claims_built_in_the_package_count_as_reported(whole):
    """C5 stands in core.py only; without it there the claim is missing."""
    toybook.edit(whole, CORE, '"C5"', '"C"')
    only(whole, "claims ['C5'] are not reported")


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        ("nanomorfology", "which is not registered"),
        ("nanomorphology/none.csv", "'nanomorphology/none.csv', which"),
    ],
)
def test_claims_on_data_that_nobody_registered(whole, dataset, words):
    toybook.append(whole, CLAIMS, wholebook.claim(6, f'dataset = "{dataset}"\n'))
    toybook.edit(whole, CHAPTER, '"C4": 1.0', '"C4": 1.0, "C6": 1.0')
    only(whole, "claim C6 needs data set", words)


def test_places_that_are_empty(whole):
    (whole.root / CLAIMS).unlink()
    assert "no claims at" in only(whole)
    (whole.root / CLAIMS).write_text(wholebook.FILES[CLAIMS])
    (whole.root / TESTS).write_text("import pytest\n")
    problems = found(whole)
    assert "tests/papers/gamma: the chapter has no tests. Write one test file per module." in problems
    assert sum("no test checks" in problem for problem in problems) == 8
    (whole.root / TESTS).write_text(wholebook.TESTS_TEXT)
    for path in (whole.root / INIT, whole.root / CORE):
        path.unlink()
    assert "the chapter has no package" in "\n".join(found(whole))


def test_a_reference_that_is_absent_old_or_silent(whole):
    path = whole.reference("gamma")
    toybook.edit(whole, CHAPTER, "print('one')", "print('uno')")
    only(whole, "code cell 6 of gamma differs from its reference", "icml24 bless gamma", renewed=False)
    path.unlink()
    only(whole, "the chapter has no reference notebook", renewed=False)
    wholebook.refer(whole)
    reference = nbformat.read(path, as_version=4)
    for cell in reference.cells[4:]:
        cell.outputs = []
    nbformat.write(reference, path)
    only(whole, "4 cells are compared by nbval, expected at least 5", renewed=False)


def test_a_figure_that_nobody_described(whole):
    toybook.edit(whole, CHAPTER, "print('two')", "fig = gamma.plot('four')  # print('two')")
    problem = only(whole, "shows a figure without name, caption and alternative text")
    line = int(re.search(r":(\d+): ", problem)[1])
    assert (whole.root / CHAPTER).read_text(encoding="utf-8").splitlines()[
        line
    ] == "fig = gamma.plot('four')  # print('two')"


def test_what_belongs_to_no_chapter(whole):
    stray = {
        "src/whole/papers/delta/__init__.py": "",
        "tests/papers/delta/test_it.py": wholebook.TESTS_TEXT.replace("gamma", "delta"),
        "tests/notebooks/delta.ipynb": "{}",
        "book/records/delta.json": "{}",
    }
    for name, text in stray.items():
        (whole.root / name).parent.mkdir(parents=True, exist_ok=True)
        (whole.root / name).write_text(text)
    problems = found(whole)
    assert [p.split(":")[0] for p in problems] == [
        "src/whole/papers/delta",
        "tests/papers/delta",
        "tests/notebooks/delta.ipynb",
        "book/records/delta.json",
    ]
    assert all("which is no chapter of _toc.yml" in p for p in problems)
    assert check.check(whole, ["gamma"]) == []  # nothing of gamma's


def test_sources_that_are_not_python(whole):
    toybook.append(whole, CORE, "def broken(:\n")
    problems = found(whole)
    assert any(p.startswith(f"{CORE}:24: not Python: ") for p in problems), problems


def test_a_source_that_is_no_notebook(whole):
    toybook.edit(whole, CHAPTER, ":tags: [parameters]", ":tags: x")
    problems = found(whole, renewed=False)
    assert any(
        "Nothing else of this chapter was checked" in p or "tagged 'parameters'" in p for p in problems
    )


def test_an_unknown_chapter(whole):
    with pytest.raises(UnknownChapter, match="did you mean gamma"):
        check.check(whole, ["gama"])
