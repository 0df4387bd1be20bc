r"""PM-CMR: air pollution, cardiovascular mortality and social conditions of US counties.

=========================================  ======================================================
``pm_cmr_counties.csv``                    2,132 counties, nine variables in 1990, 2000 and 2010
``County_annual_PM25_CMR.csv``             PM2.5 (micrograms a cubic metre) and cardiovascular
                                           mortality (deaths a year per 100,000), 1990-2010
``County_RAW_variables.csv``               seven social variables of three census years
=========================================  ======================================================

Source: US Environmental Protection Agency, doi 10.23719/1506014, public domain. The first file is the
other two merged by county and rounded to six digits; either will do. None is part of this book:
they are read from the folder that ``ICML24_DATA`` names or from the cache of ``icml24 data fetch``.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from icml24 import datasets
from icml24.common.random import numpy_generator

from .slices import SubsampledConfig, random_dag, sample_noise, simulate_slices

__all__ = ["VARIABLES", "available", "county_slices", "load_pm_cmr", "stand_in"]

SLUG = "dht_cit"
MERGED = "pm_cmr_counties.csv"
ANNUAL = "County_annual_PM25_CMR.csv"
SOCIAL = "County_RAW_variables.csv"
YEARS = (1990, 2000, 2010)
COUNTIES = 2132

#: Columns of the file, without the year, and what they are.
VARIABLES: dict[str, str] = {
    "PM2.5": "PM2.5",
    "CMR": "mortality",
    "civil_unemploy": "unemployment",
    "median_HH_inc": "income",
    "femaleHH_ns_pct": "female-headed",
    "vacant_HHunit": "vacant homes",
    "owner_occ_pct": "owner-occupied",
    "eduattain_HS": "education",
    "pctfam_pover": "poverty",
}


def available() -> bool:
    """Are the counties on this machine, in either form?"""
    try:
        load_pm_cmr()
    except FileNotFoundError:
        return False
    return True


def load_pm_cmr(path: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """The counties, one a row.

    Parameters
    ----------
    path : path, optional
        The merged file, or a folder that holds it or the two files it is made from. Default: the
        folder ``$ICML24_DATA/dht_cit``, then the cache of fetched files.

    Returns
    -------
    pandas.DataFrame, shape (2132, 28)
        ``FIPS`` and nine variables (keys of `VARIABLES`) with the suffixes ``_1990``, ``_2000``
        and ``_2010``, in the units of the source (percent, dollars, micrograms a cubic metre ...).

    Raises
    ------
    FileNotFoundError
        Nothing there; the message says how to get it.
    ValueError
        A file without the expected columns, or a registered one whose hash differs.
    """
    if path is None:
        return _read_registered()
    given = Path(path)
    if given.is_dir():
        if (given / MERGED).is_file():
            return _checked(pd.read_csv(given / MERGED), given / MERGED)
        if (given / ANNUAL).is_file() and (given / SOCIAL).is_file():
            return _merge(given / ANNUAL, given / SOCIAL)
    elif given.is_file():
        return _checked(pd.read_csv(given), given)
    raise FileNotFoundError(f"no {MERGED} at {given}; {_hint()}")


def county_slices(frame: pd.DataFrame, years: Sequence[int] = (1990, 2010)) -> tuple[np.ndarray, ...]:
    """The slices of some years, each of shape (counties, 9), columns in the order of `VARIABLES`."""
    return tuple(frame[[f"{name}_{year}" for name in VARIABLES]].to_numpy(np.float64) for year in years)


def stand_in(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two simulated slices of the counties' shape and their true graph: (early, late, adjacency).

    Nine variables, ten edges, sine mechanisms, slices 1 and 4 of the chapter's simulator.
    """
    draw = numpy_generator(seed, SLUG, "stand-in")
    graph = random_dag(len(VARIABLES), 10, generator=draw)
    noise = sample_noise(5, COUNTIES, len(VARIABLES), generator=draw)
    slices = simulate_slices(graph, noise, config=SubsampledConfig("sin", "sin"))
    return slices[1], slices[4], graph


def _hint() -> str:
    return f"run `icml24 data fetch {SLUG}`, or put {MERGED} into $ICML24_DATA/{SLUG}/"


def _read_registered() -> pd.DataFrame:
    try:
        found = datasets.locate(SLUG, MERGED)
        return _checked(pd.read_csv(found), found)
    except datasets.MissingData:
        pass
    try:
        return _merge(datasets.locate(SLUG, ANNUAL), datasets.locate(SLUG, SOCIAL))
    except datasets.MissingData:
        raise FileNotFoundError(f"the PM-CMR counties are not on this machine; {_hint()}") from None


def _merge(annual: Path, social: Path) -> pd.DataFrame:
    yearly = pd.read_csv(annual).set_index("FIPS")
    parts = [yearly.loc[yearly["Year"] == y, ["PM2.5", "CMR"]].add_suffix(f"_{y}") for y in YEARS]
    counties = pd.concat(parts, axis=1).join(pd.read_csv(social).set_index("FIPS"), how="inner")
    counties = counties[_columns()].dropna().reset_index()
    # six digits, as in the merged file: both ways give the same numbers
    return pd.read_csv(io.StringIO(counties.to_csv(index=False, float_format="%.6g")))


def _columns() -> list[str]:
    return [f"{name}_{year}" for year in YEARS for name in VARIABLES]


def _checked(frame: pd.DataFrame, source: Path) -> pd.DataFrame:
    missing = [name for name in ("FIPS", *_columns()) if name not in frame.columns]
    if missing:
        raise ValueError(f"{source.name} lacks the columns {missing}; expected the merged county file")
    return frame
