"""The ledger: verdicts are computed, refusals name the claim, and the plain form is stable across machines."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from icml24 import datasets, ledger
from icml24.ledger import Measured, Test, Untestable


def verdict(value, *, profile="quick"):
    return ledger.report("demo", {"C1": value}, profile=profile).verdicts["C1"]


@pytest.mark.parametrize(
    ("operator", "threshold", "inside", "outside"),
    [
        ("<=", 1.0, 1.0, math.nextafter(1.0, 2)),
        ("<", 1.0, math.nextafter(1.0, 0), 1.0),
        (">=", 1.0, 1.0, math.nextafter(1.0, 0)),
        (">", 1.0, math.nextafter(1.0, 2), 1.0),
        ("==", 5, 5, 5.000001),
        ("between", [0.1, 0.2], 0.1, 0.0999),
        ("between", [0.1, 0.2], 0.2, 0.2001),
    ],
)
def test_each_operator_at_its_threshold(claims, operator, threshold, inside, outside):
    claims({"test": {"operator": operator, "threshold": threshold}})
    assert verdict(inside) == "reproduced"
    assert verdict(outside) == "not reproduced"


def test_is_true(claims):
    claims({"test": {"operator": "is_true"}})
    assert (verdict(True), verdict(False)) == ("reproduced", "not reproduced")
    assert (verdict(np.bool_(True)), verdict(torch.tensor(False))) == ("reproduced", "not reproduced")


def test_the_weaker_test_gives_direction_only(claims):
    claims({"test": {"operator": ">=", "threshold": 1.0}, "direction": {"operator": ">", "threshold": 0.0}})
    assert [verdict(v) for v in (1.2, 0.5, -0.5)] == ["reproduced", "direction only", "not reproduced"]


@given(value=st.floats(-5, 5), strong=st.floats(-5, 5))
def test_a_test_holds_exactly_when_its_comparison_does(value, strong):
    assert Test(">=", strong).holds(value) == (not Test("<", strong).holds(value))
    assert Test("between", (strong, strong)).holds(value) == Test("==", strong).holds(value)


def test_composite_tests_need_every_part(claims):
    claims(
        {
            "test": [
                {"of": "accuracy", "operator": ">=", "threshold": 0.9},
                {"of": "seconds", "operator": "<", "threshold": 2.0},
                {"of": "exact", "operator": "is_true"},
            ],
            "direction": {"of": "accuracy", "operator": ">=", "threshold": 0.5},
        }
    )
    good = {"accuracy": 0.95, "seconds": 1.0, "exact": True}
    assert verdict(good) == "reproduced"
    for change in ({"accuracy": 0.8}, {"seconds": 2.0}, {"exact": False}):
        assert verdict(good | change) == "direction only", change
    assert verdict(good | {"accuracy": 0.4}) == "not reproduced"
    row = ledger.report("demo", {"C1": good | {"seconds": 3.0, "exact": False}}).rows[0]
    assert row["failed"] == ["seconds < 2", "exact is true"]


def test_every_entry_of_a_mapping(claims):
    claims({"test": {"of": "*", "operator": "<=", "threshold": 0.02}})
    assert verdict({"a": 0.0, "b": 0.02}) == "reproduced"
    assert verdict({"a": 0.021, "b": 0.0}) == "not reproduced"
    assert verdict({"a": 0.0, "b": 0.021}) == "not reproduced"


def test_numpy_and_torch_scalars_are_stored_as_plain_numbers(claims):
    claims({"test": {"operator": ">", "threshold": 0}})
    for value in (np.float32(0.5), np.int64(2), torch.tensor(0.5), np.array(0.5), torch.tensor([0.5])):
        row = ledger.report("demo", {"C1": value}).rows[0]
        assert type(row["measured"]) is float
        assert row["verdict"] == "reproduced"


def test_intervals_and_own_text(claims):
    claims({"test": {"operator": ">", "threshold": 0.8}})
    row = ledger.report("demo", {"C1": Measured(0.853, low=0.84, high=0.86)}).rows[0]
    assert (row["text"], row["low"], row["high"]) == ("0.853 [0.84, 0.86]", 0.84, 0.86)
    row = ledger.report("demo", {"C1": Measured(0.853, text="85.3 %, 8 seeds")}).rows[0]
    assert (row["text"], row["measured"], row["low"]) == ("85.3 %, 8 seeds", 0.853, None)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (Measured(0.5, low=0.4), "both low and high"),
        (Measured({"a": 1.0}, low=0.4, high=0.6), "one number between"),
        (Measured(0.5, low=0.6, high=0.4), r"low = 0\.6 above high = 0\.4"),
        (Measured(0.5, low=math.nan, high=0.4), "C1 low: the measured value is NaN"),
    ],
)
def test_intervals_that_make_no_sense(claims, value, match):
    claims({"test": {"operator": ">", "threshold": 0}})
    with pytest.raises(ValueError, match=match):
        ledger.report("demo", {"C1": value})


def test_untestable_gives_the_reason_and_no_figure(claims):
    claims({"test": {"operator": ">", "threshold": 0}})
    row = ledger.report("demo", {"C1": Untestable("no GPU on this machine")}).rows[0]
    assert (row["verdict"], row["reason"]) == ("not testable here", "no GPU on this machine")
    assert (row["measured"], row["text"]) == (None, "–")
    with pytest.raises(ValueError, match="needs a reason"):
        Untestable("  ")


def test_a_claim_of_the_full_profile_waits_for_it(claims):
    claims({"test": {"operator": ">", "threshold": 0}, "profile": "full"})
    for measured in ({}, {"C1": 1.0}, {"C1": Untestable("skipped")}):
        row = ledger.report("demo", measured).rows[0]
        assert (row["verdict"], row["reason"]) == ("not testable here", "tested in the full profile only")
        assert row["measured"] is None
    assert verdict(1.0, profile="full") == "reproduced"
    with pytest.raises(ValueError, match=r"no value for \['C1'\]"):
        ledger.report("demo", {}, profile="full")
    with pytest.raises(ValueError, match="profile 'fast' is unknown; expected one of"):
        ledger.report("demo", {"C1": 1.0}, profile="fast")


def test_a_data_bound_claim_without_its_data(claims, one_file):
    claims({"test": {"operator": ">", "threshold": 0}, "dataset": "measurements"})
    for measured in ({}, {"C1": 1.0}):  # a value from the stand-in is not held against the paper
        row = ledger.report("demo", measured).rows[0]
        assert (row["verdict"], row["measured"]) == ("not testable here", None)
        assert row["reason"].startswith(
            "needs the data set measurements: run `icml24 data fetch measurements`"
        )
        assert "$ICML24_DATA/demo/" in row["reason"]
    (one_file / "a.csv").write_text("a.csv")
    assert verdict(1.0) == "reproduced"
    with pytest.raises(ValueError, match="no value for"):
        ledger.report("demo", {})


def test_a_claim_may_need_one_file_of_a_data_set(claims, one_file):
    claims({"test": {"operator": ">", "threshold": 0}, "dataset": "measurements/b.csv"})
    (one_file / "a.csv").write_text("a.csv")
    row = ledger.report("demo", {"C1": 1.0}).rows[0]
    assert row["reason"] == (
        "needs the data set measurements/b.csv: it has no public address; put it into $ICML24_DATA/demo/"
    )
    (one_file / "b.csv").write_text("b.csv")
    assert verdict(1.0) == "reproduced"


def test_a_wrong_file_is_an_error_and_not_an_absence(claims, one_file):
    claims({"test": {"operator": ">", "threshold": 0}, "dataset": "measurements"})
    (one_file / "a.csv").write_text("altered")
    with pytest.raises(datasets.HashMismatch, match=r"a\.csv is not the registered"):
        ledger.report("demo", {"C1": 1.0})


@pytest.mark.parametrize(
    ("measured", "match"),
    [
        ({"C1": 1.0, "C2": 1.0, "C9": 1.0}, r"unknown claim ids \['C9'\]; claims.toml has \['C1', 'C2'\]"),
        ({"C1": 1.0}, r"no value for \['C2'\]"),
        ({"C3": 1.0}, r"unknown claim ids \['C3'\] and no value for \['C1', 'C2'\]"),
        ({"C1": math.nan, "C2": 1.0}, "claim C1: the measured value is NaN"),
        ({"C1": 1.0, "C2": -math.inf}, "claim C2: the measured value is infinite"),
        ({"C1": {"a": 1.0}, "C2": 1.0}, "claim C1: got a mapping"),
        ({"C1": {}, "C2": 1.0}, "claim C1: the mapping of measured values is empty"),
        ({"C1": {"a": math.nan}, "C2": 1.0}, r"claim C1\['a'\]: the measured value is NaN"),
    ],
)
def test_values_it_refuses(claims, measured, match):
    test = {"test": {"operator": ">", "threshold": 0}}
    claims(test, test)
    with pytest.raises(ValueError, match=match):
        ledger.report("demo", measured)


@pytest.mark.parametrize("value", ["0.5", None, [0.5], np.array([1.0, 2.0]), torch.zeros(2)])
def test_kinds_it_refuses(claims, value):
    claims({"test": {"operator": ">", "threshold": 0}})
    with pytest.raises(TypeError, match="claim C1: expected"):
        ledger.report("demo", {"C1": value})


def test_truth_values_and_numbers_are_not_mixed(claims):
    claims({"test": {"operator": ">=", "threshold": 1}}, {"test": {"operator": "is_true"}})
    with pytest.raises(TypeError, match="claim C1: the test '>= 1' needs a number, got True"):
        ledger.report("demo", {"C1": True, "C2": True})
    with pytest.raises(
        TypeError, match=r"claim C2: the test 'is true' needs a truth value .is_true., got 1.0"
    ):
        ledger.report("demo", {"C1": 1, "C2": 1})


def test_entries_that_a_test_needs(claims):
    claims({"test": {"of": "a", "operator": ">", "threshold": 0}})
    with pytest.raises(ValueError, match=r"no measured entry 'a'; got \['b'\]"):
        ledger.report("demo", {"C1": {"b": 1.0}})
    with pytest.raises(ValueError, match="needs a mapping with 'a', got one value"):
        ledger.report("demo", {"C1": 1.0})


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"test": {"operator": "=>", "threshold": 1}}, "operator '=>' must be one of"),
        ({"test": {"operator": "<="}}, "<= needs a finite number as threshold, got None"),
        ({"test": {"operator": "<=", "threshold": True}}, "finite number"),
        ({"test": {"operator": "between", "threshold": [2, 1]}}, "low first"),
        ({"test": {"operator": "between", "threshold": 1}}, r"threshold = \[low, high\]"),
        ({"test": {"operator": "is_true", "threshold": 1}}, "takes no threshold"),
        ({"test": {"operator": "<=", "treshold": 1}}, r"unknown keys \['treshold'\]"),
        ({"test": {"operator": "<=", "threshold": 1, "of": 3}}, "`of` must be the name"),
        (
            {"test": [{"operator": "<=", "threshold": 1}, {"operator": ">", "threshold": 0}]},
            "each needs `of`",
        ),
        ({"test": []}, "test must be a table"),
        ({"direction": "up"}, "direction must be a table"),
        ({"profile": "fast"}, "profile 'fast' must be one of"),
        ({"statement": " "}, "statement must be a text that is not empty"),
        ({"dataset": 3}, "dataset must be a text"),
        ({"metric": None}, r"missing fields \['metric'\]"),
        ({"papervalue": "1"}, r"unknown fields \['papervalue'\]"),
    ],
)
def test_claims_that_are_not_in_order(claims, change, match):
    claims({"test": {"operator": ">", "threshold": 0}} | change)
    with pytest.raises(ValueError, match=match) as error:
        ledger.load_claims("demo")
    assert "claims.toml" in str(error.value)
    assert "claim C1" in str(error.value)


def test_every_fault_is_in_one_message(claims):
    claims({"test": {"operator": "~", "threshold": 1}}, {"id": "C1", "test": {"operator": "is_true"}}, {})
    with pytest.raises(ValueError, match="operator '~'") as error:
        ledger.load_claims("demo")
    assert "missing fields ['test']" in str(error.value)
    claims(*[{"id": "C1", "test": {"operator": "is_true"}}] * 2)
    with pytest.raises(ValueError, match="claim C1: this id is used twice"):
        ledger.load_claims("demo")


@pytest.mark.parametrize(
    ("raw", "match"),
    [("x = ", "no valid TOML"), ("", "no claims"), ("[claims]\na = 1", "unknown table 'claims'")],
)
def test_files_that_hold_no_claims(claims, raw, match):
    claims(raw=raw)
    with pytest.raises(ValueError, match=match):
        ledger.load_claims("demo")


def test_no_file_of_claims(claims):
    claims({"test": {"operator": "is_true"}})
    with pytest.raises(FileNotFoundError, match="no claims at"):
        ledger.load_claims("other")


def test_the_test_in_words(claims):
    claims(
        {"test": {"operator": "between", "threshold": [0.845, 0.872]}},
        {
            "test": [{"of": "*", "operator": "<=", "threshold": 1e-6}],
            "direction": {"of": "a", "operator": "is_true"},
        },
    )
    first, second = ledger.load_claims("demo")
    assert first.test == "between 0.845 and 0.872"
    assert second.test == "every entry <= 1e-06 (direction only: a is true)"
