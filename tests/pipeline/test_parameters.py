"""Parameter cells: names, types and values checked before anything runs."""

from __future__ import annotations

import math
import pathlib

import numpy as np
import pytest
import toybook
from hypothesis import given
from hypothesis import strategies as st

from icml24.pipeline import parameters, types_of
from icml24.pipeline.errors import BadParameter, BookError, UnknownParameter


def test_declared_reads_types_defaults_and_help(book):
    declared = parameters.declared(book.chapter("alpha"))
    assert list(declared) == ["profile", "seed", "steps", "scale", "sizes", "label", "pair", "fast"]
    assert declared["steps"] == parameters.Parameter("steps", "int", 8, "how many terms")
    assert declared["pair"].default == (3, 4)
    assert declared["label"].type == "str | None"


def test_declared_without_annotation_and_with_an_expression(book):
    toybook.edit(
        book,
        "book/one/alpha.md",
        "steps: int = 8  # how many terms",
        "steps = 8  # how many\nrate = 2 ** -3\nrest: int",
    )
    declared = parameters.declared(book.chapter("alpha"))
    assert (declared["steps"].type, declared["steps"].help) == ("int", "how many")
    assert (declared["rate"].type, declared["rate"].default) == ("Any", "2 ** -3")
    assert "rest" not in declared
    with pytest.raises(BadParameter, match="a whole number"):
        parameters.check(book.chapter("alpha"), {"steps": "many"})


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [(":tags: [parameters]\n", "", "has 0 code cells"), ("steps: int = 8", "steps: = 8", "not Python")],
)
def test_no_usable_parameter_cell(book, old, new, said):
    toybook.edit(book, "book/one/alpha.md", old, new)
    with pytest.raises(BookError, match=said):
        parameters.declared(book.chapter("alpha"))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("steps", "12", 12),
        ("steps", "-1_000", -1000),
        ("scale", "1", 1.0),
        ("scale", "1e-3", 1e-3),
        ("scale", "inf", math.inf),
        ("sizes", "4,5", [4, 5]),
        ("sizes", "[4, 5]", [4, 5]),
        ("sizes", "7", [7]),
        ("sizes", "[]", []),
        ("label", "None", None),
        ("label", "12", "12"),
        ("label", 'it\'s "so"', 'it\'s "so"'),
        ("pair", "1,2", (1, 2)),
        ("fast", "TRUE", True),
        ("fast", "no", False),
    ],
)
def test_words_become_values(book, name, text, value):
    chapter = book.chapter("alpha")
    found = parameters.parse(chapter, [(name, text)]).get(name, parameters.declared(chapter)[name].default)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("steps", "1.5", "a whole number"),
        ("steps", "", "a whole number"),
        ("scale", "fast", "a number"),
        ("fast", "1", "true or false"),
        ("sizes", "1,two", r"a list of int \(item 2 is 'two', not a whole number\)"),
        ("pair", "1,2,3", r"2 values, not 3"),
    ],
)
def test_words_of_another_type(book, name, text, expected):
    with pytest.raises(BadParameter, match=expected) as caught:
        parameters.parse(book.chapter("alpha"), [(name, text)])
    declared = parameters.declared(book.chapter("alpha"))[name]
    assert name in str(caught.value)
    assert declared.type in str(caught.value)
    assert declared.help in str(caught.value)


def test_unknown_names_and_the_profile(book):
    chapter = book.chapter("alpha")
    with pytest.raises(UnknownParameter, match="no parameter 'step'; did you mean steps"):
        parameters.parse(chapter, [("step", "1")])
    with pytest.raises(UnknownParameter, match="known are: fast, label, pair, scale, seed, sizes, steps"):
        parameters.check(chapter, {"qqq": 1})
    with pytest.raises(BadParameter, match="--profile quick"):
        parameters.parse(chapter, [("profile", "full")])


def test_everything_wrong_is_said_at_once(book):
    with pytest.raises(BookError) as caught:
        parameters.parse(book.chapter("alpha"), [("stepz", "1"), ("scale", "x"), ("sizes", "y")])
    assert [word in str(caught.value) for word in ("stepz", "'scale'", "'sizes'")] == [True] * 3


