r"""The text-to-image prototype as one experiment: train on most crops, measure on the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from icml24.common.random import generator as torch_stream
from icml24.common.random import numpy_generator
from icml24.papers.nanomorphology.images import psnr
from icml24.papers.nanomorphology.training import TextEmbedding, draw_from_text, train_linking, train_vae

if TYPE_CHECKING:
    from icml24.papers.nanomorphology.experiments import Config

__all__ = ["ImageStudy", "image_study"]


@dataclass(frozen=True)
class ImageStudy:
    """Quality of reconstructions and of particles drawn from text, on held-out crops.

    Attributes
    ----------
    psnr : mapping of str to float
        Mean over held-out crops, in dB: ``reconstruction``, ``mean image``, ``black``, ``text``
        (latent mean of the linked text) and ``other text`` (the text of another held-out row).
    crops, reconstructions, from_text : ndarray, shape (held out, 1, size, size)
    rows : ndarray of int
        Row of each held-out crop.
    """

    psnr: Mapping[str, float]
    crops: np.ndarray
    reconstructions: np.ndarray
    from_text: np.ndarray
    rows: np.ndarray

    @property
    def gain(self) -> float:
        """Reconstruction over the mean image, in dB."""
        return self.psnr["reconstruction"] - self.psnr["mean image"]

    @property
    def text_gain(self) -> float:
        """The right text over another row's text, in dB."""
        return self.psnr["text"] - self.psnr["other text"]


def image_study(crops: np.ndarray, texts: Sequence[str], config: Config, *, seed: int = 0) -> ImageStudy:
    """Train autoencoder and linking network on four fifths of the crops, measure on the rest.

    Parameters
    ----------
    crops : ndarray, shape (n, 1, size, size)
        Values in [0, 1].
    texts : sequence of str
        Procedure of each crop.
    config : Config
    seed : int, default 0

    Returns
    -------
    ImageStudy
    """
    order = numpy_generator(seed, "nanomorphology", "image split").permutation(len(crops))
    test, train = np.sort(order[: len(crops) // 5]), np.sort(order[len(crops) // 5 :])
    x = torch.as_tensor(crops)
    vae = train_vae(
        crops[train],
        epochs=config.epochs,
        width=config.width,
        kl_weight=config.kl_weight,
        lr=config.lr,
        batch=config.batch,
        seed=seed,
    ).network
    embedding = TextEmbedding().fit([texts[i] for i in train])
    with torch.no_grad():
        codes = vae.code(x[train])
        reconstructions = vae(x[test])[0]
    linking = train_linking(
        embedding.transform([texts[i] for i in train]), codes, epochs=config.link_epochs, seed=seed
    ).network
    linked = embedding.transform([texts[i] for i in test])
    from_text = draw_from_text(vae, linking, linked)
    sampled = draw_from_text(vae, linking, linked, torch_stream(seed, "nanomorphology", "text draw"))
    # "Another row's text" averages over every cyclic shift, so no single pairing decides.
    others = [psnr(from_text.roll(k, 0), x[test]).mean() for k in range(1, len(test))]
    figures = {
        "reconstruction": psnr(reconstructions, x[test]).mean(),
        "mean image": psnr(x[train].mean(dim=0, keepdim=True), x[test]).mean(),
        "black": psnr(torch.zeros_like(x[:1]), x[test]).mean(),
        "text": psnr(from_text, x[test]).mean(),
        "other text": torch.stack(others).mean(),
    }
    return ImageStudy(
        {name: float(value) for name, value in figures.items()},
        crops[test],
        reconstructions.numpy(),
        sampled.numpy(),
        test,
    )
