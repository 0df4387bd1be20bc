r"""Training of the two networks, and the text embedding that links them.

The authors embed text with BERT, whose weights cannot be had offline. Here a procedure becomes
the leading singular directions of its character n-gram weights. That knows no language, and it
reads a number as a string of digits: 58 and 59 are merely different.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from icml24.common.random import generator as stream
from icml24.papers.nanomorphology.images import LinkingNetwork, MorphologyVAE, sample_latent, vae_loss

__all__ = ["TextEmbedding", "draw_from_text", "train_linking", "train_vae"]


class TextEmbedding:
    """Character n-gram weights of texts, reduced by a truncated SVD and standardised.

    Parameters
    ----------
    dimension : int, default 64
        Number of singular directions; at most the number of fitted texts and of their distinct
        n-grams is kept.

    Notes
    -----
    Fitted on training texts only, deterministic (the SVD's random start has seed 0).
    """

    def __init__(self, dimension: int = 64) -> None:
        if dimension < 1:
            raise ValueError(f"dimension must be positive; got {dimension}")
        self.dimension = dimension

    def fit(self, texts: Sequence[str]) -> TextEmbedding:
        """Learn the weights and directions from training texts (two at least); returns itself."""
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        if len(texts) < 2:
            raise ValueError(f"an embedding needs two texts at least; got {len(texts)}")
        words = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True)
        weights = words.fit_transform(list(texts))
        directions = TruncatedSVD(min(self.dimension, *weights.shape), random_state=0)
        scaled = StandardScaler().fit(directions.fit_transform(weights))
        self._steps = make_pipeline(words, directions, scaled)
        return self

    def transform(self, texts: Sequence[str]) -> np.ndarray:
        """Embeddings, shape (texts, dimension), float32, about unit variance each."""
        if not hasattr(self, "_steps"):
            raise ValueError("the embedding is not fitted; call fit first")
        return self._steps.transform(list(texts)).astype(np.float32)


@dataclass(frozen=True)
class Trained:
    """A trained network and its loss after each epoch."""

    network: torch.nn.Module
    losses: tuple[float, ...]


def train_vae(
    crops: np.ndarray,
    *,
    epochs: int,
    latent_dim: int = 32,
    width: int = 32,
    kl_weight: float = 0.01,
    lr: float = 1e-3,
    batch: int = 32,
    seed: int = 0,
) -> Trained:
    """Fit a `MorphologyVAE` to crops by Adam for a fixed number of epochs.

    Parameters
    ----------
    crops : ndarray, shape (n, 1, size, size)
        Values in [0, 1].
    epochs, latent_dim, width, kl_weight, lr, batch
        As named; `epochs` passes over the shuffled crops.
    seed : int, default 0
        Of the weights, the order and the latent noise.

    Returns
    -------
    Trained
        With a `MorphologyVAE` in evaluation mode.
    """
    draw = stream(seed, "nanomorphology", "vae")
    x = torch.as_tensor(crops, dtype=torch.float32)
    network = MorphologyVAE(x.shape[-1], latent_dim, width, generator=draw)

    def loss(rows: Tensor) -> Tensor:
        recon, mu, logvar = network(x[rows], generator=draw)
        return vae_loss(recon, x[rows], mu, logvar, kl_weight=kl_weight)["loss"]

    return _train(network, loss, len(x), epochs, lr, batch, draw, "autoencoder")


def train_linking(
    embeddings: np.ndarray,
    codes: Tensor,
    *,
    epochs: int,
    hidden: Sequence[int] = (256, 512),
    lr: float = 1e-3,
    batch: int = 8,
    weight_decay: float = 0.1,
    seed: int = 0,
) -> Trained:
    """Fit a `LinkingNetwork` from text embeddings to encoder outputs by mean squared error.

    Parameters
    ----------
    embeddings : ndarray, shape (n, text_dim)
    codes : Tensor, shape (n, code_dim)
        From `MorphologyVAE.code`; no gradient flows into the autoencoder.
    epochs, hidden, lr, batch, weight_decay, seed
        As named (AdamW).

    Returns
    -------
    Trained
    """
    draw = stream(seed, "nanomorphology", "linking")
    text, target = torch.as_tensor(embeddings, dtype=torch.float32), codes.detach()
    network = LinkingNetwork(text.shape[1], target.shape[1], hidden, generator=draw)

    def loss(rows: Tensor) -> Tensor:
        return F.mse_loss(network(text[rows]), target[rows])

    return _train(network, loss, len(text), epochs, lr, batch, draw, "linking network", weight_decay)


@torch.no_grad()
def draw_from_text(
    vae: MorphologyVAE,
    linking: LinkingNetwork,
    embeddings: np.ndarray,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Particles for texts: embedding, linking network, heads, a draw (or the mean), decoder."""
    mu, logvar = vae.heads(linking(torch.as_tensor(embeddings, dtype=torch.float32)))
    return vae.decode(sample_latent(mu, logvar, generator))


def _train(network, loss_of, n, epochs, lr, batch, draw, name, weight_decay=0.0) -> Trained:
    if epochs < 1 or batch < 1:
        raise ValueError(f"epochs and batch must be positive; got {epochs} and {batch}")
    optimiser = torch.optim.AdamW(network.parameters(), lr=lr, weight_decay=weight_decay)
    losses = []
    network.train()
    for _ in tqdm(range(epochs), desc=name, leave=False):
        total = 0.0
        for rows in torch.randperm(n, generator=draw).split(batch):
            optimiser.zero_grad(set_to_none=True)
            value = loss_of(rows)
            value.backward()
            optimiser.step()
            total += float(value.detach()) * len(rows)
        losses.append(total / n)
    return Trained(network.eval(), tuple(losses))
