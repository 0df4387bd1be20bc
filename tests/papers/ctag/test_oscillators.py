import math

import pytest
import torch
from scipy.special import jv

from icml24.papers import ctag
from icml24.papers.ctag import PARAMETERS, SynthConfig
from icml24.papers.ctag.oscillators import midi_to_hz

RANGES = dict(PARAMETERS)
ONE = torch.ones(1, dtype=torch.float64)
SECOND = SynthConfig(16000, 160, 1.0)


def stored_inputs(config, modules):
    names = ("tuning", "mod_depth", "initial_phase")
    values = [RANGES[f"vco_1.{name}"].from_unit(modules["vco.params"][:, i]) for i, name in enumerate(names)]
    return modules["vco.midi_f0"], *values, ctag.upsample(config, modules["vco.mod"])


def spectrum(signal):
    # amplitude of each whole-hertz cosine of a one-second signal
    return torch.fft.rfft(signal).abs() / (len(signal) / 2)


def hertz_to_midi(hertz):
    return 69 + 12 * math.log2(hertz / 440)


def test_parity_of_oscillators(config, modules):
    midi, tuning, depth, phase, mod = stored_inputs(config, modules)
    shape = modules["vco.params"][:, 3]
    close = {"rtol": 0, "atol": 1e-4}
    torch.testing.assert_close(
        ctag.sine_vco(config, midi, tuning, depth, phase, mod), modules["sine.out"], **close
    )
    square = ctag.square_saw_vco(config, midi, tuning, depth, phase, shape, mod)
    torch.testing.assert_close(square, modules["squaresaw.out"], **close)
    torch.testing.assert_close(
        ctag.fm_vco(config, midi, tuning, depth, phase, mod), modules["fm.out"], **close
    )


@pytest.mark.equation("eq-ctag-pitch")
def test_pitch_doubles_every_twelve_semitones():
    midi = torch.tensor([69.0, 81.0, 57.0, 60.0], dtype=torch.float64)
    torch.testing.assert_close(
        midi_to_hz(midi), torch.tensor([440.0, 880.0, 220.0, 261.6255653005986], dtype=torch.float64)
    )


@pytest.mark.equation("eq-ctag-pitch")
@pytest.mark.parametrize(("depth", "expected"), [(12.0, 880.0), (-12.0, 220.0), (96.0, 12543.853951415975)])
def test_modulated_pitch_is_clipped(depth, expected):
    # a constant modulation of 1 moves the pitch by the depth, up to MIDI 127
    config = SynthConfig(48000, 480, 1.0)
    mod = torch.ones(1, config.n_samples, dtype=torch.float64)
    out = ctag.sine_vco(config, 69 * ONE, 0 * ONE, depth * ONE, 0 * ONE, mod)[0]
    assert abs(spectrum(out).argmax() - expected) < 1


@pytest.mark.equation("eq-ctag-phase")
@pytest.mark.parametrize("midi", [45.3, 69.0, 92.7])
def test_spectral_peak_is_the_pitch(midi):
    # E3: within 1 Hz of midi_to_hz
    out = ctag.sine_vco(SECOND, midi * ONE, 0 * ONE, 0 * ONE, 0.3 * ONE)[0]
    assert abs(spectrum(out).argmax() - midi_to_hz(torch.tensor(midi))) < 1


@pytest.mark.equation("eq-ctag-phase")
def test_instantaneous_frequency_is_the_control():
    # E3 by another road: the analytic phase of a slow sweep, differenced, against the pitch at each sample
    config = SynthConfig(48000, 480, 1.0)
    mod = torch.linspace(0, 1, config.n_samples, dtype=torch.float64)[None]
    quarter = torch.tensor([0.0, -math.pi / 2], dtype=torch.float64)
    args = [torch.full((2,), v, dtype=torch.float64) for v in (60.0, 0.0, 24.0)]
    cosine, sine = ctag.sine_vco(config, *args, quarter, mod.expand(2, -1))
    turn = torch.angle(torch.complex(cosine[1:], sine[1:]) / torch.complex(cosine[:-1], sine[:-1]))
    torch.testing.assert_close(
        turn * config.sample_rate / (2 * math.pi), midi_to_hz(60 + 24 * mod[0, 1:]), rtol=1e-6, atol=0
    )


@pytest.mark.equation("eq-ctag-phase")
def test_first_sample_is_one_step_in():
    out = ctag.sine_vco(SECOND, 69 * ONE, 0 * ONE, 0 * ONE, 0.5 * ONE)[0]
    assert abs(out[0] - math.cos(0.5 + 2 * math.pi * 440 / 16000)) < 1e-12


