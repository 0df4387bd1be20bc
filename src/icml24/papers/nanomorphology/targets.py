r"""Columns, features and the twenty binary targets of the synthesis table.

One row is one synthesis of calcium carbonate particles: ten numeric conditions, three one-hot
groups (surfactant, solvent, polymer), a size interval for each of five shapes and five shape
labels, of which several may hold at once. Sizes become labels through
eq-nanomorphology-sizes: "this shape is there *and* its mean size falls in this range".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np
import pandas as pd

__all__ = [
    "FEATURES",
    "SHAPES",
    "SIZE_BOUNDS",
    "TARGETS",
    "feature_columns",
    "feature_matrix",
    "make_targets",
]

#: The five shapes, in the order of the table's label columns.
SHAPES: tuple[str, ...] = ("Cube", "Stick", "Sphere", "Flat", "Amorphous")

#: Lower and upper end of "medium" for each shape, in the table's (unstated) unit of size.
SIZE_BOUNDS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "Cube": (15.0, 20.0),
        "Sphere": (10.0, 14.0),
        "Stick": (35.0, 45.0),
        "Flat": (23.0, 30.0),
        "Amorphous": (12.0, 20.0),
    }
)

#: Names of the twenty targets: five shapes, then small, medium and large of each.
TARGETS: tuple[str, ...] = (
    *SHAPES,
    *(f"{shape}_{size}" for shape in ("Cube", "Sphere", "Stick", "Flat", "Amorphous") for size in "sml"),
)

NUMERIC: tuple[str, ...] = (
    "Ca ion, mM",
    "CO3 ion, mM",
    "HCO3 ion, mM",
    "Polymer Mwt, kDa",
    "Polymer, % wt.",
    "Surfactant, % wt.",
    "Solvent, % vol.",
    "Stirring, rpm",
    "Temperature, C",
    "Synthesis time",
)
SURFACTANTS: tuple[str, ...] = (
    "Hexadecyltrimethylammonium bromide",
    "Myristyltrimethylammonium bromide",
    "No_surfactant",
    "Sodium dodecylsulfate",
    "Triton X-100",
)
SOLVENTS: tuple[str, ...] = (
    "1-Hexanol",
    "Dimethylformamide",
    "Ethylene glycol",
    "Isopropyl alcohol",
    "Methyl alcohol",
    "No_solvent",
    "Propylene glycol",
    "tert-Butanol",
)
POLYMERS: tuple[str, ...] = ("No_polymer", "PAA", "PEG", "PEI", "PSS", "PVP")

#: All 29 features in file order.
FEATURES: tuple[str, ...] = (*NUMERIC, *SURFACTANTS, *SOLVENTS, *POLYMERS)

#: The seven columns that the authors' filtered table leaves out.
DROPPED: frozenset[str] = frozenset(
    {
        "Stirring, rpm",
        "Ca ion, mM",
        "CO3 ion, mM",
        "Hexadecyltrimethylammonium bromide",
        "Triton X-100",
        "1-Hexanol",
        "Methyl alcohol",
    }
)

#: How many leading feature columns the protocol rescales, whatever the column set.
SCALED_COLUMNS = 10


def feature_columns(frame: pd.DataFrame, *, filtered: bool = True) -> list[str]:
    """Names of the feature columns, in file order.

    Parameters
    ----------
    frame : pandas.DataFrame
        The labelled table; further columns are allowed.
    filtered : bool, default True
        22 names (the authors' selection) instead of all 29.

    Returns
    -------
    list of str

    Raises
    ------
    KeyError
        A column is missing; the message names it.
    """
    names = [name for name in FEATURES if not (filtered and name in DROPPED)]
    require_columns(frame, names)
    return names


def feature_matrix(frame: pd.DataFrame, *, filtered: bool = True, scale: bool = True) -> pd.DataFrame:
    r"""Features as float64, the first ten columns rescaled to [0, 1].

    Parameters
    ----------
    frame : pandas.DataFrame
        The labelled table, one synthesis a row.
    filtered : bool, default True
        As for `feature_columns`.
    scale : bool, default True
        Map the first ten columns by :math:`x \mapsto (x - \min x)/(\max x - \min x)`, the
        extremes taken over *all* rows, before any split. A constant column becomes 0.

    Returns
    -------
    pandas.DataFrame, shape (rows, 22 or 29), float64
        Same index as `frame`.

    Raises
    ------
    KeyError
        A column is missing.
    ValueError
        No row, or a value that is not a finite number.

    Notes
    -----
    With all columns the first ten are the numeric conditions. The filtered table keeps only
    seven of these, so there the rule also covers three one-hot columns, which it leaves as
    they are. Forests do not feel the scale at all; the step is kept for parity.
    """
    names = feature_columns(frame, filtered=filtered)
    if len(frame) == 0:
        raise ValueError("the table has no row; expected at least one synthesis")
    try:
        features = frame[names].astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"feature columns must hold numbers: {error}") from None
    bad = [name for name in names if not np.isfinite(features[name].to_numpy()).all()]
    if bad:
        raise ValueError(f"feature values must be finite numbers; not so in {bad}")
    if scale:
        first = names[:SCALED_COLUMNS]
        low, high = features[first].min(), features[first].max()
        factor = 1.0 / (high - low).replace(0.0, 1.0)
        features[first] = features[first] * factor - low * factor
    return features


def make_targets(frame: pd.DataFrame) -> pd.DataFrame:
    r"""The twenty binary targets of eq-nanomorphology-sizes.

    .. math:: \bar s &= (s_{\min} + s_{\max})/2, \qquad y^{\text{small}} = y\,[\bar s < l], \\
        y^{\text{medium}} &= y\,[l \le \bar s \le u], \qquad y^{\text{large}} = y\,[\bar s > u]

    Parameters
    ----------
    frame : pandas.DataFrame
        With the columns ``<Shape>``, ``<Shape>_min`` and ``<Shape>_max`` of all five shapes.

    Returns
    -------
    pandas.DataFrame, shape (rows, 20), int64
        Columns `TARGETS`; same index as `frame`.

    Raises
    ------
    KeyError
        A column is missing.
    ValueError
        A shape column holds something other than 0 and 1.
    """
    require_columns(frame, (f"{shape}{end}" for shape in SHAPES for end in ("", "_min", "_max")))
    out: dict[str, np.ndarray] = {}
    for shape in SHAPES:
        present = frame[shape].to_numpy()
        if not np.isin(present, (0, 1)).all():
            raise ValueError(f"column {shape!r} must hold 0 and 1 only")
        present = present.astype(bool)
        size = (frame[f"{shape}_min"].to_numpy(float) + frame[f"{shape}_max"].to_numpy(float)) / 2
        low, high = SIZE_BOUNDS[shape]
        out[shape] = present
        out[f"{shape}_s"] = present & (size < low)
        out[f"{shape}_m"] = present & (low <= size) & (size <= high)
        out[f"{shape}_l"] = present & (size > high)
    return pd.DataFrame({name: out[name].astype(np.int64) for name in TARGETS}, index=frame.index)


def require_columns(frame: pd.DataFrame, names: Iterable[str]) -> None:
    """Raise a `KeyError` that names the first columns a frame lacks."""
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise KeyError(
            f"missing column {', '.join(map(repr, missing))}; the table has {len(frame.columns)} columns"
        )
