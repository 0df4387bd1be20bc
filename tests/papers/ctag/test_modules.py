import math

import pytest
import torch

from icml24.papers import ctag
from icml24.papers.ctag import PARAMETERS, SynthConfig
from icml24.papers.ctag.modules import _shape_mixture

RANGES = dict(PARAMETERS)


def in_human_units(module, names, units):
    return [RANGES[f"{module}.{name}"].from_unit(column) for name, column in zip(names, units.T, strict=True)]


def envelope_draws(uniform, n):
    times = [uniform(n, high=high) for high in (2.0, 2.0)]
    return (
        *times,
        uniform(n),
        uniform(n, high=5.0),
        uniform(n, low=0.1, high=6.0),
        uniform(n, low=0.01, high=2.0),
    )


def test_parity_of_envelopes(config, modules):
    # stored order: attack, decay, sustain, release, alpha
    values = in_human_units(
        "adsr_1", ("attack", "decay", "sustain", "release", "alpha"), modules["adsr.params"]
    )
    ours = ctag.adsr(config, *values, modules["adsr.note_on"])
    torch.testing.assert_close(ours, modules["adsr.out"], rtol=0, atol=1e-9)


def test_parity_of_lfo(config, modules):
    units = modules["lfo.params"]
    head = in_human_units("lfo_1", ("frequency", "mod_depth", "initial_phase"), units[:, :3])
    ours = ctag.lfo(config, *head, units[:, 3:], modules["lfo.mod"])
    torch.testing.assert_close(ours, modules["lfo.out"], rtol=0, atol=1e-9)
    torch.testing.assert_close(
        ctag.lfo(config, *head, units[:, 3:]), modules["lfo.out_nomod"], rtol=0, atol=1e-9
    )


def test_parity_of_upsampling(config, modules):
    ours = ctag.upsample(config, modules["upsample.in"])
    torch.testing.assert_close(ours, modules["upsample.out"], rtol=0, atol=2e-6)


@pytest.mark.equation("eq-ctag-matrix")
def test_parity_of_the_matrix(modules):
    weights = RANGES["mod_matrix.mod[0,0]"].from_unit(modules["modmix.params"])
    ours = ctag.mix_modulation(weights, modules["modmix.in"].transpose(0, 1))
    torch.testing.assert_close(ours, modules["modmix.out"], rtol=0, atol=1e-9)


@pytest.mark.equation("eq-ctag-mixer")
def test_parity_of_the_mixer(modules):
    ours = ctag.mix_audio(modules["audiomix.params"], modules["audiomix.in"].transpose(0, 1))
    torch.testing.assert_close(ours, modules["audiomix.out"], rtol=0, atol=1e-9)  # items one by one there


@pytest.mark.equation("eq-ctag-mixer")
def test_mixer_normalises_each_item_by_its_own_peak(uniform):
    signals = uniform(4, 3, 200, low=-1)
    levels = torch.tensor([[1.0, 1, 1], [0.1, 0.1, 0.1], [0, 0, 0], [1, 0, 0]], dtype=torch.float64)
    mixed = ctag.mix_audio(levels, signals)
    assert mixed[0].abs().max() == 1
    torch.testing.assert_close(mixed[1], 0.1 * signals[1].sum(0))
    assert not mixed[2].any()
    assert torch.equal(mixed[3], signals[3, 0])
    alone = torch.cat([ctag.mix_audio(levels[[i]], signals[[i]]) for i in range(4)])
    assert torch.equal(mixed, alone)


@pytest.mark.equation("eq-ctag-adsr")
def test_envelope_laws(uniform):
    # E2 on 1,000 random envelopes: in [0, 1], not rising after the note, falling to 0 only through release
    config = SynthConfig(16000, 160, 1.5)
    draws = envelope_draws(uniform, 1000)
    out = ctag.adsr(config, *draws)
    assert out.shape == (1000, 240)
    assert out.min() >= 0
    assert out.max() <= 1
    after = torch.arange(240) / 160 > draws[-1][:, None]
    assert (out.diff(dim=1)[after[:, 1:] & after[:, :-1]] <= 1e-12).all()


