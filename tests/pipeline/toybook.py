"""A book of two chapters that imports nothing heavy, laid out as a real one in a folder of the test's own.

`make(root)` writes it; `edit`, `append` and `chapter_text` change it. Both chapters reach
``toybook.common.numbers``, only ``beta`` reaches ``toybook.common.extra``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from icml24.pipeline.book import Book

FRONT = """\
---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
    format_version: 0.13
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

"""

PARAMETERS = """\
```{code-cell} ipython3
:tags: [parameters]

profile: str = "quick"  # quick or full
seed: int = 0  # base seed of every generator
"""

ALPHA = (
    FRONT
    + "(chap-alpha)=\n# Alpha rays\n\n## Overview\n\nSums of squares grow like a cube.\n\n"
    + PARAMETERS
    + """\
steps: int = 8  # how many terms
scale: float = 0.5  # factor of the result
sizes: list[int] = [1, 2]  # sizes tried
label: str | None = None  # printed when given
pair: tuple[int, int] = (3, 4)  # two numbers
fast: bool = False  # skip the slow part
```

```{math}
:label: eq-alpha-squares
\\sum_{k=1}^{n} k^2 = \\tfrac{1}{6}\\, n (n+1) (2n+1)
```

We compute {eq}`eq-alpha-squares`.

```{code-cell} ipython3
from icml24 import ledger
from toybook.papers import alpha

total = alpha.total(steps if profile == "quick" else 10 * steps)
print(f"seed {seed}: {scale * total:.17g}", sizes, label, pair, fast)
```

## Ledger of claims

```{code-cell} ipython3
ledger.report("alpha", {"C1": float(total), "C2": steps}, profile=profile)
```
"""
)

BETA = (
    FRONT
    + "(chap-beta)=\n# Beta decay\n\n## Overview\n\nAs in {ref}`chap-alpha`, {eq}`eq-beta-mean`.\n\n"
    + PARAMETERS
    + """\
```

```{math}
:label: eq-beta-mean
\\bar x = \\frac{1}{n} \\sum_{i} x_i
```

```{code-cell} ipython3
import random

from icml24 import ledger
from toybook.papers import beta

draws = [random.Random(seed + i).random() for i in range(50)]
print(repr(beta.mean(draws)))
```

```{code-cell} ipython3
ledger.report("beta", {"C1": beta.mean(draws)}, profile=profile)
```
"""
)

CLAIM = """\
[[claim]]
id = "{id}"
statement = "{statement}"
paper_value = "{paper}"
source = "abstract"
metric = "{metric}"
test = {{operator = "{operator}", threshold = {threshold}}}
scale = "a toy"
profile = "quick"

"""

FILES = {
    "pyproject.toml": '[project]\nname = "toybook"\nversion = "0"\n\n[tool.icml24]\npackage = "toybook"\n',
    "_config.yml": "title: A toy book\nonly_build_toc_files: true\nexecute: {execute_notebooks: 'off'}\n",
    "_toc.yml": """\
        format: jb-book
        root: book/index
        parts:
          - caption: First things
            numbered: 1
            chapters: [{file: book/one/alpha}]
          - caption: Second things
            numbered: 1
            chapters: [{file: book/two/beta}]
        """,
    "book/index.md": "# A toy book\n\nTwo chapters.\n",
    "book/one/alpha.md": ALPHA,
    "book/two/beta.md": BETA,
    "src/toybook/__init__.py": "",
    "src/toybook/common/__init__.py": "",
    "src/toybook/common/numbers.py": "def square(x):\n    return x * x\n",
    "src/toybook/common/extra.py": "def count(xs):\n    return len(xs)\n",
    "src/toybook/common/unused.py": "VALUE = 1\n",
    "src/toybook/papers/__init__.py": "",
    "src/toybook/papers/alpha/__init__.py": "from toybook.papers.alpha.core import total\n",
    "src/toybook/papers/alpha/core.py": """\
        def total(n):
            from toybook.common.numbers import square

            return sum(square(k) for k in range(1, n + 1))
        """,
    "src/toybook/papers/beta/__init__.py": "from .core import mean\n",
    "src/toybook/papers/beta/core.py": """\
        from ...common import extra
        from ...common.numbers import square


        def mean(xs):
            return sum(x + 0 * square(x) for x in xs) / extra.count(xs)
        """,
    "src/toybook/papers/alpha/claims.toml": CLAIM.format(
        id="C1", statement="The sum is large", paper="204", metric="sum", operator=">=", threshold=100
    )
    + CLAIM.format(id="C2", statement="Few steps do", paper="8", metric="steps", operator="<=", threshold=80),
    "src/toybook/papers/beta/claims.toml": CLAIM.format(
        id="C1", statement="The mean is a half", paper="0.5", metric="mean", operator=">", threshold=0.4
    ),
}


def make(root: Path) -> Book:
    """Write the toy book into `root` and load it."""
    texts = {name: text if name.endswith(".md") else textwrap.dedent(text) for name, text in FILES.items()}
    return write(root, texts)


def write(root: Path, files: Mapping[str, str]) -> Book:
    """Write the files of a book, by path from `root`, and load it."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return Book.load(root)


def edit(book: Book, name: str, old: str, new: str) -> None:
    """Replace `old`, which must be there, in a file of the book."""
    path = book.root / name
    text = path.read_text(encoding="utf-8")
    assert old in text, f"{old!r} is not in {name}"
    path.write_text(text.replace(old, new), encoding="utf-8")


def append(book: Book, name: str, text: str) -> None:
    """Add `text` at the end of a file of the book."""
    with (book.root / name).open("a", encoding="utf-8") as stream:
        stream.write(text)


def code_cell(source: str) -> str:
    """A code cell as md:myst writes it."""
    return f"\n```{{code-cell}} ipython3\n{textwrap.dedent(source).strip()}\n```\n"


def environment() -> dict[str, str]:
    """Environment in which a subprocess of a test finds this `icml24` and no data."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}


def command(*arguments: str) -> list[str]:
    """`icml24` as a command line of this interpreter."""
    return [sys.executable, "-m", "icml24.cli", *arguments]


def call(book: Book, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run `icml24 ARGUMENTS` in the book's folder to its end."""
    settings: dict[str, object] = {"cwd": book.root, "env": environment(), "timeout": 120}
    return subprocess.run(command(*arguments), capture_output=True, text=True, **(settings | options))
