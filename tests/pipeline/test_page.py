"""The reader of a chapter's outline: blocks, headings and words, as a reader of the page would see them."""

from __future__ import annotations

import pytest
import wholebook

from icml24.pipeline._page import Page


@pytest.fixture
def whole(tmp_path):
    return wholebook.make(tmp_path / "whole")


def read(whole, text):
    return Page(whole, whole.chapter("gamma"), text)


def test_words_are_those_a_reader_reads(whole):
    text = """---
title: not me
---
# Not the heading

One $x + y$ three {eq}`eq-a` five.
% not a comment

$$
not + this
$$ (eq-a)

```{math}
:label: eq-b
nor this
```

````{note}
:class: tip
Six seven

```python
not_this = 1
```
````

(label-here)=
"""
    assert read(whole, text).words == 7


def test_blocks_nest_and_close_by_their_own_fence(whole):
    text = "````{a} arg\n:k: v\n\n```{b}\ninner\n```\n:::{c}\n:::\nouter\n````\n```python\n# no heading\n```\n# Heading\n"
    page = read(whole, text)
    assert [(b.name, b.inside, b.line) for b in page.blocks] == [
        ("a", (), 1),
        ("b", ("a",), 4),
        ("c", ("a",), 7),
        ("", (), 11),
    ]
    assert page.blocks[0].argument == "arg"
    assert page.blocks[0].options == {"k": "v"}
    assert [(h.text, h.line) for h in page.headings] == [("Heading", 14)]