@pytest.mark.equation("eq-ctag-adsr")
def test_envelope_corners():
    config = SynthConfig(16000, 100, 1.0)

    def envelope(**changes):
        values = dict(attack=0.2, decay=0.2, sustain=0.5, release=0.3, alpha=1.0, note_on=0.6) | changes
        return ctag.adsr(config, *(torch.tensor([float(v)], dtype=torch.float64) for v in values.values()))[0]

    assert abs(envelope(attack=0)[0] - 1) < 1e-5  # at the top of a decay that has eps behind it
    assert (envelope(decay=0)[21:60] - 1).abs().max() < 1e-5  # the level stays at 1, not at sustain
    assert (envelope(attack=0, decay=0, release=0, sustain=0) == 1).all()
    assert (envelope(release=0)[45:] - 0.5).abs().max() < 1e-12
    plain = envelope()
    assert abs(plain[10] - 0.5) < 1e-5  # half-way up a linear attack
    assert abs(plain[30] - 0.75) < 1e-5  # half-way from 1 to the sustain level
    assert abs(plain[75] - 0.25) < 1e-5  # half-way down the release
    assert plain[91:].max() == 0
    assert abs(envelope(alpha=2)[10] - 0.25) < 1e-5


@pytest.mark.equation("eq-ctag-ramp")
@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.0])
def test_ramp_is_a_clipped_power_of_time(alpha):
    # with decay and release switched off the envelope is the attack ramp alone
    config = SynthConfig(16000, 160, 1.0)
    one = torch.ones(1, dtype=torch.float64)
    attack = 0.4037  # between control samples
    out = ctag.adsr(config, attack * one, 0 * one, one, 0 * one, alpha * one, 5 * one)[0]
    t = torch.arange(160, dtype=torch.float64) / 160
    line = (t / attack).clamp(max=1) ** alpha
    # eps 1e-6 in the numerator and on the quotient moves a small base by at most (2e-6)^alpha
    assert (out - line).abs().max() < 2 * (2e-6) ** min(alpha, 1)
    assert (out[t > attack] == 1).all()


@pytest.mark.equation("eq-ctag-ramp")
def test_ramp_starts_between_samples():
    # the release begins at 0.6031 s: its line must hit one half at 0.6031 + 0.15
    config = SynthConfig(16000, 1000, 1.0)
    one = torch.ones(1, dtype=torch.float64)
    out = ctag.adsr(config, 0 * one, 0 * one, one, 0.3 * one, one, 0.6031 * one)[0]
    n = 753
    assert abs(out[n] - (1 - (0.753 - 0.6031) / 0.3)) < 1e-5


@pytest.mark.equation("eq-ctag-lfo")
def test_lfo_weights_are_on_the_simplex(uniform):
    # E6: sums to one, scale invariant, a sharper exponent than the raw share, five zeros are equal weights
    raw = uniform(500, 5)
    w = _shape_mixture(raw)
    torch.testing.assert_close(w.sum(-1), torch.ones(500, dtype=torch.float64))
    torch.testing.assert_close(w, _shape_mixture(0.01 * raw))
    assert (w.amax(-1) >= (raw / raw.sum(-1, keepdim=True)).amax(-1)).all()
    assert torch.equal(_shape_mixture(torch.zeros(1, 5)), torch.full((1, 5), 0.2))
    torch.testing.assert_close(_shape_mixture(torch.tensor([[2.0, 1, 0, 0, 0]])).prod(-1), torch.zeros(1))
    ratio = _shape_mixture(torch.tensor([[2.0, 1, 0, 0, 0]], dtype=torch.float64))
    assert math.isclose(ratio[0, 0] / ratio[0, 1], 2**math.e)