@pytest.mark.parametrize(
    ("given_", "kept"),
    [
        ({"steps": np.int64(3)}, {"steps": 3}),
        ({"scale": np.float32(0.25)}, {"scale": 0.25}),
        ({"scale": 2}, {"scale": 2.0}),
        ({"sizes": np.array([5, 6])}, {"sizes": [5, 6]}),
        ({"sizes": (5, 6)}, {"sizes": [5, 6]}),
        ({"pair": [5, 6]}, {"pair": (5, 6)}),
        ({"label": pathlib.PurePosixPath("a/b")}, {"label": "a/b"}),
        ({"fast": np.bool_(True)}, {"fast": True}),
        ({"steps": 8, "scale": 0.5, "pair": (3, 4)}, {}),  # the defaults: nothing to inject
    ],
)
def test_values_become_plain(book, given_, kept):
    found = parameters.check(book.chapter("alpha"), given_)
    assert found == kept
    assert all(type(found[name]) is type(kept[name]) for name in kept)


@pytest.mark.parametrize(
    "given_", [{"steps": True}, {"steps": 1.0}, {"fast": 1}, {"sizes": {1}}, {"label": 3}, {"scale": "1"}]
)
def test_values_of_another_type(book, given_):
    with pytest.raises(BadParameter, match=next(iter(given_))):
        parameters.check(book.chapter("alpha"), given_)


def test_effective_injected_and_names(book):
    alpha = book.chapter("alpha")
    assert parameters.injected("quick", {}) == {}
    assert parameters.injected("full", {"steps": 3}) == {"profile": "full", "steps": 3}
    effective = parameters.effective(alpha, "full", {"steps": 3})
    assert (effective["profile"], effective["steps"], effective["seed"]) == ("full", 3, 0)
    one, other = ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert parameters.overrides_hash(one) == parameters.overrides_hash(other)
    assert parameters.overrides_hash(one) != parameters.overrides_hash({"a": 1, "b": 3})


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("0.1,1", ["0.1", "1"]),
        ("[1,2],[3]", ["[1,2]", "[3]"]),
        ("'a,b',c", ["'a,b'", "c"]),
        ("(1,(2,3)), 4", ["(1,(2,3))", "4"]),
        ("7,", ["7"]),
        ("", [""]),
    ],
)
def test_split_values(text, parts):
    assert parameters.split_values(text) == parts


VALUES = {
    "int": st.integers(-(10**9), 10**9),
    "float": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "list[int]": st.lists(st.integers(-99, 99), max_size=4),
    "tuple[int, ...]": st.lists(st.integers(-99, 99), max_size=4).map(tuple),
    "list[list[float]]": st.lists(st.lists(st.floats(-9, 9), min_size=1, max_size=3), min_size=1, max_size=3),
    "Optional[float]": st.none() | st.floats(allow_nan=False),
    "int | None": st.none() | st.integers(-99, 99),
    "dict": st.dictionaries(st.text("abc", max_size=3), st.integers(), max_size=3),
    "'int'": st.integers(-9, 9),
    "Literal['adam', 'sgd']": st.sampled_from(["adam", "sgd"]),
}


@given(st.sampled_from(sorted(VALUES)).flatmap(lambda name: st.tuples(st.just(name), VALUES[name])))
def test_what_python_prints_is_read_back(pair):
    annotation, value = pair
    for text in (str(value), repr(value)) if not isinstance(value, str) else (value,):
        found = types_of.from_text(annotation, text)
        assert found == value
        assert type(found) is type(value)
    assert types_of.from_value(annotation, value) == value


def test_the_narrower_type_of_a_union_wins():
    assert types_of.from_text("str | int", "3") == 3
    assert types_of.from_text("float | int", "3") == 3
    assert isinstance(types_of.from_text("float | int", "3"), int)
    assert types_of.from_text("int | str", "x") == "x"
    assert types_of.from_text("SomethingElse", "[1]") == [1]
