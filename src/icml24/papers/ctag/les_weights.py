"""Meta-trained weights of the learned evolution strategy, read from the wheel that carries them.

The PyPI package evosax 0.1.5 (Apache-2.0) stores them as a pickle of old JAX arrays. It is
never imported: a restricted unpickler admits the five names that the file needs and turns
everything into NumPy arrays.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icml24.common.packages import package_folder

__all__ = ["LES_SHAPES", "load_les_weights"]

#: Place of the weights inside evosax 0.1.5.
WHEEL_FILE = "strategies/ckpt/les/2023_10_les_v2.pkl"

#: Width of the attention's keys and of the learning-rate network.
WIDTH = 8

_DENSE = {
    "lrate_modulation/params/Dense_0": (19, WIDTH),
    "lrate_modulation/params/Dense_1": (WIDTH, 1),
    "lrate_modulation/params/Dense_2": (WIDTH, 1),
    "recomb_weights/params/Dense_0": (3, WIDTH),
    "recomb_weights/params/Dense_1": (3, WIDTH),
    "recomb_weights/params/Dense_2": (3, 1),
}

#: Shape of each of the twelve arrays; a layer computes ``x @ kernel + bias``.
LES_SHAPES: Mapping[str, tuple[int, ...]] = {
    f"{layer}/{part}": shape if part == "kernel" else shape[1:]
    for layer, shape in _DENSE.items()
    for part in ("bias", "kernel")
}


def load_les_weights(path: str | Path | None = None) -> dict[str, Tensor]:
    """Weights of `LES`.

    Parameters
    ----------
    path : str or Path, optional
        An npz file with the twelve arrays of `LES_SHAPES`. Default: the installed wheel of
        evosax 0.1.5, whose code is not imported.

    Returns
    -------
    dict of str to Tensor, float32

    Raises
    ------
    FileNotFoundError
        `path` does not exist.
    ImportError
        evosax is not installed, or is a version without this file; the message has the command.
    ValueError
        Missing arrays, other shapes, or values that are not finite.
    pickle.UnpicklingError
        The stored pickle asks for a name outside the five admitted ones.
    """
    if path is None:
        arrays = _read_wheel()
    else:
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(
                f"no LES weights at {path}; expected an npz file, or path=None for evosax's"
            )
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    return check_les_weights({name: torch.from_numpy(np.array(value)) for name, value in arrays.items()})


def check_les_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The twelve arrays of `weights`, with shapes and finiteness checked."""
    missing = sorted(set(LES_SHAPES) - set(weights))
    if missing:
        raise ValueError(f"LES weights lack {missing}; expected the twelve arrays of load_les_weights()")
    for name, shape in LES_SHAPES.items():
        if tuple(weights[name].shape) != shape:
            raise ValueError(f"expected {name} of shape {shape}; got {tuple(weights[name].shape)}")
        if not torch.isfinite(weights[name]).all():
            raise ValueError(f"{name} must be finite; it holds NaN or infinity")
    return {name: weights[name] for name in LES_SHAPES}


def _read_wheel() -> dict[str, np.ndarray]:
    file = package_folder("evosax") / WHEEL_FILE
    if not file.is_file():
        raise ImportError(
            f"the installed evosax has no {WHEEL_FILE}; run `pip install --no-deps evosax==0.1.5`"
        )
    with file.open("rb") as handle:
        return dict(_flatten(_Restricted(handle).load()))


class _Restricted(pickle.Unpickler):
    """Admits five names; nothing else of a pickle's reach is granted."""

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        # NumPy moved the first of its three; JAX and flax are replaced by plain containers
        admitted: dict[tuple[str, str], Callable[..., Any]] = {
            ("flax.core.frozen_dict", "FrozenDict"): dict,
            ("jax._src.array", "_reconstruct_array"): _reconstruct_array,
            ("numpy.core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,
            ("numpy._core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
        }
        if (module, name) not in admitted:
            raise pickle.UnpicklingError(f"the LES weights ask for {module}.{name}, which is not admitted")
        return admitted[module, name]


def _reconstruct_array(function: Callable[..., Any], arguments: Any, state: Any, _aval: Any) -> np.ndarray:
    array = function(*arguments)
    array.__setstate__(state)
    return array


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> Any:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", np.asarray(value)
