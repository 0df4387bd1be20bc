import math

import pytest
import torch

from icml24.papers import ctag
from icml24.papers.ctag import CMAES, LES, RandomSearch, SynthConfig, Voice
from icml24.papers.ctag.budget import draws_needed, expected_best
from icml24.papers.ctag.voice import AblatedVoice, white_noise

SMALL = SynthConfig(4000, 40, 0.1)


class Loudness:
    """Scores by how close the mean absolute sample is to 0.2: needs no training, and finds a known thing."""

    def embed_text(self, prompts):
        angle = 2 * torch.ones(len(prompts))
        return torch.stack([angle.cos(), angle.sin()], -1)

    def embed_audio(self, audio, sample_rate):
        assert sample_rate == 4000
        angle = 10 * audio.abs().mean(-1)
        return torch.stack([angle.cos(), angle.sin()], -1)


@pytest.mark.equation("eq-ctag-objective")
def test_fitness_rule():
    s = torch.tensor([0.7, 0.0, -0.2, 1.0, 1.0000001, -1.0], dtype=torch.float64)
    assert ctag.fitness_from_similarity(s).tolist() == [-0.7, 0.0, 0.0, -1.0, 0.0, 0.0]
    assert ctag.fitness_from_similarity(torch.tensor(0.5)).shape == ()
    with pytest.raises(ValueError, match="finite"):
        ctag.fitness_from_similarity(torch.tensor([math.nan]))
    with pytest.raises(TypeError, match="Tensor"):
        ctag.fitness_from_similarity(0.5)


@pytest.mark.parametrize("name", ["LES", "CMA-ES", "random search"])
def test_optimise_finds_what_it_is_asked_for(name, weights):
    made = {
        "LES": lambda: LES(weights, population_size=10),
        "CMA-ES": lambda: CMAES(population_size=10),
        "random search": lambda: RandomSearch(population_size=10),
    }
    seen = []
    found = ctag.optimise(
        "as loud as 0.2",
        Voice(SMALL),
        Loudness(),
        made[name](),
        iterations=8,
        generator=torch.Generator().manual_seed(3),
        callback=lambda generation, state: seen.append((generation, state.generation)),
    )
    assert seen == [(i, i + 1) for i in range(8)]
    assert found.similarity > 0.95
    assert found.unit.shape == (78,)
    assert found.audio.shape == (400,)
    assert found.history.shape == (8,)
    assert found.history.dtype == torch.float64
    assert (found.history.diff() >= 0).all()
    assert math.isclose(found.history[-1], found.similarity, rel_tol=1e-6)


def test_the_result_can_be_rendered_again(weights):
    voice, noise = Voice(SMALL), white_noise(SMALL)
    found = ctag.optimise("x", voice, Loudness(), LES(weights, population_size=6), iterations=3, noise=noise)
    # alone or in a batch: the same sound up to rounding
    torch.testing.assert_close(voice(found.unit[None], noise)[0], found.audio, rtol=0, atol=1e-3)
    again = ctag.optimise("x", voice, Loudness(), LES(weights, population_size=6), iterations=3, noise=noise)
    assert torch.equal(found.unit, again.unit)
    rows = torch.rand(6, 78, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    own = ctag.optimise("x", voice, Loudness(), LES(weights, population_size=6), iterations=2, mean=rows)
    assert own.unit.dtype == torch.float64
    reduced = ctag.optimise(
        "x", AblatedVoice("NoLFO", SMALL), Loudness(), LES(weights, population_size=6), iterations=2
    )
    assert reduced.unit.shape == (29,)


def test_no_global_randomness(weights, global_random_state):
    before = global_random_state()
    ctag.optimise("x", Voice(SMALL), Loudness(), LES(weights, population_size=4), iterations=2)
    assert global_random_state() == before


def test_interpolation(uniform):
    u0, u1 = uniform(78), uniform(78)
    line = ctag.interpolate(u0, u1, 7)
    assert line.shape == (7, 78)
    assert torch.equal(line[0], u0)
    assert torch.equal(line[-1], u1)
    torch.testing.assert_close(line[3], (u0 + u1) / 2)
    assert ctag.interpolate(u0.float(), u1.float(), 2).dtype == torch.float32


@pytest.mark.equation("eq-ctag-extremes")
def test_expected_best():
    # two and three normals: 1/sqrt(pi) and 3/(2 sqrt(pi)); more by Monte Carlo; and the bound
    assert math.isclose(expected_best(1), 0.0, abs_tol=1e-9)
    assert math.isclose(expected_best(2), 1 / math.sqrt(math.pi), rel_tol=1e-6)
    assert math.isclose(expected_best(3), 1.5 / math.sqrt(math.pi), rel_tol=1e-6)
    best = torch.randn(20_000, 100, generator=torch.Generator().manual_seed(6), dtype=torch.float64).amax(1)
    assert abs(best.mean() - expected_best(100)) < 4 * best.std() / math.sqrt(20_000)
    assert all(expected_best(n) < math.sqrt(2 * math.log(n)) for n in (2, 10, 1000, 100_000))
    assert math.isclose(draws_needed(0.0), 2.0)
    with pytest.raises(ValueError, match="n must"):
        expected_best(0)


@pytest.mark.equation("eq-ctag-extremes")
def test_random_search_is_the_best_of_its_draws():
    # a sum of 300 uniforms is normal enough: 40 generations of 25 are the best of 1,000
    d, scores = 300, []
    strategy = RandomSearch(population_size=25)
    for seed in range(60):
        g = torch.Generator().manual_seed(seed)
        state = strategy.init(torch.full((d,), 0.5, dtype=torch.float64))
        for _ in range(40):
            x = strategy.ask(state, generator=g)
            state = strategy.tell(state, x, -(x.sum(-1) - d / 2) / math.sqrt(d / 12))
        scores.append(-state.best_fitness)
    scores = torch.tensor(scores)
    assert abs(scores.mean() - expected_best(1000)) < 4 * scores.std() / math.sqrt(60)


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"prompt": ""}, ValueError, "prompt"),
        ({"prompt": ["x"]}, TypeError, "prompt"),
        ({"iterations": 0}, ValueError, "iterations"),
        ({"iterations": 1.5}, ValueError, "iterations"),
        ({"noise": torch.zeros(3)}, ValueError, "400.*3"),
        ({"mean": torch.full((78,), 2.0)}, ValueError, "box"),
    ],
)
def test_rejects(changes, error, match, weights):
    given = {"prompt": "x", "iterations": 1, **changes}
    prompt = given.pop("prompt")
    with pytest.raises(error, match=match):
        ctag.optimise(prompt, Voice(SMALL), Loudness(), LES(weights, population_size=4), **given)


@pytest.mark.parametrize(
    ("u0", "u1", "steps", "error", "match"),
    [
        (torch.zeros(3), torch.zeros(4), 3, ValueError, "agree"),
        (torch.zeros(3), torch.zeros(3).double(), 3, ValueError, "agree"),
        (torch.zeros(1, 3), torch.zeros(1, 3), 3, ValueError, "u0"),
        (torch.zeros(3), torch.full((3,), math.nan), 3, ValueError, "u1"),
        (torch.zeros(3), torch.zeros(3), 1, ValueError, "steps"),
        ([0.0], torch.zeros(1), 3, TypeError, "u0"),
    ],
)
def test_interpolation_rejects(u0, u1, steps, error, match):
    with pytest.raises(error, match=match):
        ctag.interpolate(u0, u1, steps)
