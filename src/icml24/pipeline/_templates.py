"""Texts that `new` lays out. They run as they are, and promise nothing that is not there yet."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["CHAPTER", "CLAIMS", "EXPERIMENTS", "PACKAGE", "TESTS", "fill"]


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace ``@name`` for each name of `values`; another ``@`` and every dollar sign stay."""
    names = "|".join(map(re.escape, values))
    return re.sub(rf"@({names})\b", lambda match: values[match[1]], text)


CHAPTER = """\
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

(chap-@slug)=
# @title

```{code-cell} ipython3
:tags: [parameters]

profile: str = "quick"  # quick or full
seed: int = 0  # base seed of every generator
```

```{code-cell} ipython3
from icml24 import ledger
from @package.papers import @slug
```

## Overview

% The question, the idea in two sentences, what the reader will compute, what they should know.

## Setting and notation

% Every symbol once, with its shape and unit.

## Derivation

% Each idea in four beats: what we want, the labelled equation, the code that is the equation, a check
% one could have doubted. Labels: eq-@slug-<noun>, each referred to and each with a test.

## The algorithm

% From the equations to code, piece by piece; every faster form against the plain one.

## Checks on small cases

% Cases whose answer the reader knows.

## Experiments

% Fair baselines, several seeds, uncertainty shown. Figure cells end in `fig = @slug.plot_...(...)` and
% carry the options mystnb: figure: {name: fig-@slug-<noun>, caption} and image: {alt}.

```{code-cell} ipython3
config = @slug.configure(profile, seed=seed)
config
```

## Ledger of claims

```{code-cell} ipython3
ledger.report("@slug", {"C1": ledger.Untestable("not measured yet")}, profile=profile)
```

## What differs from the paper

% Sizes, data, and where the paper and its code disagree.

## Exercises

% Two to four, each {exercise} with a {solution} of :class: dropdown whose code runs with the chapter.

## References

```{bibliography}
:filter: docname in docnames
```
"""

PACKAGE = '''\
r"""@title: what the chapter of this name computes."""

from __future__ import annotations

from @package.papers.@slug.experiments import FULL, QUICK, Config, configure

__all__ = ["FULL", "QUICK", "Config", "configure"]
'''

EXPERIMENTS = '''\
r"""Sizes of the experiments, `QUICK` and `FULL`; functions from a configuration to results belong here."""

from __future__ import annotations

from dataclasses import dataclass

from icml24.common.profiles import choose

__all__ = ["FULL", "QUICK", "Config", "configure"]


@dataclass(frozen=True)
class Config:
    """Size of a run.

    Attributes
    ----------
    seed : int
        Base seed of every generator.
    """

    seed: int = 0


#: At most a minute on one thread.
QUICK = Config()

#: The size of the recorded results.
FULL = Config()


def configure(profile: str, **overrides: object) -> Config:
    """Return the configuration of a profile, single fields replaced (see `choose`)."""
    return choose({"quick": QUICK, "full": FULL}, profile, **overrides)
'''

CLAIMS = """\
# One table per claim of the paper, in our words. Thresholds are chosen before the reported run and then
# left. Operators: <= < >= > == between is_true; a list of tests for measured mappings, each with `of`.
# At least four claims are testable at quick, offline.

[[claim]]
id = "C1"
statement = "What the paper says, in one sentence"
paper_value = "not verified"
source = "abstract"
metric = "what is measured, with its unit"
test = {operator = ">=", threshold = 0.0}
scale = "what is smaller here than in the paper"
"""

TESTS = '''\
"""Equations, parity, laws and errors of the package: one file per module.

A test that checks a labelled equation says so: ``@pytest.mark.equation("eq-@slug-<noun>")``.
"""
'''
