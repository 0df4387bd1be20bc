"""Parameters under the names of the authors' Flax modules, copied into the modules of this package."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from icml24.common.checks import WrongType

from .layer import LRU, GREDLayer
from .model import GREDModel

__all__ = ["load_reference_params"]

#: A parameter and whether the stored array is its transpose.
Slots = dict[str, tuple[nn.Parameter, bool]]


def load_reference_params(module: nn.Module, params: Mapping[str, np.ndarray]) -> nn.Module:
    """Copy arrays, named as Flax names them, into a module in place.

    Parameters
    ----------
    module : LRU, GREDLayer or GREDModel
    params : mapping of str to array
        ``LRU_0/B_re``, ``LRU_0/Dense_0/kernel`` ... for an `LRU`; also ``MLP_0/...`` for a
        `GREDLayer`; ``Embed_0/embedding``, ``Dense_0/kernel``, ``GRED_0/MLP_0/...`` for a `GREDModel`.
        Kernels are stored (in, out) and transposed here. A name must be there for every
        parameter, and every name must be used.

    Returns
    -------
    Module
        `module` itself, with its own dtype and device.

    Raises
    ------
    KeyError
        A name is missing, or one is left over; the message lists them. Nothing is copied then.
    ValueError
        An array has the wrong shape, or holds NaN.
    """
    slots = _slots(module)
    missing, extra = sorted(set(slots) - set(params)), sorted(set(params) - set(slots))
    if missing or extra:
        raise KeyError(
            f"parameters missing: {missing or 'none'}; not known to this module: {extra or 'none'}"
        )
    arrays = {}
    for name, (parameter, transposed) in slots.items():
        array = torch.as_tensor(np.array(params[name]))
        value = array.T if transposed and array.ndim == 2 else array
        if value.shape != parameter.shape:
            wanted = tuple(parameter.shape[::-1] if transposed else parameter.shape)
            raise ValueError(f"{name} must have shape {wanted}; got {tuple(array.shape)}")
        if not bool(torch.isfinite(value).all()):
            raise ValueError(f"{name} holds NaN or infinity")
        arrays[name] = value
    with torch.no_grad():
        for name, value in arrays.items():
            slots[name][0].copy_(value)
    return module


def _slots(module: nn.Module) -> Slots:
    if isinstance(module, LRU):
        return _lru(module, "LRU_0/")
    if isinstance(module, GREDLayer):
        return _layer(module, "")
    if isinstance(module, GREDModel):
        slots: Slots = {}
        for i, embedding in enumerate(e for e in (module.embed, module.embed_edge) if e is not None):
            slots[f"Embed_{i}/embedding"] = (embedding.weight, False)
        for i, dense in enumerate(module.dense):
            slots |= _dense(dense, f"Dense_{i}/")
        for i, layer in enumerate(module.layers):
            slots |= _layer(layer, f"GRED_{i}/")
        return slots
    raise WrongType(f"module must be an LRU, a GREDLayer or a GREDModel; got {type(module).__name__}")


def _layer(layer: GREDLayer, prefix: str) -> Slots:
    mlp = prefix + "MLP_0/"
    slots = _norm(layer.norm, mlp) | _dense(layer.inner, mlp + "Dense_0/")
    return slots | _dense(layer.outer, mlp + "Dense_1/") | _lru(layer.lru, prefix + "LRU_0/")


def _lru(unit: LRU, prefix: str) -> Slots:
    names = ("nu_log", "theta_log", "gamma_log", "B_re", "B_im", "C_re", "C_im")
    slots = _norm(unit.norm, prefix) | {prefix + name: (getattr(unit, name), False) for name in names}
    for i, dense in enumerate(d for d in (unit.value, unit.gate) if d is not None):
        slots |= _dense(dense, f"{prefix}Dense_{i}/")
    return slots


def _norm(norm: nn.LayerNorm, prefix: str) -> Slots:
    return {
        f"{prefix}LayerNorm_0/scale": (norm.weight, False),
        f"{prefix}LayerNorm_0/bias": (norm.bias, False),
    }


def _dense(dense: nn.Linear, prefix: str) -> Slots:
    return {f"{prefix}kernel": (dense.weight, True), f"{prefix}bias": (dense.bias, False)}
