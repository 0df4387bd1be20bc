"""Arguments are accepted or refused with a message that names them."""

import math

import numpy as np
import pytest
import torch

from icml24.common import checks


@pytest.mark.parametrize("value", [2, np.int64(2), torch.tensor(2)])
def test_whole_accepts_every_integer_type(value):
    out = checks.whole("steps", value, 1)
    assert type(out) is int
    assert out == 2


@pytest.mark.parametrize("value", [2.0, "2", None, True, np.float64(2), [2]])
def test_whole_refuses_other_kinds_as_type_and_value_error(value):
    for kind in (TypeError, ValueError):
        with pytest.raises(kind, match=r"steps must be a whole number \(an integer\), at least 1"):
            checks.whole("steps", value, 1)


def test_whole_has_an_upper_end():
    assert checks.whole("bits", 16, 1, 16) == 16
    for value in (0, 17):
        with pytest.raises(ValueError, match=f"from 1 to 16; got {value}"):
            checks.whole("bits", value, 1, 16)


def test_whole_refuses_small_numbers_with_a_value_error_only():
    with pytest.raises(ValueError, match="at least 1; got 0") as caught:
        checks.whole("steps", 0, 1)
    assert not isinstance(caught.value, TypeError)


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), torch.tensor([0.5]), torch.tensor(0.5).double()])
def test_number_accepts_scalars(value):
    assert checks.number("rate", value) == 0.5
    assert checks.positive("rate", value) == 0.5
    assert checks.probability("rate", value) == 0.5


@pytest.mark.parametrize("value", ["0.5", True, None, [0.5, 0.5], torch.ones(2), 1j, 10**400])
def test_number_refuses_other_kinds(value):
    with pytest.raises(TypeError, match="rate must be a number"):
        checks.number("rate", value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_must_be_finite(value):
    for check in (checks.number, checks.positive, checks.nonnegative):
        with pytest.raises(ValueError, match="finite"):
            check("rate", value)
    with pytest.raises(ValueError, match="rate must lie in"):
        checks.probability("rate", value)


def test_bounds_of_numbers():
    assert checks.number("x", 1, least=1) == 1.0
    with pytest.raises(ValueError, match="above 1"):
        checks.number("x", 1, least=1, strict=True)
    with pytest.raises(ValueError, match="at least 1"):
        checks.number("x", 0.5, least=1)
    with pytest.raises(ValueError, match="positive"):
        checks.positive("x", 0)
    assert checks.nonnegative("x", 0) == 0.0
    with pytest.raises(ValueError, match="zero or positive"):
        checks.nonnegative("x", -1)
    assert checks.probability("p", 1, closed=True) == 1.0
    for value in (0, 1):
        with pytest.raises(ValueError, match=r"p must lie in \(0, 1\)"):
            checks.probability("p", value)
    with pytest.raises(ValueError, match=r"p must lie in \[0, 1\]"):
        checks.probability("p", 1.5, closed=True)


def test_tensors():
    x = torch.ones(3, requires_grad=True)
    assert checks.finite("x", x) is x
    with pytest.raises(TypeError, match=r"x must be a floating point torch.Tensor; got list"):
        checks.floating("x", [1.0])
    with pytest.raises(ValueError, match=r"floating point dtype; got torch.int64"):
        checks.floating("x", torch.ones(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="1 of its 2 values"):
        checks.finite("x", torch.tensor([1.0, math.nan]))
    assert checks.finite("x", torch.ones(0)).numel() == 0
    checks.same_shape("x", x, "y", torch.zeros(3))
    with pytest.raises(ValueError, match=r"x and y must have one shape; got \(3,\) and \(2,\)"):
        checks.same_shape("x", x, "y", torch.zeros(2))
