import json
import math

import pytest
import torch

from icml24.papers.ctag import PARAMETERS, ParameterRange, SynthConfig, unpack_parameters
from icml24.papers.ctag.parameters import COLUMNS, voice_parameters

RANGES = dict(PARAMETERS)
STORED = {  # kind in the stored file -> a parameter of that kind
    "adsr.attack": "adsr_1.attack",
    "adsr.decay": "lfo_1_amp_adsr.decay",
    "adsr.sustain": "adsr_2.sustain",
    "adsr.release": "lfo_2_rate_adsr.release",
    "adsr.alpha": "adsr_1.alpha",
    "keyboard.midi_f0": "keyboard.midi_f0",
    "keyboard.duration": "keyboard.duration",
    "lfo.frequency": "lfo_1.frequency",
    "lfo.mod_depth": "lfo_2.mod_depth",
    "lfo.initial_phase": "lfo_1.initial_phase",
    "mod_matrix": "mod_matrix.mod[4,3]",
    "vco.tuning": "vco_1.tuning",
    "vco.mod_depth": "vco_2.mod_depth",
}


def test_names_and_order(data_folder):
    names = json.loads((data_folder / "param_names.json").read_text())
    assert [name for name, _ in PARAMETERS] == names
    assert len(names) == 78
    assert COLUMNS["vco_2.tuning"] == 77


@pytest.mark.parametrize("kind", [*STORED, "mixer.noise"])
def test_parity_of_ranges(load, kind):
    stored = load("ranges")
    span = RANGES[STORED[kind]] if kind in STORED else ParameterRange(0.0, 1.0, 0.025)
    u = stored["normalized"]
    torch.testing.assert_close(span.from_unit(u), stored[f"human:{kind}"], rtol=1e-9, atol=1e-15)
    torch.testing.assert_close(
        span.to_unit(stored[f"human:{kind}"]), stored[f"back:{kind}"], rtol=1e-9, atol=1e-9
    )


@pytest.mark.equation("eq-ctag-curve")
@pytest.mark.parametrize("name", sorted(STORED.values()))
def test_curves_are_increasing_bijections(name):
    # E1: end points exact, round trip, strictly increasing
    span = RANGES[name]
    u = torch.linspace(0, 1, 401, dtype=torch.float64)
    v = span.from_unit(u)
    assert v[0] == span.minimum
    assert math.isclose(v[-1], span.maximum, abs_tol=1e-12)
    assert (v.diff() >= 0).all()
    assert (v[1:-1].diff() > 0).float().mean() > 0.98  # flat only where the difference underflows
    # near a flat spot of v the inverse amplifies rounding: compare in v there, in u elsewhere
    torch.testing.assert_close(span.from_unit(span.to_unit(v)), v, rtol=1e-12, atol=1e-12)
    if span.curve == 1:
        torch.testing.assert_close(span.to_unit(v), u, rtol=0, atol=1e-12)


@pytest.mark.equation("eq-ctag-curve")
def test_one_hand_worked_value():
    # frequency: 20 * 0.5^(1/0.25) = 20 / 16; symmetric depth at u = 0.75: 5 + 15 * 0.5^2
    u = torch.tensor([0.5, 0.75], dtype=torch.float64)
    assert RANGES["lfo_1.frequency"].from_unit(u)[0] == 1.25
    assert RANGES["lfo_1.mod_depth"].from_unit(u)[1] == 5 + 15 * 0.25
    assert RANGES["lfo_1.mod_depth"].from_unit(u)[0] == 5.0


