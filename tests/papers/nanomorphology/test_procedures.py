"""Procedures as text."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from icml24.papers.nanomorphology import render_procedure
from icml24.papers.nanomorphology.generated import generated_conditions
from icml24.papers.nanomorphology.procedures import CONDITIONS, CONSTANTS, FIELDS, TEMPLATES

ROW = {
    "Ca ion, mM": 120,
    "CO3 ion, mM": np.int64(7),
    "HCO3 ion, mM": 0,
    "Polymer type": "PEG",
    "Polymer Mwt, kDa": 12.0,
    "Polymer, % wt.": np.float64(0.123),
    "Surfactant type": None,
    "Surfactant, % wt.": 0.0,
    "Solvent type": float("nan"),
    "Solvent, % vol.": 0.0,
    "Stirring, rpm": 0,
    "Temperature, C": 31,
    "Synthesis time": "12 min 34 sec",
}


def test_every_field_by_hand():
    template = "|".join("{" + field + "}" for field in (*FIELDS, *CONSTANTS))
    expected = "120|7|0|PEG|12.0|0.123|nan|0.0|nan|0.0|0|31|12 min 34 sec|20|20"
    assert render_procedure(ROW, template) == expected


@pytest.mark.parametrize("missing", [None, float("nan"), np.nan, pd.NA, pd.NaT])
def test_missing_values_read_nan(missing):
    assert render_procedure(ROW | {"Solvent type": missing}, "{solvent}") == "nan"


@pytest.mark.parametrize("template", TEMPLATES)
def test_our_templates_render_every_row_without_braces(template):
    for _, row in generated_conditions(3).iterrows():
        text = render_procedure(row, template)
        assert not set("{}") & set(text)
        assert str(row["Synthesis time"]) in text


def test_our_templates_use_every_field():
    from string import Formatter

    for template in TEMPLATES:
        used = {field for _, field, _, _ in Formatter().parse(template) if field}
        assert used == {*FIELDS, *CONSTANTS}


def test_unused_columns_need_not_be_there():
    assert render_procedure({"Temperature, C": 20}, "{r_temp} C, {pol_vol}") == "20 C, 20"
    assert render_procedure({}, "no field, {{braces}}") == "no field, {braces}"


@pytest.mark.parametrize("field", ["pressure", "ca_conc.__class__", "0", ""])
def test_unknown_field_is_named(field):
    with pytest.raises(KeyError, match=f"unknown template field '{field}'"):
        render_procedure(ROW, "{" + field + "}")


def test_missing_column_is_named():
    row = {name: value for name, value in ROW.items() if name != "Stirring, rpm"}
    with pytest.raises(KeyError, match=r"Stirring, rpm.*stir_ratio"):
        render_procedure(row, "{stir_ratio}")


def test_conditions_are_the_thirteen_columns():
    assert len(CONDITIONS) == 13
    assert list(generated_conditions(0).columns) == list(CONDITIONS)
