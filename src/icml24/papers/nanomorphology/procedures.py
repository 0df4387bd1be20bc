"""A synthesis as text: fill a sentence template with the conditions of one row."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from types import MappingProxyType

import pandas as pd

__all__ = ["CONDITIONS", "FIELDS", "TEMPLATES", "render_procedure"]

#: Template field -> column of the table of synthesis conditions.
FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "ca_conc": "Ca ion, mM",
        "co3_conc": "CO3 ion, mM",
        "hco3_conc": "HCO3 ion, mM",
        "polymer": "Polymer type",
        "pol_mass": "Polymer Mwt, kDa",
        "pol_conc": "Polymer, % wt.",
        "surfactant": "Surfactant type",
        "surf_conc": "Surfactant, % wt.",
        "solvent": "Solvent type",
        "solvent_volume": "Solvent, % vol.",
        "stir_ratio": "Stirring, rpm",
        "r_temp": "Temperature, C",
        "r_time": "Synthesis time",
    }
)

#: Fields that the public code fills with a constant: the volume of polymer and surfactant solution.
CONSTANTS: Mapping[str, int] = MappingProxyType({"pol_vol": 20, "surf_vol": 20})

#: Columns of the table of synthesis conditions, in file order.
CONDITIONS: tuple[str, ...] = tuple(FIELDS.values())

#: Templates of our own with the authors' fields; theirs are read at run time where present.
TEMPLATES: tuple[str, ...] = (
    "Prepare solution A from {ca_conc} mM of calcium ions and {pol_vol} units of {polymer} ({pol_mass} kDa, "
    "{pol_conc} % wt.). Prepare solution B from {co3_conc} mM carbonate, {hco3_conc} mM bicarbonate and "
    "{surf_vol} units of {surfactant} at {surf_conc} % wt. Both contain {solvent_volume} % vol. of {solvent}. "
    "Mix them at {r_temp} C while stirring at {stir_ratio} rpm; stop after {r_time}.",
    "At {r_temp} C and {stir_ratio} rpm, carbonate ({co3_conc} mM) and bicarbonate ({hco3_conc} mM) with "
    "{surf_conc} % wt. {surfactant} ({surf_vol} units) were poured into {ca_conc} mM calcium chloride with "
    "{pol_conc} % wt. {polymer} of {pol_mass} kDa ({pol_vol} units). The medium held {solvent_volume} % vol. "
    "{solvent}. The particles were collected after {r_time}.",
    "Calcium carbonate was precipitated for {r_time}. Medium: water with {solvent_volume} % vol. {solvent}. "
    "Cations: {ca_conc} mM. Anions: {co3_conc} mM carbonate, {hco3_conc} mM bicarbonate. Polymer: {polymer}, "
    "{pol_mass} kDa, {pol_conc} % wt., {pol_vol} units. Surfactant: {surfactant}, {surf_conc} % wt., "
    "{surf_vol} units. Temperature {r_temp} C, stirring {stir_ratio} rpm.",
)


def render_procedure(conditions: Mapping[str, object], template: str) -> str:
    """Fill one template with the conditions of one synthesis.

    Parameters
    ----------
    conditions : mapping
        Keys are the column names of the table of synthesis conditions (`CONDITIONS`); a row of
        that table works as it is. A missing value (None, NaN) is written ``nan``.
    template : str
        With the fields of `FIELDS`, ``{pol_vol}`` and ``{surf_vol}``.

    Returns
    -------
    str
        Values are written as ``str.format`` writes them: an integer as ``12``, a float as ``12.0``.

    Raises
    ------
    KeyError
        The template has an unknown field, or the conditions lack a column that it needs.

    Examples
    --------
    >>> render_procedure({"Polymer type": None, "Temperature, C": 31}, "{polymer} at {r_temp} C")
    'nan at 31 C'
    """
    values: dict[str, object] = dict(CONSTANTS)
    for _, field, _, _ in Formatter().parse(template):
        if field is None or field in values:
            continue
        if field not in FIELDS:
            raise KeyError(
                f"unknown template field {field!r}; expected some of {sorted({*FIELDS, *CONSTANTS})}"
            )
        column = FIELDS[field]
        if column not in conditions:
            raise KeyError(f"missing condition {column!r}, needed by the template field {field!r}")
        value = conditions[column]
        values[field] = "nan" if pd.isna(value) else value
    return template.format_map(values)