@pytest.mark.equation("eq-ctag-density")
@pytest.mark.parametrize("name", ["lfo_1.frequency", "adsr_1.attack", "vco_1.tuning"])
def test_density_of_a_uniform_draw(name):
    # E1: the density integrates to the distribution of 100,000 draws, Kolmogorov distance below 0.01
    span = RANGES[name]
    draws = span.from_unit(
        torch.rand(100_000, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    )
    m, width, c = span.minimum, span.maximum - span.minimum, span.curve
    grid = torch.logspace(-7, 0, 4000, dtype=torch.float64) * width
    density = c * (grid / width) ** (c - 1) / width
    mass = torch.cat(
        [(grid[:1] / width) ** c, torch.cumulative_trapezoid(density, grid) + (grid[0] / width) ** c]
    )
    empirical = torch.searchsorted(draws.sort().values, m + grid).double() / len(draws)
    assert (empirical - mass).abs().max() < 0.01


def test_noise_level_is_linear_unless_asked():
    u = torch.tensor([0.5, 0.99], dtype=torch.float64)
    assert torch.equal(RANGES["mixer.level[2]"].from_unit(u), u)
    declared = dict(voice_parameters(noise_curve=0.025))["mixer.level[2]"]
    draws = torch.rand(100_000, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    loud = (declared.from_unit(draws) > 0.5).double().mean()
    assert abs(loud - (1 - 0.5**0.025)) < 4 * math.sqrt(0.0172 * 0.983 / 1e5)


def test_unpack_shapes_and_dtypes(uniform):
    u = uniform(2, 3, 78)
    values = unpack_parameters(u)
    assert list(values) == [name for name, _ in PARAMETERS]
    assert values["keyboard.midi_f0"].shape == (2, 3)
    torch.testing.assert_close(values["keyboard.midi_f0"], 127 * u[..., COLUMNS["keyboard.midi_f0"]])
    assert unpack_parameters(u.float())["adsr_1.attack"].dtype == torch.float32
    assert unpack_parameters(u[0, 0])["adsr_1.attack"].shape == ()
    transposed = uniform(78, 5).T
    assert not transposed.is_contiguous()
    torch.testing.assert_close(
        unpack_parameters(transposed)["vco_1.tuning"],
        unpack_parameters(transposed.contiguous())["vco_1.tuning"],
    )
    u.requires_grad_(True)
    sum(value.sum() for value in unpack_parameters(u).values()).backward()
    assert torch.isfinite(u.grad).all()


def test_rounding_beyond_the_cube_is_clamped():
    span = RANGES["adsr_1.attack"]
    assert span.from_unit(torch.tensor([-5e-7, 1 + 5e-7], dtype=torch.float64)).tolist() == [0.0, 2.0]


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: unpack_parameters(torch.zeros(3, 77)), ValueError, "78"),
        (lambda: unpack_parameters(torch.tensor(0.5)), ValueError, "78"),
        (lambda: unpack_parameters(torch.full((78,), 1.1)), ValueError, r"\[0, 1\]"),
        (lambda: unpack_parameters(torch.full((78,), math.nan)), ValueError, r"\[0, 1\]"),
        (lambda: unpack_parameters([0.5] * 78), TypeError, "Tensor"),
        (lambda: unpack_parameters(torch.zeros(78, dtype=torch.int64)), TypeError, "floating"),
        (lambda: ParameterRange(1.0, 1.0), ValueError, "minimum < maximum"),
        (lambda: ParameterRange(0.0, math.inf), ValueError, "finite"),
        (lambda: ParameterRange(0.0, 1.0, 0.0), ValueError, "curve"),
        (lambda: ParameterRange(0.0, 1.0, -1.0), ValueError, "curve"),
        (lambda: ParameterRange(0.0, 1.0).to_unit(torch.tensor([1.5])), ValueError, r"\[0, 1\]"),
        (lambda: ParameterRange(0.0, 1.0).to_unit(torch.tensor([math.nan])), ValueError, "lie in"),
        (lambda: SynthConfig(duration=0.0), ValueError, "duration"),
        (lambda: SynthConfig(duration=math.nan), ValueError, "duration"),
        (lambda: SynthConfig(sample_rate=0), ValueError, "sample_rate"),
        (lambda: SynthConfig(control_rate=-1), ValueError, "control_rate"),
        (lambda: SynthConfig(sample_rate=100, control_rate=480), ValueError, "control_rate"),
        (lambda: SynthConfig(eps=0.0), ValueError, "eps"),
    ],
)
def test_rejects(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_lengths_round_up():
    config = SynthConfig(44100, 441, 0.0101)
    assert (config.n_samples, config.n_control) == (446, 5)
    assert (SynthConfig().n_samples, SynthConfig().n_control) == (96000, 960)
