"""Autoencoder, linking network, losses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from icml24.papers.nanomorphology import LinkingNetwork, MorphologyVAE, vae_loss
from icml24.papers.nanomorphology.images import effective_beta, gaussian_kl, psnr
from icml24.papers.nanomorphology.particles import render_particle


@pytest.fixture(scope="module")
def crops() -> torch.Tensor:
    draw = np.random.default_rng(0)
    shapes = ["Cube", "Stick", "Sphere", "Flat"] * 8
    return torch.tensor(np.stack([render_particle(s, generator=draw)[None] for s in shapes]))


@pytest.mark.equation("eq-nanomorphology-kl")
def test_divergence_against_torch_distributions():
    """E8, float64, rtol 1e-12."""
    g = torch.Generator().manual_seed(0)
    mu, logvar = torch.randn(2, 400, generator=g, dtype=torch.float64) * 2
    normal = torch.distributions.Normal
    expected = torch.distributions.kl_divergence(
        normal(mu, (logvar / 2).exp()), normal(torch.zeros_like(mu), torch.ones_like(mu))
    )
    torch.testing.assert_close(gaussian_kl(mu, logvar), expected, rtol=1e-12, atol=1e-14)
    assert (gaussian_kl(mu, logvar) >= 0).all()
    assert gaussian_kl(torch.zeros(1), torch.zeros(1)) == 0


@pytest.mark.equation("eq-nanomorphology-elbo")
def test_bound_and_gap_by_quadrature():
    """log p(x) = bound + KL(q | posterior), one latent, Bernoulli pixels, integrals on a fine grid."""
    z = torch.linspace(-12, 12, 20001, dtype=torch.float64)
    dz = z[1] - z[0]
    logits = torch.stack([1.5 * z - 0.3, -0.7 * z + 0.2])
    x = torch.tensor([1.0, 0.0], dtype=torch.float64)
    log_likelihood = (x[:, None] * logits - torch.nn.functional.softplus(logits)).sum(0)
    prior = -(z**2) / 2 - math.log(2 * math.pi) / 2
    evidence = torch.logsumexp(prior + log_likelihood, 0) + dz.log()
    posterior = prior + log_likelihood - evidence
    for mu, logvar in ((0.0, 0.0), (0.8, -0.9), (-1.0, 0.5)):
        q = -((z - mu) ** 2) / 2 / math.exp(logvar) - (math.log(2 * math.pi) + logvar) / 2
        kl = gaussian_kl(torch.tensor(mu, dtype=torch.float64), torch.tensor(logvar, dtype=torch.float64))
        bound = (q.exp() * log_likelihood).sum() * dz - kl
        gap = (q.exp() * (q - posterior)).sum() * dz
        assert gap >= 0
        assert bound + gap == pytest.approx(float(evidence), abs=1e-9)


@pytest.mark.equation("eq-nanomorphology-beta")
def test_means_are_a_rescaled_sum():
    """mean BCE + c mean KL = (sum BCE + beta sum KL) / D per image with beta = c D / d."""
    g = torch.Generator().manual_seed(1)
    recon, x = torch.rand(2, 3, 1, 8, 8, generator=g, dtype=torch.float64)
    mu, logvar = torch.randn(2, 3, 5, generator=g, dtype=torch.float64)
    c, pixels, latents = 0.3, 64, 5
    bce = -(x * recon.log() + (1 - x) * (1 - recon).log()).flatten(1).sum(1)
    kl = torch.distributions.kl_divergence(
        torch.distributions.Normal(mu, (logvar / 2).exp()),
        torch.distributions.Normal(torch.zeros_like(mu), torch.ones_like(mu)),
    ).sum(1)
    summed = (bce + effective_beta(c, pixels, latents) * kl).mean() / pixels
    parts = vae_loss(recon, x, mu, logvar, kl_weight=c)
    torch.testing.assert_close(parts["loss"], summed, rtol=1e-12, atol=0)
    torch.testing.assert_close(parts["loss"], parts["bce"] + c * parts["kl"], rtol=1e-12, atol=0)
    assert effective_beta(0.01, 128**2, 4096) == pytest.approx(0.04)
    assert effective_beta(0.00125, 32**2, 32) == pytest.approx(0.04)


@pytest.mark.equation("eq-nanomorphology-psnr")
def test_psnr_by_hand_and_its_law():
    x = torch.zeros(2, 1, 4, 4)
    y = torch.stack([torch.full((1, 4, 4), 0.1), torch.full((1, 4, 4), 0.01)])
    torch.testing.assert_close(psnr(x, y), torch.tensor([20.0, 40.0]))
    noise = torch.randn(1, 1, 64, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gain = psnr(noise * 0, noise / 2) - psnr(noise * 0, noise)
    assert float(gain) == pytest.approx(20 * math.log10(2), rel=1e-12)
    assert torch.isinf(psnr(x, x)).all()


@pytest.mark.parametrize(("size", "latent"), [(32, 32), (16, 3), (64, 8)])
def test_shapes_and_range(size, latent):
    vae = MorphologyVAE(size, latent, width=8)
    x = torch.rand(3, 1, size, size, generator=torch.Generator().manual_seed(0))
    recon, mu, logvar = vae(x)
    assert recon.shape == x.shape
    assert mu.shape == logvar.shape == (3, latent)
    assert vae.code(x).shape == (3, vae.code_dim) == (3, 8 * (size // 4) ** 2)
    for z in (mu, torch.full((2, latent), 1e4), torch.full((2, latent), -1e4)):
        out = vae.decode(z)
        assert ((out > 0) & (out < 1)).all()


def test_default_sizes_are_the_chapters():
    vae = MorphologyVAE()
    assert (vae.size, vae.latent_dim, vae.code_dim) == (32, 32, 512)
    link = LinkingNetwork(768, 512)
    assert [layer.out_features for layer in link.layers if hasattr(layer, "out_features")] == [256, 512, 512]
    assert link(torch.zeros(2, 768)).shape == (2, 512)


def test_noise_comes_from_the_generator_only(crops, global_random_state):
    before = global_random_state()
    vae = MorphologyVAE(width=8)
    LinkingNetwork(4, 8)
    mean, again = vae(crops)[0], vae(crops)[0]
    one, two, other = (vae(crops, generator=torch.Generator().manual_seed(s))[0] for s in (1, 1, 2))
    assert global_random_state() == before
    assert torch.equal(mean, again)
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert not torch.equal(one, mean)


def test_weights_come_from_the_generator():
    a, b, c = (MorphologyVAE(16, 4, 4, generator=torch.Generator().manual_seed(s)) for s in (3, 3, 4))
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert not all(torch.equal(p, q) for p, q in zip(a.parameters(), c.parameters(), strict=True))


def test_the_loss_falls_and_gradients_are_finite(crops):
    vae = MorphologyVAE(width=16)
    g = torch.Generator().manual_seed(0)
    optimiser = torch.optim.Adam(vae.parameters(), lr=1e-3)
    losses = []
    for _ in range(20):
        optimiser.zero_grad()
        recon, mu, logvar = vae(crops, generator=g)
        loss = vae_loss(recon, crops, mu, logvar)["loss"]
        loss.backward()
        assert all(torch.isfinite(p.grad).all() for p in vae.parameters())
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: MorphologyVAE(30), "multiple of 4"),
        (lambda: MorphologyVAE(32, 0), "positive"),
        (lambda: LinkingNetwork(0, 4), "positive"),
        (lambda: MorphologyVAE(16, 2, 2).encode(torch.zeros(1, 1, 32, 32)), r"shape \(batch, 1, 16, 16\)"),
        (
            lambda: vae_loss(torch.rand(2, 4), torch.rand(2, 3), torch.zeros(1), torch.zeros(1)),
            "equal shapes",
        ),
        (lambda: vae_loss(torch.rand(2), torch.rand(2), torch.zeros(1), torch.zeros(2)), "equal shapes"),
        (
            lambda: vae_loss(torch.rand(2), torch.rand(2), torch.zeros(1), torch.zeros(1), kl_weight=-1),
            "non-negative",
        ),
        (lambda: effective_beta(1.0, 0, 1), "positive"),
    ],
)
def test_bad_arguments(call, match):
    with pytest.raises(ValueError, match=match):
        call()
