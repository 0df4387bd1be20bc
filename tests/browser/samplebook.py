"""A small book with everything a page can hold, under the settings, styles and appendix of the real one."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from string import Template

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "tests" / "pipeline"))

import stored  # noqa: E402
import toybook  # noqa: E402

from icml24 import ledger  # noqa: E402
from icml24.pipeline.book import Book  # noqa: E402

TOC = """\
format: jb-book
root: book/index
parts:
  - caption: First part
    numbered: 1
    chapters: [{file: book/one/alpha}]
  - caption: Second part
    numbered: 1
    chapters: [{file: book/two/beta}]
  - caption: Appendix
    chapters:
      - file: book/appendix/rerun
      - file: book/appendix/equations
      - file: book/appendix/datasets
      - file: book/appendix/benchmarks
      - file: book/appendix/api
"""

CHAPTER = Template(
    toybook.FRONT
    + r"""(chap-$slug)=
# On $slug and wide things

## Overview

A page with {eq}`eq-$slug-risk`, {eq}`eq-$other-risk`, {numref}`fig-$slug-line`, {prf:ref}`thm-$slug-main` and
{cite:t}`writer2024sample`; the other one is [here](../$folder/$other). A footnote[^one]. See `data.py`.

[^one]: Its text.

```{code-cell} ipython3
:tags: [parameters]

profile: str = "quick"  # quick or full
seed: int = 0  # base seed of every generator
```

For $$X$$ with $$\E[X]$$, $$\norm{X}$$ and $$\boldsymbol{\theta}$$:

```{math}
:label: eq-$slug-risk
R(\theta) = d - (d-2)^2\, \E\bigl[\norm{X}^{-2}\bigr], \qquad d \ge 3 .
```

$$$$
a + b + c + d + e + f + g + h + i + j + k + l + m + n + o + p + q + r + s + t + u + v + w + x = \sum_{i=1}^{24} \abs{x_i}
$$$$

```{prf:theorem} Main
:label: thm-$slug-main
$$\argmin_x \abs{x} = 0$$.
```

````{prf:proof}
It is one line of code.

```{code-block} python
a_line_of_code_that_is_much_too_long_for_a_narrow_screen = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
```
````

::::{tab-set}
:::{tab-item} One
Text one.
:::
:::{tab-item} Two
Text two.
:::
::::

```{code-cell} ipython3
frame()  # a table wider than a telephone
```

```{code-cell} ipython3
---
tags: [hide-input]
mystnb:
  figure: {name: fig-$slug-line, caption: "A grey field. It says nothing about $$\\theta$$."}
  image: {alt: "A uniformly grey rectangle."}
---
fig = draw()
```

| a | b |
|---|---|
| 1 | 2 |

## Ledger of claims

```{code-cell} ipython3
ledger.report("$slug", measured, profile=profile)
```

## Exercises

```{exercise}
:label: ex-$slug-one
Do it.
```

```{solution-start} ex-$slug-one
:class: dropdown
```

```{code-cell} ipython3
print("done")
```

```{solution-end}
```

## References

```{bibliography}
:filter: docname in docnames
```
"""
)

PACKAGE = '''r"""What `{slug}` computes."""

__all__ = ["shrink"]


def shrink(x, *, by=2.0):
    r"""Divide by a factor, see :eq:`eq-{slug}-risk`.

    .. math:: y = x / b

    Parameters
    ----------
    x : float or array, shape (n, d)
        Numbers.
    by : float, default 2.0
        The factor.

    Returns
    -------
    float
        A smaller number.

    Examples
    --------
    >>> shrink(4.0)
    2.0
    """
    return x / by
'''

BIBLIOGRAPHY = """\
@inproceedings{writer2024sample, author = {Writer, Wanda}, title = {A sample}, booktitle = {Proceedings}, year = {2024}}
"""


def make(root: Path) -> Book:
    """Write the book into `root`, its executed notebooks and a recorded full run of `alpha` included."""
    for name in ("_config.yml", "book/index.md", "book/_static", "book/_ext", "book/appendix"):
        source, target = REPOSITORY / name, root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, target)
    files = {
        "_toc.yml": TOC,
        "pyproject.toml": '[project]\nname = "samplebook"\n[tool.icml24]\npackage = "samplebook"\n',
        "book/references.bib": BIBLIOGRAPHY,
        "src/samplebook/__init__.py": "",
        "src/samplebook/papers/__init__.py": "",
        "bench/results/sample.json": BENCHMARK,
    }
    for slug, folder, other, elsewhere in (("alpha", "one", "beta", "two"), ("beta", "two", "alpha", "one")):
        files[f"book/{folder}/{slug}.md"] = CHAPTER.substitute(slug=slug, other=other, folder=elsewhere)
        files[f"src/samplebook/papers/{slug}/__init__.py"] = PACKAGE.format(slug=slug)
        files[f"tests/test_{slug}.py"] = TEST.format(slug=slug)
    book = toybook.write(root, files)
    for chapter in book.chapters:
        stored.store(book, chapter.slug, lambda source, slug=chapter.slug: _outputs(slug, source))
    _record(book, "alpha")
    return book


BENCHMARK = """\
{"name": "sample", "title": "A sample step", "peer": "a peer", "threads": 1, "machine": "Linux", "date": "2026-11-30",
 "versions": {"peer": "1.0"}, "rows": [{"what": "a step of n = 10", "ours": 1.25, "peer": 6.5, "ratio": 5.2, "low": 5.0,
 "high": 5.4, "unit": "ms"}]}
"""

TEST = '''import pytest


@pytest.mark.equation("eq-{slug}-risk")
def test_risk():
    """E1: the risk of `shrink` is |x| * 2 $ against Monte Carlo."""
'''


def _rows() -> list[dict]:
    return [stored.row(f"C{n}", verdict) for n, verdict in enumerate(ledger.VERDICTS, start=1)]


def _outputs(slug: str, source: str) -> list[dict]:
    if source.startswith("frame()"):
        cells = "".join(f"<td>{n * 1234567}</td>" for n in range(30))
        head = "".join(f"<th>column {n}</th>" for n in range(30))
        table = f'<table border="1" class="dataframe"><thead><tr>{head}</tr></thead><tbody><tr>{cells}</tr></tbody></table>'
        return [stored.display({"text/html": f"<div>{table}</div>", "text/plain": "a table"})]
    if source.startswith("fig ="):
        return [stored.picture(700, 400)]
    if source.startswith("ledger.report"):
        return [stored.ledger_output(slug, _rows())]
    if source.startswith("print"):
        return [stored.stream("done " * 60 + "\n")]
    return []


def _record(book: Book, slug: str) -> None:
    import json

    path = book.record(slug)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [stored.row(f"C{n}", "reproduced", text="2.5") for n in range(1, 5)]
    path.write_text(json.dumps({"slug": slug, "rows": rows, "provenance": stored.STAMP}), encoding="utf-8")
