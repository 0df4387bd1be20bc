r"""Seeded generators: one base seed, any number of independent named streams.

A result must depend on its own seed alone, never on what ran before it. So no
function of this book touches a global generator; each asks for a *stream*, named
by the seed and by what it is for, and two different names give unrelated numbers.
"""

from __future__ import annotations

import hashlib
import json

import numpy as np
import torch

__all__ = ["generator", "numpy_generator", "stream_seed"]


def stream_seed(seed: int, *stream: int | str) -> int:
    """Seed of the stream named by `seed` and `stream`.

    Parameters
    ----------
    seed : int
        Base seed, as given by a chapter's parameter cell.
    *stream : int or str
        What the stream is for, for instance ``("split", 3)``. Integers and strings
        are kept apart: ``1`` and ``"1"`` name different streams.

    Returns
    -------
    int
        In ``[0, 2**63)``; the same on every machine and in every process.

    Raises
    ------
    TypeError
        A part is neither an integer nor a string (a float would not name a stream safely).
    """
    parts = (seed, *stream)
    for part in parts:
        if isinstance(part, bool) or not isinstance(part, (int, np.integer, str)):
            raise TypeError(
                f"a stream is named by integers and strings; got {part!r} ({type(part).__name__})"
            )
    name = json.dumps([p if isinstance(p, str) else int(p) for p in parts])  # quoting keeps 1 and "1" apart
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator(seed: int, *stream: int | str, device: torch.device | str = "cpu") -> torch.Generator:
    """Torch generator of a named stream.

    Parameters
    ----------
    seed, *stream
        As for `stream_seed`.
    device : torch.device or str, default "cpu"
        Where the generator lives.

    Returns
    -------
    torch.Generator

    Examples
    --------
    >>> g = generator(0, "weights")
    >>> h = generator(0, "weights")
    >>> bool((torch.rand(3, generator=g) == torch.rand(3, generator=h)).all())
    True
    """
    return torch.Generator(device=device).manual_seed(stream_seed(seed, *stream))


def numpy_generator(seed: int, *stream: int | str) -> np.random.Generator:
    """NumPy generator of a named stream (see `stream_seed`)."""
    return np.random.default_rng(stream_seed(seed, *stream))