@pytest.mark.equation("eq-ctag-lfo")
def test_lfo_shapes_one_by_one():
    # 1 Hz at 100 control samples a second: each shape against its definition by the clock
    config = SynthConfig(16000, 100, 1.0)
    one, zero = torch.ones(5, dtype=torch.float64), torch.zeros(5, dtype=torch.float64)
    out = ctag.lfo(config, one, zero, zero, torch.eye(5, dtype=torch.float64))
    cycle = torch.arange(1, 101, dtype=torch.float64) / 100  # the running sum already holds one step
    expected_sine = torch.sin(math.pi * cycle) ** 2
    torch.testing.assert_close(out[0], expected_sine, rtol=0, atol=1e-12)
    torch.testing.assert_close(out[1, :99], 1 - (2 * cycle[:99] - 1).abs(), rtol=0, atol=1e-12)
    torch.testing.assert_close(out[2, :99], cycle[:99], rtol=0, atol=1e-12)
    torch.testing.assert_close(out[3], 1 - out[2], rtol=0, atol=1e-12)
    assert (out[4, 30:70] == 1).all()
    assert (out[4, :20] == 0).all()


@pytest.mark.equation("eq-ctag-lfo")
def test_lfo_stays_in_the_unit_interval(uniform):
    config = SynthConfig(16000, 160, 1.0)
    out = ctag.lfo(
        config,
        uniform(300, high=20.0),
        uniform(300, low=-10.0, high=20.0),
        uniform(300, low=-4, high=4),
        uniform(300, 5),
        uniform(300, 160),
    )
    assert out.min() >= 0
    assert out.max() <= 1 + 1e-12
    still = ctag.lfo(
        config, *(uniform(1) * s for s in (1.0, 0.0)), uniform(1), uniform(1, 5), -uniform(1, 160)
    )
    assert torch.isfinite(still).all()


def test_frequency_never_turns_negative():
    config = SynthConfig(16000, 100, 1.0)
    one = torch.ones(1, dtype=torch.float64)
    saw = torch.tensor([[0, 0, 1, 0, 0]], dtype=torch.float64)
    out = ctag.lfo(config, one, -5 * one, 0.5 * one, saw, torch.ones(1, 100, dtype=torch.float64))
    assert (out == out[0, 0]).all()  # 1 - 5 < 0: it stands still instead of running backwards


def test_upsampling_keeps_end_points_and_lines(uniform):
    config = SynthConfig(16000, 160, 0.5)
    line = torch.linspace(-1, 3, config.n_control, dtype=torch.float64)[None]
    torch.testing.assert_close(
        ctag.upsample(config, line)[0], torch.linspace(-1, 3, config.n_samples, dtype=torch.float64)
    )
    out = ctag.upsample(config, uniform(2, config.n_control))
    assert out.shape == (2, 8000)
    assert ctag.upsample(SynthConfig(100, 1, 1.0), torch.ones(2, 1)).shape == (2, 100)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda c, o: ctag.adsr(c, o, o, 2 * o, o, o, o), ValueError, "sustain"),
        (lambda c, o: ctag.adsr(c, -o, o, o, o, o, o), ValueError, "attack"),
        (lambda c, o: ctag.adsr(c, o, o, o, o, 0 * o, o), ValueError, "alpha"),
        (lambda c, o: ctag.adsr(c, o, o[:1], o, o, o, o), ValueError, "decay"),
        (lambda c, o: ctag.adsr(c, o, o, o, math.nan * o, o, o), ValueError, "release"),
        (lambda c, o: ctag.adsr(c, 1.0, o, o, o, o, o), TypeError, "attack"),
        (lambda c, o: ctag.lfo(c, o, o, o, torch.ones(2, 4)), ValueError, "shape_weights"),
        (lambda c, o: ctag.lfo(c, o, o, o, -torch.ones(2, 5)), ValueError, "negative"),
        (lambda c, o: ctag.lfo(c, o, o, o, torch.ones(2, 5), torch.ones(2, 3)), ValueError, "mod_signal"),
        (lambda c, o: ctag.upsample(c, torch.ones(2, 3)), ValueError, "control"),
        (lambda c, o: ctag.mix_modulation(torch.ones(2, 5, 4), torch.ones(2, 3, 7)), ValueError, "weights"),
        (lambda c, o: ctag.mix_audio(torch.ones(2, 3), torch.ones(3, 3, 7)), ValueError, "levels"),
        (
            lambda c, o: ctag.mix_audio(torch.ones(2, 3), torch.full((2, 3, 7), math.nan)),
            ValueError,
            "finite",
        ),
    ],
)
def test_rejects(call, error, match):
    with pytest.raises(error, match=match):
        call(SynthConfig(16000, 160, 1.0), torch.ones(2))
