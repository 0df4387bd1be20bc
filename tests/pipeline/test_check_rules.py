"""Each way of breaking a whole chapter gives one problem, which says what it is."""

from __future__ import annotations

import pytest
import toybook
import wholebook
from wholebook import CHAPTER, CLAIMS, CORE, INIT, TESTS, only

# (file, old, new, words of the one problem that it makes)
BREAKS = {
    "too few words": (
        CHAPTER,
        "says what follows next. ",
        "ends. ",
        ["words of prose, expected 1500 to 3500"],
    ),
    "too many words": (CHAPTER, "a sentence", "a " + "very " * 14 + "long sentence", ["Cut what"]),
    "two titles": (CHAPTER, "Size.", "Size.\n\n# Again", ["2 first-level headings"]),
    "a level skipped": (CHAPTER, "### In code", "#### In code", ["skips from level 2 to 4"]),
    "errata without label": (CHAPTER, "(errata-gamma)=\n", "", ["(errata-gamma)="]),
    "no derivation": (CHAPTER, "## From numbers to sums", "### From numbers", ["no derivation between"]),
    "label of another chapter": (
        CHAPTER,
        ":label: eq-gamma-one\n",
        ":label: eq-delta-one\n",
        ["label eq-delta-one does not start with eq-gamma-"],
    ),
    "label of another kind": (
        CHAPTER,
        "x_0 = 0\n```",
        "x_0 = 0\n```\n\n```{math}\n:label: mine\ny\n```",
        ["label mine"],
    ),
    "figure without caption": (
        CHAPTER,
        "name: fig-gamma-one\n    caption: 'A rising line: more is more.'\n",
        "name: fig-gamma-one\n",
        ["lacks caption"],
    ),
    "figure without alt": (
        CHAPTER,
        "    alt: Line that rises from left to right, case one.\n",
        "    width: 5px\n",
        ["lacks alt"],
    ),
    "alt is the caption": (
        CHAPTER,
        "Line that rises from left to right, case two.",
        "'A rising line: more is more.'",
        ["as alternative text"],
    ),
    "figure of another chapter": (
        CHAPTER,
        "fig-gamma-two",
        "fig-delta-two",
        ["fig-delta-two does not start with"],
    ),
    "exercise with code in its title": (
        CHAPTER,
        "````{exercise}\n:label: ex-gamma-one",
        "````{exercise} Why `one`?\n:label: ex-gamma-one",
        ["the title of exercise ex-gamma-one holds a backtick"],
    ),
    "mark on a test that cannot fail": (
        TESTS,
        "    assert 3 == 3\n",
        "    print(3)\n",
        ["test_four is marked with eq-gamma-four and asserts nothing"],
    ),
    "equation nobody refers to": (
        CHAPTER,
        "By {eq}`eq-gamma-two`",
        "Then",
        ["nothing refers to eq-gamma-two", "{eq}`eq-gamma-two`"],
    ),
    "figure nobody refers to": (
        CHAPTER,
        "{numref}`fig-gamma-two` shows it.",
        "See below.",
        ["nothing refers to fig-gamma-two", "{numref}"],
    ),
    "reference to nothing": (
        CHAPTER,
        "Three numbers.",
        "As {eq}`eq-gamma-nine` says.",
        ["a reference to eq-gamma-nine"],
    ),
    "solution in the open": (
        CHAPTER,
        "{solution-start} ex-gamma-one\n:class: dropdown\n",
        "{solution-start} ex-gamma-one\n",
        ["the solution of ex-gamma-one stands open"],
    ),
    "solution without end": (
        CHAPTER,
        "print('one')\n```\n\n````{solution-end}\n````",
        "print('one')\n```",
        ["2 solution-start but 1 solution-end"],
    ),
    "script of another host": (
        CHAPTER,
        "Size.",
        'Size. <script src="https://cdn.example/x.js"></script>',
        ["loaded from another host"],
    ),
    "picture of another host": (
        CHAPTER,
        "Size.",
        "![a](https://cdn.example/x.png)",
        ["loaded from another host"],
    ),
    "frame without scheme": (
        CHAPTER,
        "Size.",
        "<iframe src='//cdn.example/x'></iframe>",
        ["loaded from another host"],
    ),
    "link with suffix": (
        CHAPTER,
        "(../two/beta)",
        "(../two/beta.md)",
        ["the link to ../two/beta.md", "Write ../two/beta"],
    ),
    "order of YAML keys": (
        CHAPTER,
        "  format_name: myst\n    format_version: 0.13\n",
        "  format_version: 0.13\n    format_name: myst\n",
        ["Jupytext would write"],
    ),
    "no annotation": (
        CHAPTER,
        "seed: int = 0",
        "seed = 0",
        ["parameter seed has no annotation", "`seed: int = …`"],
    ),
    "no help": (CHAPTER, "  # base seed of every generator", "", ["parameter seed has no help"]),
    "no seed": (CHAPTER, "seed: int = 0", "other: int = 0", ["no parameter `seed: int = 0`"]),
    "another default profile": (
        CHAPTER,
        'profile: str = "quick"',
        'profile: str = "full"',
        ["no parameter `profile: str = 'quick'`"],
    ),
    "parameters not tagged": (
        CHAPTER,
        ":tags: [parameters]",
        ":tags: [hide-input]",
        ["0 code cells tagged 'parameters'"],
    ),
    "a trailing semicolon": (
        CHAPTER,
        "print(gamma.total(3))",
        "print(gamma.total(3));",
        ["`print(gamma.total(3));` ends in a semicolon"],
    ),
    "a claim without its test": (
        CLAIMS,
        'operator = ">"',
        'operator = "=>"',
        ["operator '=>' must be one of"],
    ),
    "too few live claims": (
        CLAIMS,
        'id = "C4"',
        'dataset = "nanomorphology"\nid = "C4"',
        ["3 claims can be tested offline"],
    ),
    "claim not reported": (CHAPTER, '"C4": 1.0, ', "", ["claims ['C4'] are not reported"]),
    "report without profile": (
        CHAPTER,
        "    profile=profile,\n",
        "",
        ["ledger.report is not told the profile"],
    ),
    "report of another chapter": (
        CHAPTER,
        '    "gamma",\n',
        '    "delta",\n',
        ["ledger.report names another chapter"],
    ),
    "a mark without equation": (
        TESTS,
        "def test_one",
        '@pytest.mark.equation("eq-gamma-none")\ndef test_one',
        ["test_one is marked with eq-gamma-none"],
    ),
    "an equation without test": (
        TESTS,
        '@pytest.mark.equation("eq-gamma-two")\n',
        "",
        ["no test checks eq-gamma-two", "tests/papers/gamma/"],
    ),
    "a function without docstring": (
        CORE,
        '    """Sum of the first numbers."""\n',
        "",
        [f"{CORE}:11", "public total has no docstring"],
    ),
    "a class without docstring": (CORE, '    """A sum."""', "    pass", ["public Sum has no docstring"]),
    "a constant not explained": (
        CORE,
        "#: Largest argument.\n",
        "",
        ["public constant LIMIT is not explained"],
    ),
    "an export left out": (INIT, '"Sum", ', "", ["__init__ imports Sum and __all__ lacks it"]),
    "an export of nothing": (INIT, '"Sum", ', '"Sum", "Product", ', ["__all__ lists Product, which"]),
    "an export twice": (INIT, '"Sum", ', '"Sum", "Sum", ', ["__all__ lists ['Sum'] twice"]),
    "a computed __all__": (INIT, "__all__ = [", "__all__ = [*[], ", ["no literal __all__"]),
    "no docstring of the package": (INIT, '"""Gamma: sums."""\n', "", ["the package has no docstring"]),
}


@pytest.fixture
def whole(tmp_path):
    return wholebook.make(tmp_path / "whole")


@pytest.mark.parametrize("name", list(BREAKS))
def test_each_break_is_one_problem(whole, name):
    file, old, new, words = BREAKS[name]
    toybook.edit(whole, file, old, new)
    for label in ("eq-delta-one", "fig-delta-two"):  # a renamed label takes its references and test along
        if label in new:
            for path in (whole.root / CHAPTER, whole.root / TESTS):
                text = path.read_text(encoding="utf-8")
                path.write_text(text.replace(label.replace("delta", "gamma"), label), encoding="utf-8")
    only(whole, *words)