@pytest.mark.equation("eq-ctag-squaresaw")
@pytest.mark.parametrize("shape", [0.0, 0.4, 1.0])
def test_square_saw_by_hand(shape):
    # 100 Hz: k = 12000 / (100 * 2) = 60; quarter of a period in, sin = 1 and cos = 0
    out = ctag.square_saw_vco(SECOND, hertz_to_midi(100) * ONE, 0 * ONE, 0 * ONE, 0 * ONE, shape * ONE)[0]
    assert abs(out[39] - (1 - shape / 2) * math.tanh(math.pi * 60 / 2)) < 1e-12
    eighth = (1 - shape / 2) * math.tanh(30 * math.pi * math.sqrt(0.5)) * (1 + shape * math.sqrt(0.5))
    assert abs(out[19] - eighth) < 1e-12
    first = math.sin(2 * math.pi / 160), math.cos(2 * math.pi / 160)
    assert abs(out[0] - (1 - shape / 2) * math.tanh(30 * math.pi * first[0]) * (1 + shape * first[1])) < 1e-12


@pytest.mark.equation("eq-ctag-squaresaw")
def test_edges_soften_with_the_highest_pitch():
    # an upward depth softens the edges even where the modulation signal stays at 0; a downward one does not
    rest = torch.zeros(1, SECOND.n_samples, dtype=torch.float64)
    midi = hertz_to_midi(100) * ONE
    plain, up, down = (
        ctag.square_saw_vco(SECOND, midi, 0 * ONE, depth * ONE, 0 * ONE, 0 * ONE, rest)[0, 0]
        for depth in (0.0, 24.0, -24.0)
    )
    sine = math.sin(2 * math.pi / 160)
    top = 400.0
    assert abs(plain - math.tanh(30 * math.pi * sine)) < 1e-12
    assert abs(up - math.tanh(math.pi / 2 * 12000 / (top * math.log10(top)) * sine)) < 1e-12
    assert down == plain


@pytest.mark.equation("eq-ctag-harmonics")
@pytest.mark.parametrize("shape", [0.0, 0.4, 1.0])
def test_harmonics_of_the_limit_shape(shape):
    # E4: 2 Hz sampled a million times a second makes k huge; n <= 20 within 1e-3
    config = SynthConfig(1_000_000, 100, 1.0)
    out = ctag.square_saw_vco(config, hertz_to_midi(2) * ONE, 0 * ONE, 0 * ONE, 0 * ONE, shape * ONE)[0]
    found = spectrum(out)[2 * torch.arange(1, 21)]
    for n in range(1, 21):
        if n % 2:
            expected = (1 - shape / 2) * 4 / (math.pi * n)
        else:
            expected = (1 - shape / 2) * shape * 4 * n / (math.pi * (n * n - 1))
        assert abs(found[n - 1] - expected) < 1e-3, n


@pytest.mark.equation("eq-ctag-fm")
def test_side_bands_are_bessel_functions():
    # E5: carrier 2 kHz, modulator 100 Hz, index I = depth * carrier / modulator = 2
    config = SynthConfig(16000, 160, 1.0)
    t = torch.arange(1, config.n_samples + 1, dtype=torch.float64) / config.sample_rate
    mod = torch.cos(2 * math.pi * 100 * t)[None]
    out = ctag.fm_vco(config, hertz_to_midi(2000) * ONE, 0 * ONE, 2 * 100 / 2000 * ONE, 0 * ONE, mod)[0]
    found = spectrum(out)
    for n in range(-6, 7):
        assert abs(found[2000 + 100 * n] - abs(jv(n, 2.0))) < 1e-3, n


def test_float32_keeps_the_phase(config):
    # two seconds at 48 kHz and MIDI 120: a float32 running sum would be off by whole radians
    long = SynthConfig()
    args = [torch.full((1,), v) for v in (120.3, 0.0, 0.0, 1.0)]
    single = ctag.sine_vco(long, *args)
    double = ctag.sine_vco(long, *(a.double() for a in args))
    assert single.dtype == torch.float32
    # the frequency itself is rounded to float32: 6e-8 relative of 1e5 radians
    assert (single - double).abs().max() < 2e-2


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda o: ctag.sine_vco(SECOND, o, o, o, o, torch.zeros(2, 160)), ValueError, "mod_signal"),
        (lambda o: ctag.sine_vco(SECOND, o, o[:1], o, o), ValueError, "tuning"),
        (lambda o: ctag.sine_vco(SECOND, o * math.nan, o, o, o), ValueError, "finite"),
        (lambda o: ctag.sine_vco(SECOND, 69.0, o, o, o), TypeError, "midi_f0"),
        (lambda o: ctag.square_saw_vco(SECOND, o, o, o, o, 2 * o), ValueError, "shape"),
        (lambda o: ctag.square_saw_vco(SECOND, -50 * o, o, o, o, o), ValueError, "1 Hz"),
        (lambda o: ctag.fm_vco(SECOND, o, o, o, o, None), ValueError, "mod_signal"),
    ],
)
def test_rejects(call, error, match):
    with pytest.raises(error, match=match):
        call(torch.ones(2))
