import math

import pytest
import torch

from icml24.papers.ctag import SynthConfig, Voice, unpack_parameters
from icml24.papers.ctag.parameters import COLUMNS
from icml24.papers.ctag.voice import ABLATIONS, AblatedVoice, _reference_voice, white_noise

SMALL = SynthConfig(16000, 160, 0.5)


@pytest.mark.equation("eq-ctag-objective")
def test_parity_with_the_released_synthesizer(load, configure):
    stored = load("voice")
    voice = Voice(configure(stored))
    audio = voice(stored["normalized"], stored["noise"])
    torch.testing.assert_close(audio, stored["audio"], rtol=0, atol=1e-4)
    single = voice(stored["normalized"].float(), stored["noise"].float())
    assert single.dtype == torch.float32
    assert ((single - stored["audio"]).square().mean(-1).sqrt() < 2e-2).all()


def test_parity_at_full_rate(load, configure):
    stored = load("voice_48k")
    audio = Voice(configure(stored))(stored["normalized"])
    assert audio.shape == (2, 96000)
    torch.testing.assert_close(audio[:, ::16], stored["audio_every_16"], rtol=0, atol=1e-4)
    torch.testing.assert_close(audio.square().mean(-1).sqrt(), stored["rms"], rtol=1e-4, atol=0)


@pytest.mark.parametrize(
    "config", [SMALL, SynthConfig(8000, 7, 0.3), SynthConfig(100, 100, 0.1), SynthConfig(50, 1, 1.0)]
)
def test_fast_form_equals_the_plain_one(config, uniform):
    units = uniform(12, 78)
    units[0], units[1], units[2, 49:52] = 0, 1, 0
    noise = white_noise(config, dtype=torch.float64)
    plain = _reference_voice(config, unpack_parameters(units), noise)
    torch.testing.assert_close(Voice(config)(units, noise), plain, rtol=0, atol=1e-9)


def test_finite_and_bounded_on_corners():
    # 2,000 corners and half-way points of the closed cube, silent LFO weights among them
    units = torch.randint(0, 3, (2000, 78), generator=torch.Generator().manual_seed(1)).float() / 2
    audio = Voice(SynthConfig(8000, 80, 0.25))(units)
    assert torch.isfinite(audio).all()
    assert audio.abs().max() <= 1


def test_gradients_are_finite_and_right(uniform):
    voice = Voice(SynthConfig(4000, 40, 0.1))
    corners = torch.randint(0, 3, (200, 78), generator=torch.Generator().manual_seed(2)).double() / 2
    corners.requires_grad_(True)
    voice(corners).sum().backward()
    assert torch.isfinite(corners.grad).all()

    unit = (0.25 + 0.5 * uniform(1, 78)).requires_grad_(True)
    probe = uniform(voice.config.n_samples, low=-1)
    (gradient,) = torch.autograd.grad((voice(unit) @ probe).sum(), unit)
    column = COLUMNS["adsr_1.sustain"]
    step = torch.zeros_like(unit)
    step[0, column] = 1e-6
    with torch.no_grad():
        difference = ((voice(unit + step) - voice(unit - step)) @ probe).item() / 2e-6
    assert math.isclose(gradient[0, column], difference, rel_tol=1e-4, abs_tol=1e-9)


def test_noise_and_generators(uniform):
    voice, units = Voice(SMALL), uniform(3, 78)
    assert torch.equal(voice(units), voice(units))
    first, second = (voice(units, generator=torch.Generator().manual_seed(s)) for s in (1, 2))
    assert not torch.equal(first, second)
    assert torch.equal(first, voice(units, generator=torch.Generator().manual_seed(1)))
    batch = voice(units, torch.zeros(8000, dtype=torch.float64))
    alone = torch.cat([voice(u[None], torch.zeros(8000, dtype=torch.float64)) for u in units])
    assert torch.equal(batch, alone)


def test_no_global_randomness(global_random_state, uniform):
    before = global_random_state()
    Voice(SMALL)(uniform(2, 78))
    assert global_random_state() == before


def test_layouts(uniform):
    voice, units = Voice(SMALL), uniform(78, 4).T
    assert torch.equal(voice(units), voice(units.contiguous()))
    assert voice(torch.zeros(0, 78)).shape == (0, 8000)
    assert voice(units.float()).dtype == torch.float32
    assert not voice(units.clone().requires_grad_(True)).detach().isnan().any()
    with torch.no_grad():
        assert not voice(units.clone().requires_grad_(True)).requires_grad


@pytest.mark.parametrize(
    ("name", "count"), [("NoNoise", 51), ("NoLFO", 29), ("OneOsc", 23), ("ShapedNoise", 18)]
)
def test_ablations(name, count, uniform):
    synth = AblatedVoice(name, SMALL)
    assert synth.n_parameters == count
    units = uniform(6, count)
    audio = synth(units)
    assert audio.shape == (6, 8000)
    assert torch.isfinite(audio).all()
    assert set(ABLATIONS) == {"NoNoise", "NoLFO", "OneOsc", "ShapedNoise"}
    silent = synth(units, torch.zeros(8000, dtype=torch.float64))
    assert torch.equal(silent, audio) == (name in ("NoNoise", "NoLFO"))
    assert silent.any() == (name != "ShapedNoise")
    with pytest.raises(ValueError, match=str(count)):
        synth(torch.zeros(2, 78))


def test_an_ablation_is_a_voice_with_knobs_at_rest(uniform):
    synth, units = AblatedVoice("OneOsc", SMALL), uniform(5, 23)
    full = torch.zeros(5, 78, dtype=torch.float64)
    full[:, synth.kept] = units
    assert torch.equal(
        synth(units), Voice(SMALL)(full)
    )  # the LFOs' columns are 0, their envelopes do not matter


@pytest.mark.parametrize(
    ("unit", "noise", "error", "match"),
    [
        (torch.zeros(78), None, ValueError, r"\(batch, 78\)"),
        (torch.zeros(2, 77), None, ValueError, r"\(batch, 78\)"),
        (torch.zeros(1, 1, 78), None, ValueError, r"\(batch, 78\)"),
        (torch.full((1, 78), 1.01), None, ValueError, r"\[0, 1\]"),
        (torch.full((1, 78), math.nan), None, ValueError, r"\[0, 1\]"),
        (torch.zeros(1, 78), torch.zeros(7999), ValueError, "8000.*7999"),
        (torch.zeros(1, 78), torch.zeros(1, 8000), ValueError, "8000"),
        (torch.zeros(1, 78), torch.full((8000,), math.nan), ValueError, "noise"),
        ([[0.0] * 78], None, TypeError, "Tensor"),
        (torch.zeros(1, 78, dtype=torch.int32), None, TypeError, "floating"),
    ],
)
def test_rejects(unit, noise, error, match):
    with pytest.raises(error, match=match):
        Voice(SMALL)(unit, noise)


def test_rejects_other_configs():
    with pytest.raises(TypeError, match="SynthConfig"):
        Voice({"sample_rate": 16000})
    with pytest.raises(ValueError, match="ShapedNoise"):
        AblatedVoice("Nothing")
