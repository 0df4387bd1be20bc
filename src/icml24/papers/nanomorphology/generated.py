r"""The generated table: the laboratory table's columns with a truth that is known.

No row comes from a laboratory. Conditions are drawn from plausible ranges; each shape is present
with a probability that a documented rule gives, so the best possible accuracy of any model can
be computed exactly. The rule is ours and claims no chemistry. One shape, Flat, follows no
condition at all: on it every model must fail, and should be seen to.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from icml24.common.random import numpy_generator
from icml24.papers.nanomorphology.procedures import CONDITIONS
from icml24.papers.nanomorphology.targets import NUMERIC, POLYMERS, SHAPES, SOLVENTS, SURFACTANTS

__all__ = [
    "best_accuracy",
    "encode_conditions",
    "generated_conditions",
    "generated_dataset",
    "rule_probability",
]

#: Rows of the table of conditions, and rows that carry labels, as in the laboratory's tables.
SYNTHESES, LABELLED = 215, 209

#: Molecular weights in kDa offered for each polymer (made up, of the usual order).
WEIGHTS: Mapping[str, tuple[float, ...]] = {
    "PAA": (2.5, 5.0),
    "PEG": (4.0, 10.0, 20.0),
    "PEI": (25.0, 60.0),
    "PSS": (75.0, 1000.0),
    "PVP": (40.0, 360.0),
}

#: Mean size of each shape and its slope in standardised time, in the table's unit.
SIZES: Mapping[str, tuple[float, float]] = {
    "Cube": (17.5, 4.0),
    "Stick": (40.0, 8.0),
    "Sphere": (12.0, 2.5),
    "Flat": (26.0, 0.0),
    "Amorphous": (16.0, 5.0),
}


def generated_conditions(seed: int = 0, rows: int = SYNTHESES) -> pd.DataFrame:
    """Synthesis conditions drawn at random, with the laboratory table's columns.

    Parameters
    ----------
    seed : int, default 0
    rows : int, default 215

    Returns
    -------
    pandas.DataFrame, shape (rows, 13)
        Ions in mM, molecular weight in kDa, contents in % wt. or % vol., stirring in rpm,
        temperature in C, time as text (``"12 min 30 sec"``); absent substances are missing values.
    """
    if rows < 1:
        raise ValueError(f"rows must be at least 1; got {rows}")
    draw = numpy_generator(seed, "nanomorphology", "conditions")
    calcium = np.clip(np.round(draw.lognormal(np.log(85), 0.6, rows)), 15, 400)
    anion = np.clip(np.round(draw.lognormal(np.log(90), 0.7, (2, rows))), 5, 400)
    kind = draw.integers(0, 3, rows)  # carbonate only, bicarbonate only, both
    carbonate, bicarbonate = np.where(kind != 1, anion[0], 0), np.where(kind != 0, anion[1], 0)
    polymer = _pick(draw, [name for name in POLYMERS if name != "No_polymer"], 0.60, rows)
    surfactant = _pick(draw, [name for name in SURFACTANTS if name != "No_surfactant"], 0.65, rows)
    solvent = _pick(draw, [name for name in SOLVENTS if name != "No_solvent"], 0.55, rows)
    weight = [float(draw.choice(WEIGHTS[name])) if name else 0.0 for name in polymer]
    stirring = np.where(draw.random(rows) < 0.5, 0, 10 * draw.integers(10, 81, rows))
    seconds = np.clip(10 * np.round(draw.lognormal(np.log(900), 0.8, rows) / 10), 120, 5400).astype(int)
    columns = {
        "Ca ion, mM": calcium.astype(np.int64),
        "CO3 ion, mM": carbonate.astype(np.int64),
        "HCO3 ion, mM": bicarbonate.astype(np.int64),
        "Polymer type": polymer,
        "Polymer Mwt, kDa": weight,
        "Polymer, % wt.": np.where(
            [bool(p) for p in polymer], np.round(draw.uniform(0.05, 1.2, rows), 3), 0.0
        ),
        "Surfactant type": surfactant,
        "Surfactant, % wt.": np.where(
            [bool(s) for s in surfactant], np.round(draw.uniform(0.02, 1.5, rows), 3), 0.0
        ),
        "Solvent type": solvent,
        "Solvent, % vol.": np.where([bool(s) for s in solvent], np.round(draw.uniform(5, 60, rows), 1), 0.0),
        "Stirring, rpm": stirring.astype(np.int64),
        "Temperature, C": draw.integers(19, 77, rows),
        "Synthesis time": [f"{s // 60} min {s % 60} sec" for s in seconds],
    }
    return pd.DataFrame(columns)[list(CONDITIONS)]


def encode_conditions(conditions: pd.DataFrame) -> pd.DataFrame:
    """The 29 feature columns of a table of conditions (one-hot substances, time in seconds)."""
    out = pd.DataFrame(index=conditions.index)
    for name in NUMERIC[:-1]:
        out[name] = conditions[name]
    parts = conditions["Synthesis time"].str.extract(r"^(\d+) min (\d+) sec$").astype(np.int64)
    out["Synthesis time"] = 60 * parts[0] + parts[1]
    for column, names, none in (
        ("Surfactant type", SURFACTANTS, "No_surfactant"),
        ("Solvent type", SOLVENTS, "No_solvent"),
        ("Polymer type", POLYMERS, "No_polymer"),
    ):
        kind = conditions[column].astype(object).where(conditions[column].notna(), none)
        for name in names:
            out[name] = (kind == name).astype(np.int64)
    return out


def rule_probability(features: pd.DataFrame) -> pd.DataFrame:
    r"""Probability of each shape under the documented rule.

    With :math:`T` the temperature standardised as :math:`(T-47)/17`, :math:`\tau` the logarithm of
    the time standardised as :math:`(\log t - \log 900)/0.8`, and :math:`S, P, V` one where a
    surfactant, polymer or solvent is present, each shape is drawn with probability
    :math:`\sigma(\cdot)`, :math:`\sigma` the logistic function, of

    ========== ==================================
    Cube       :math:`0.9 - 2.2\,T + 1.2\,\tau`
    Stick      :math:`-0.8 + 2.6\,T + 1.6\,V`
    Sphere     :math:`-3.2 + 3.6\,S + 1.2\,P`
    Flat       :math:`-2.7`, whatever the conditions
    Amorphous  :math:`-2.6 - 1.8\,\tau + 1.6\,P`
    ========== ==================================

    independently of one another; a row that would stay empty gets its most probable shape.

    Parameters
    ----------
    features : pandas.DataFrame
        With the 29 feature columns, unscaled.

    Returns
    -------
    pandas.DataFrame, shape (rows, 5)
        Probability of each shape, the rule for empty rows included: exact.
    """
    raw = _rule(features)
    chance = raw.copy()
    chance[np.arange(len(raw)), raw.argmax(axis=1)] += np.prod(1 - raw, axis=1)
    return pd.DataFrame(chance, columns=list(SHAPES), index=features.index)


def best_accuracy(features: pd.DataFrame) -> pd.Series:
    r"""Accuracy per shape of the best possible rule on these rows, :math:`\mathrm{mean}\,\max(p, 1-p)`."""
    chance = rule_probability(features)
    return np.maximum(chance, 1 - chance).mean()


def generated_dataset(seed: int = 0, rows: int = LABELLED) -> pd.DataFrame:
    """A labelled table with the laboratory table's columns, types and number of rows.

    Parameters
    ----------
    seed : int, default 0
        Of the conditions, the labels, the sizes and of which syntheses carry no label.
    rows : int, default 209
        At most 215; ``Image_id`` points into ``generated_conditions(seed)``.

    Returns
    -------
    pandas.DataFrame, shape (rows, 45)
        Integers except the four columns of contents. Sizes are integers in an arbitrary unit.
    """
    if not 1 <= rows <= SYNTHESES:
        raise ValueError(f"rows must lie between 1 and {SYNTHESES}; got {rows}")
    draw = numpy_generator(seed, "nanomorphology", "labels")
    kept = np.sort(draw.permutation(SYNTHESES)[:rows])
    features = encode_conditions(generated_conditions(seed)).loc[kept].reset_index(drop=True)
    raw = _rule(features)
    present = draw.random(raw.shape) < raw
    empty = ~present.any(axis=1)
    present[empty, raw[empty].argmax(axis=1)] = True
    sizes = _sizes(features, present, draw)
    labels = pd.DataFrame(present.astype(np.int64), columns=list(SHAPES))
    ids = pd.Series(kept.astype(np.int64), name="Image_id")
    return pd.concat([ids, features, sizes, labels], axis=1)


def _rule(features: pd.DataFrame) -> np.ndarray:
    warm = (features["Temperature, C"].to_numpy(float) - 47) / 17
    late = (np.log(features["Synthesis time"].to_numpy(float)) - np.log(900)) / 0.8
    surfactant, polymer, solvent = (
        1.0 - features[name].to_numpy(float) for name in ("No_surfactant", "No_polymer", "No_solvent")
    )
    logit = np.stack(
        [
            0.9 - 2.2 * warm + 1.2 * late,
            -0.8 + 2.6 * warm + 1.6 * solvent,
            -3.2 + 3.6 * surfactant + 1.2 * polymer,
            np.full(len(features), -2.7),
            -2.6 - 1.8 * late + 1.6 * polymer,
        ],
        axis=1,
    )
    return 1 / (1 + np.exp(-logit))


def _sizes(features: pd.DataFrame, present: np.ndarray, draw: np.random.Generator) -> pd.DataFrame:
    """Size intervals: mean linear in the standardised time, 30 % noise, half-width a fifth of the mean."""
    late = (np.log(features["Synthesis time"].to_numpy(float)) - np.log(900)) / 0.8
    out = {}
    for k, shape in enumerate(SHAPES):
        mean, slope = SIZES[shape]
        size = np.maximum(mean + slope * late + 0.3 * mean * draw.standard_normal(len(late)), 3.0)
        half = 0.2 * size
        out[f"{shape}_min"] = np.where(present[:, k], np.round(size - half), 0).astype(np.int64)
        out[f"{shape}_max"] = np.where(present[:, k], np.round(size + half), 0).astype(np.int64)
    return pd.DataFrame(out)


def _pick(draw: np.random.Generator, names: list[str], absent: float, rows: int) -> list[str | None]:
    chosen = draw.integers(0, len(names), rows)
    return [
        None if missing else names[k] for k, missing in zip(chosen, draw.random(rows) < absent, strict=True)
    ]
