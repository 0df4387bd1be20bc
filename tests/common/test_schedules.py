import itertools
import json
from pathlib import Path

import pytest

from icml24.common.schedules import warmup_decay

CASES = json.loads((Path(__file__).parent / "data" / "schedule.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_worked_out_elsewhere(case):
    case = dict(case)
    value = case.pop("value")
    assert warmup_decay(case.pop("step"), case.pop("total"), **case) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("kind", ["cosine", "linear"])
def test_rises_then_falls_to_its_floor_and_stays(kind):
    factors = [warmup_decay(s, 40, warmup=10, floor=0.25, kind=kind) for s in range(60)]
    assert factors[:10] == [(s + 1) / 10 for s in range(10)]
    assert all(a >= b for a, b in itertools.pairwise(factors[10:]))
    assert factors[10] == 1.0
    assert factors[40:] == [0.25] * 20
    assert factors[25] == pytest.approx(0.625, abs=1e-12)  # half way both shapes meet


def test_degenerate_lengths():
    assert warmup_decay(0, 1, warmup=0) == 1.0
    assert (
        warmup_decay(5, 5, warmup=5, floor=0.0) == 1.0
    )  # nothing left to decay over: the peak, then the floor
    assert warmup_decay(6, 5, warmup=5, floor=0.0) == 0.0


@pytest.mark.parametrize(
    ("args", "kwargs", "match"),
    [
        ((-1, 10), {"warmup": 0}, "step"),
        ((0, 0), {"warmup": 0}, "total"),
        ((0, 10), {"warmup": -1}, "warmup"),
        ((0, 10), {"warmup": 0, "floor": 1.5}, "floor"),
        ((0, 10), {"warmup": 0, "kind": "step"}, "cosine"),
    ],
)
def test_rejects(args, kwargs, match):
    with pytest.raises(ValueError, match=match):
        warmup_decay(*args, **kwargs)
