r"""The laboratory's files: where they come from, and how they are read.

========================================  ===============================================
``dataset_labeled.csv`` / ``.xlsx``        209 syntheses, 45 columns (see `targets`)
``synthesis_conditions_dataset.csv``       215 syntheses, 13 columns (mM, kDa, %, rpm, C)
``procedure_patterns.txt``                 25 sentence templates, one a line
``llm_replies.json``                       replies of six chat models, recorded by the authors
``particles_64.npz``                       195 crops, 64x64, 8-bit grey
========================================  ===============================================

Source: the authors' repository ``ai-chem/Nanomaterial_Morphology_Prediction``, commit e19cf36.
It states no licence, so nothing of it is part of this book: the files are read at run time from
the folder that ``ICML24_DATA`` names, or from the cache that ``icml24 data fetch`` fills. The
default of every experiment is the generated table of `generated`.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from icml24.papers.nanomorphology.procedures import CONDITIONS
from icml24.papers.nanomorphology.targets import FEATURES, SHAPES, require_columns

__all__ = [
    "Laboratory",
    "Recording",
    "laboratory",
    "load_conditions",
    "load_crops",
    "load_dataset",
    "load_recordings",
    "load_templates",
]

SLUG = "nanomorphology"
LABELLED = ("dataset_labeled.csv", "dataset_labeled.xlsx")
CONDITION_FILES = ("synthesis_conditions_dataset.csv", "synthesis_conditions_dataset.xlsx")
HINT = (
    "set ICML24_DATA to a folder that holds nanomorphology/dataset_labeled.csv (or .xlsx), "
    "or run: icml24 data fetch nanomorphology"
)


def load_dataset(path: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """The laboratory's labelled table.

    Parameters
    ----------
    path : path, optional
        A ``.csv`` or ``.xlsx`` file, or a folder holding ``dataset_labeled``. Default: the folder
        ``$ICML24_DATA/nanomorphology``, then the cache of fetched files.

    Returns
    -------
    pandas.DataFrame, shape (209, 45)

    Raises
    ------
    FileNotFoundError
        There is no such file; the message says where to get it.
    KeyError
        The file lacks a column; the message names it.
    ValueError
        Neither ``.csv`` nor ``.xlsx``, or a registered file whose hash differs.
    ImportError
        An ``.xlsx`` file without openpyxl.
    """
    frame = _read_table(_find(LABELLED) if path is None else _in_folder(Path(path), LABELLED))
    require_columns(
        frame, ["Image_id", *FEATURES, *(f"{s}{end}" for s in SHAPES for end in ("_min", "_max", ""))]
    )
    return frame


def load_conditions(path: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """The table of synthesis conditions, 215 rows; arguments and errors as for `load_dataset`."""
    frame = _read_table(_find(CONDITION_FILES) if path is None else _in_folder(Path(path), CONDITION_FILES))
    require_columns(frame, CONDITIONS)
    return frame


def load_templates(path: str | os.PathLike[str] | None = None) -> tuple[str, ...]:
    """The authors' sentence templates: blank lines dropped, white space stripped at the end."""
    path = _find(("procedure_patterns.txt",)) if path is None else Path(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(line.rstrip() for line in lines if line.strip())


def load_crops(path: str | os.PathLike[str] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Crops averaged to 32x32 and the ``Image_id`` of each; for numbers only, never shown.

    Returns
    -------
    (ndarray of shape (195, 1, 32, 32), float32 in [0, 1]; ndarray of shape (195,), int)
    """
    path = _find(("particles_64.npz",)) if path is None else Path(path)
    with np.load(path, allow_pickle=False) as file:
        images, ids = file["images"], file["image_id"]
    if images.ndim != 3 or images.shape[1:] != (64, 64):
        raise ValueError(f"expected crops of shape (n, 64, 64); got {images.shape}")
    pooled = images.reshape(len(images), 32, 2, 32, 2).mean(axis=(2, 4)) / 255
    return pooled[:, None].astype(np.float32), ids.astype(np.int64)


@dataclass(frozen=True)
class Recording:
    """Replies of one model in one setting, recorded by the authors and not re-run here.

    Attributes
    ----------
    model : str
    shots : int
        Examples a prompt.
    test_fraction : float
    replies : tuple of tuple of str
        One tuple a run.
    truth : tuple of ndarray, shape (n, 5)
        One array a run.
    """

    model: str
    shots: int
    test_fraction: float
    replies: tuple[tuple[str, ...], ...]
    truth: tuple[np.ndarray, ...]


def load_recordings(path: str | os.PathLike[str] | None = None) -> dict[str, Recording]:
    """Recorded replies by setting (``model_shots_fraction_strict_text``).

    The logged request texts are left out on purpose: in the public logs they do not belong to the
    replies beside them.
    """
    path = _find(("llm_replies.json",)) if path is None else Path(path)
    raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if tuple(raw["classes"]) != SHAPES:
        raise ValueError(f"expected the classes {SHAPES}; got {raw['classes']}")
    return {
        name: Recording(
            entry["model"],
            int(entry["n_shots"]),
            float(entry["test_fraction"]),
            tuple(tuple(run["reply"]) for run in entry["runs"].values()),
            tuple(
                np.array([[int(digit) for digit in row] for row in run["truth"]], dtype=np.int8)
                for run in entry["runs"].values()
            ),
        )
        for name, entry in raw["configs"].items()
    }


@dataclass(frozen=True)
class Laboratory:
    """What was found of the laboratory's files; a missing one is None.

    The labelled table, the conditions and the templates count only together: they share row numbers.
    """

    dataset: pd.DataFrame | None
    conditions: pd.DataFrame | None
    templates: tuple[str, ...] | None
    crops: tuple[np.ndarray, np.ndarray] | None
    recordings: dict[str, Recording] | None


def laboratory() -> Laboratory:
    """Everything there is of the laboratory's files on this machine; nothing is downloaded."""
    readers = (load_dataset, load_conditions, load_templates, load_crops, load_recordings)
    found: list[Any] = []
    for read in readers:
        try:
            found.append(read())
        except FileNotFoundError:
            found.append(None)
    if any(part is None for part in found[:3]):
        found[:3] = [None, None, None]
    return Laboratory(*found)


def _find(names: tuple[str, ...]) -> Path:
    from icml24 import datasets

    for name in names:
        try:
            return Path(datasets.locate(SLUG, name))
        except FileNotFoundError:
            continue
    raise FileNotFoundError(f"{names[0]} of the nanomorphology data is not on this machine; {HINT}")


def _in_folder(path: Path, names: tuple[str, ...]) -> Path:
    if path.is_dir():
        return next((path / name for name in names if (path / name).is_file()), path / names[0])
    return path


def _read_table(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}; {HINT}")
    if path.suffix.lower() not in (".csv", ".xlsx"):
        raise ValueError(f"cannot read {path.name}: expected a .csv or .xlsx file")
    if path.suffix.lower() == ".csv":
        return pd.read_csv(path)
    try:
        return pd.read_excel(path)
    except ImportError as error:
        raise ImportError(
            "reading .xlsx needs openpyxl (pip install openpyxl), or use the .csv file"
        ) from error
