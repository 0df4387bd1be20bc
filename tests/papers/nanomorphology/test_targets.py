"""Columns, features, the twenty targets."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icml24.papers.nanomorphology import (
    SHAPES,
    SIZE_BOUNDS,
    feature_columns,
    feature_matrix,
    make_targets,
)
from icml24.papers.nanomorphology.generated import generated_dataset
from icml24.papers.nanomorphology.targets import TARGETS


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return generated_dataset(7)


def one_row(shape: str, low: int, high: int, present: int = 1) -> pd.DataFrame:
    values = {f"{s}{end}": 0 for s in SHAPES for end in ("", "_min", "_max")}
    return pd.DataFrame([values | {shape: present, f"{shape}_min": low, f"{shape}_max": high}])


@pytest.mark.equation("eq-nanomorphology-sizes")
@settings(deadline=None, max_examples=50)
@given(
    shape=st.sampled_from(SHAPES),
    low=st.integers(0, 60),
    width=st.integers(0, 60),
    present=st.integers(0, 1),
)
def test_sizes_split_each_shape_in_three(shape, low, width, present):
    """Small, medium and large partition the shape: exactly one holds where it is present, none elsewhere."""
    row = make_targets(one_row(shape, low, low + width, present)).iloc[0]
    sizes = [row[f"{shape}_{size}"] for size in "sml"]
    assert sum(sizes) == row[shape] == present
    mean, (bottom, top) = low + width / 2, SIZE_BOUNDS[shape]
    if present:
        assert sizes.index(1) == (0 if mean < bottom else 1 if mean <= top else 2)


@pytest.mark.equation("eq-nanomorphology-sizes")
@pytest.mark.parametrize(
    ("shape", "interval", "size"),
    [
        ("Cube", (15, 15), "m"),
        ("Cube", (10, 30), "m"),
        ("Cube", (10, 31), "l"),
        ("Cube", (9, 20), "s"),
        ("Stick", (45, 45), "m"),
        ("Stick", (45, 46), "l"),
        ("Flat", (22, 23), "s"),
    ],
)
def test_bounds_belong_to_medium(shape, interval, size):
    assert make_targets(one_row(shape, *interval)).iloc[0][f"{shape}_{size}"] == 1


def test_targets_of_a_table(frame):
    targets = make_targets(frame)
    assert tuple(targets.columns) == TARGETS
    assert targets.shape == (209, 20)
    assert all(pd.api.types.is_integer_dtype(kind) for kind in targets.dtypes)
    for shape in SHAPES:
        parts = targets[[f"{shape}_{size}" for size in "sml"]]
        assert (parts.sum(axis=1) == targets[shape]).all()
    assert targets[list(SHAPES)].equals(frame[list(SHAPES)])


def test_parity_of_names_and_of_the_partition(parity, frame):
    with np.load(parity / "targets.npz") as file:
        assert list(file["names"]) == list(TARGETS) == list(make_targets(frame).columns)
        assert list(file["filtered_columns"]) == feature_columns(frame)
        assert list(file["all_columns"]) == feature_columns(frame, filtered=False)
        counts = dict(zip(file["names"], file["targets"].sum(axis=0), strict=True))
    assert [int(counts[shape]) for shape in SHAPES] == [140, 84, 40, 16, 34]
    assert [int(counts[f"Flat_{size}"]) for size in "sml"] == [6, 5, 5]


def test_filtered_columns_are_a_subset_in_order(frame):
    every, some = feature_columns(frame, filtered=False), feature_columns(frame)
    assert (len(every), len(some)) == (29, 22)
    assert some == [name for name in every if name in set(some)]


@pytest.mark.parametrize("filtered", [True, False])
def test_scaling_touches_ten_columns_and_no_one_hot(frame, filtered):
    raw = feature_matrix(frame, filtered=filtered, scale=False)
    scaled = feature_matrix(frame, filtered=filtered)
    assert (scaled.dtypes == np.float64).all()
    assert scaled.index.equals(frame.index)
    first = list(raw.columns[:10])
    np.testing.assert_allclose(scaled[first].min(), 0, atol=1e-15)
    np.testing.assert_allclose(scaled[first].max(), 1, rtol=1e-15)
    assert scaled[raw.columns[10:]].equals(raw[raw.columns[10:]])
    one_hot = [name for name in raw.columns if set(raw[name].unique()) <= {0.0, 1.0}]
    assert len(one_hot) >= 15
    assert scaled[one_hot].equals(raw[one_hot])


def test_scaling_equals_scikit_learn(frame):
    from sklearn.preprocessing import MinMaxScaler

    raw = feature_matrix(frame, filtered=False, scale=False).to_numpy()[:, :10]
    ours = feature_matrix(frame, filtered=False).to_numpy()[:, :10]
    np.testing.assert_array_equal(ours, MinMaxScaler().fit_transform(raw))


def test_a_constant_column_becomes_zero(frame):
    flat = frame.assign(**{"Temperature, C": 25})
    assert (feature_matrix(flat)["Temperature, C"] == 0).all()


def test_inputs_are_left_alone(frame):
    before = frame.copy()
    feature_matrix(frame)
    make_targets(frame)
    pd.testing.assert_frame_equal(frame, before)


@pytest.mark.parametrize("column", ["Temperature, C", "PVP"])
def test_missing_feature_is_named(frame, column):
    with pytest.raises(KeyError, match=column):
        feature_columns(frame.drop(columns=column))
    with pytest.raises(KeyError, match=column):
        feature_matrix(frame.drop(columns=column), filtered=False)


@pytest.mark.parametrize("column", ["Stick", "Flat_max"])
def test_missing_label_is_named(frame, column):
    with pytest.raises(KeyError, match=column):
        make_targets(frame.drop(columns=column))


def test_bad_values(frame):
    with pytest.raises(ValueError, match="Temperature"):
        feature_matrix(frame.assign(**{"Temperature, C": np.nan}))
    with pytest.raises(ValueError, match="numbers"):
        feature_matrix(frame.assign(**{"Temperature, C": "warm"}))
    with pytest.raises(ValueError, match="no row"):
        feature_matrix(frame.iloc[:0])
    with pytest.raises(ValueError, match="'Cube' must hold 0 and 1"):
        make_targets(frame.assign(Cube=2))
