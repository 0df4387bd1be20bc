"""A book of one chapter that every rule of `check` is content with; tests break one thing at a time.

Its chapter has all that a real one has, in small: eight equations, three figures, two
exercises, enough words. Its reference is put together here, not executed.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
import toybook

from icml24.pipeline import check
from icml24.pipeline.book import Book

CHAPTER = "book/one/gamma.md"
CORE = "src/whole/papers/gamma/core.py"
INIT = "src/whole/papers/gamma/__init__.py"
CLAIMS = "src/whole/papers/gamma/claims.toml"
TESTS = "tests/papers/gamma/test_core.py"

NOUNS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
SENTENCE = "Here a sentence of ten words says what follows next. "

EQUATIONS = "\n".join(
    f"By {{eq}}`eq-gamma-{noun}` we go on. {SENTENCE * 22}\n\n```{{math}}\n:label: eq-gamma-{noun}\nx_{i} = {i}\n```\n"
    for i, noun in enumerate(NOUNS)
)


def figure(noun: str) -> str:
    """A figure cell with everything it needs."""
    return f"""\
{{numref}}`fig-gamma-{noun}` shows it.

```{{code-cell}} ipython3
---
mystnb:
  figure:
    name: fig-gamma-{noun}
    caption: 'A rising line: more is more.'
  image:
    alt: Line that rises from left to right, case {noun}.
---
fig = gamma.plot({noun!r})
```
"""


def exercise(noun: str) -> str:
    """An exercise, and its solution with code that runs."""
    return f"""\
````{{exercise}}
:label: ex-gamma-{noun}

Show that {noun} is a word.
````

````{{solution-start}} ex-gamma-{noun}
:class: dropdown
````

```{{code-cell}} ipython3
print({noun!r})
```

````{{solution-end}}
````
"""


PARAMETERS = """\
```{code-cell} ipython3
:tags: [parameters]

profile: str = "quick"  # quick or full
seed: int = 0  # base seed of every generator
```

```{code-cell} ipython3
from icml24 import ledger
from whole.papers import gamma

print(gamma.total(3))
```
"""

REPORT = """\
```{code-cell} ipython3
ledger.report(
    "gamma",
    {"C1": gamma.total(3), "C2": 1.0, "C3": 1.0, "C4": 1.0, **gamma.more(profile)},
    profile=profile,
)
```
"""

CHAPTER_TEXT = "\n".join(
    [
        toybook.FRONT + "(chap-gamma)=\n# Gamma waves\n",
        PARAMETERS,
        "## Overview\n",
        "Read [the next page](../two/beta) and {ref}`chap-gamma` first.\n",
        "## Setting and notation\n",
        "Let $x$ be a number.\n",
        "## From numbers to sums\n",
        EQUATIONS,
        "## The algorithm\n\n### In code\n\nIt adds.\n",
        "## Checks on small cases\n",
        "Three numbers.\n",
        "## Experiments\n",
        *(figure(noun) for noun in ("one", "two", "three")),
        "## Ledger of claims\n",
        REPORT,
        "## What differs from the paper\n",
        "Size.\n",
        "(errata-gamma)=\n## Errata and reproducibility notes\n",
        "None.\n",
        "## Exercises\n",
        exercise("one"),
        exercise("two"),
        "## References\n",
        "```{bibliography}\n:filter: docname in docnames\n```\n",
    ]
)

INIT_TEXT = '''\
"""Gamma: sums."""

from whole.papers.gamma.core import LIMIT, Sum, more, plot, total

__all__ = ["LIMIT", "Sum", "more", "plot", "total"]
'''

CORE_TEXT = '''\
"""Sums and their picture."""

#: Largest argument.
LIMIT = 10


class Sum:
    """A sum."""


def total(n):
    """Sum of the first numbers."""
    return n


def more(profile):
    """Claims of the full run."""
    return {"C5": 1.0} if profile == "full" else {}


def plot(name):
    """Draw it."""
    return name
'''

TESTS_TEXT = "import pytest\n\n" + "\n\n".join(
    f'@pytest.mark.equation("eq-gamma-{noun}")\ndef test_{noun}():\n    assert {i} == {i}\n'
    for i, noun in enumerate(NOUNS)
)


def claim(number: int, extra: str = "") -> str:
    """A claim C<number> of the chapter."""
    text = toybook.CLAIM.format(
        id=f"C{number}", statement="It holds", paper="1", metric="m", operator=">", threshold=0
    )
    return text.replace('profile = "quick"\n', extra) if extra else text


FILES = {
    "pyproject.toml": '[tool.icml24]\npackage = "whole"\n',
    "jupytext.toml": 'notebook_metadata_filter = "mystnb,-jupytext.text_representation.jupytext_version"\n',
    "_toc.yml": "format: jb-book\nroot: book/index\nparts:\n  - caption: One\n    chapters:\n      - file: book/one/gamma\n",
    "book/index.md": "# A book\n",
    CHAPTER: CHAPTER_TEXT,
    "src/whole/__init__.py": "",
    "src/whole/papers/__init__.py": "",
    INIT: INIT_TEXT,
    CORE: CORE_TEXT,
    CLAIMS: "".join(claim(n) for n in range(1, 5)) + claim(5, 'profile = "full"\n'),
    TESTS: TESTS_TEXT,
}


def make(root: Path) -> Book:
    """Write the book into `root` and load it."""
    book = toybook.write(root, FILES)
    refer(book)
    return book


def refer(book: Book) -> None:
    """Write a reference with the chapter's code and a line of output for each cell."""
    cells = []
    for index, source in enumerate(book.chapter("gamma").code_cells()):
        printed = nbformat.v4.new_output("stream", name="stdout", text=f"{index}\n")
        drawn = nbformat.v4.new_output(
            "display_data", data={"text/plain": "<Figure size 700x400 with 1 Axes>"}
        )
        outputs = [drawn, printed] if "plot" in source else [printed]
        cells.append(nbformat.v4.new_code_cell(source, outputs=outputs, execution_count=index + 1))
    path = book.reference("gamma")
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)


def found(book: Book, *, renewed: bool = True) -> list[str]:
    """Problems of the book as text; the reference follows the code unless a test is about that."""
    if renewed:
        refer(book)
    return [str(problem) for problem in check.check(book)]


def only(book: Book, *words: str, renewed: bool = True) -> str:
    """Assert that there is one problem, holding these words; return it."""
    problems = found(book, renewed=renewed)
    assert len(problems) == 1, problems
    for word in words:
        assert word in problems[0], problems[0]
    return problems[0]
