import math
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch

from icml24.papers.ctag import CMAES, LES, RandomSearch
from icml24.papers.ctag.evolution import TIME_SCALES, _fitness_features

P, D = 12, 7


@pytest.fixture
def les(weights):
    return LES(weights, population_size=P)


def advanced(strategy, uniform, generations=3, d=D):
    state = strategy.init(uniform(d))
    for _ in range(generations):
        x = strategy.ask(state)
        state = strategy.tell(state, x, (x - 0.3).square().sum(-1))
    return state


@pytest.mark.equation("eq-ctag-update")
@pytest.mark.equation("eq-ctag-paths")
@pytest.mark.parametrize(("name", "sigma"), [("small", 0.27), ("rows", 0.27), ("full", 0.2693048)])
def test_parity_with_evosax(load, weights, name, sigma):
    # six generations from evosax in float32, a tie of all members at the fourth; (P, D) means in "rows"
    stored = {key.split(":")[1]: value for key, value in load("les").items() if key.startswith(name)}
    strategy = LES(weights, population_size=stored["x"].shape[1], sigma_init=sigma)
    state = strategy.init(stored["mean0"])
    for g in range(6):
        state = strategy.tell(state, stored["x"][g], stored["fitness"][g])
        for part in ("mean", "sigma", "path_c", "path_sigma"):
            torch.testing.assert_close(getattr(state, part), stored[part][g], rtol=0, atol=5e-5)
        torch.testing.assert_close(state.best_x, stored["best_member"][g], rtol=0, atol=0)
        assert abs(state.best_fitness - stored["best_fitness"][g]) < 1e-7
        assert state.generation == g + 1


@pytest.mark.equation("eq-ctag-features")
def test_fitness_features_by_hand():
    # values 3, 1, 1, 5 with best so far 2: stable ranks 2, 0, 1, 3; mean 2.5, population variance 2.75
    fitness = torch.tensor([3.0, 1, 1, 5], dtype=torch.float64)
    features = _fitness_features(fitness, 2.0)
    assert features[:, 0].tolist() == [0, 1, 1, 0]
    torch.testing.assert_close(features[:, 1], torch.tensor([2 / 3, 0, 1 / 3, 1], dtype=torch.float64) - 0.5)
    torch.testing.assert_close(features[:, 2], (fitness - 2.5) / math.sqrt(2.75))
    assert not _fitness_features(torch.ones(4, dtype=torch.float64), 1.0)[:, [0, 2]].any()


@pytest.mark.equation("eq-ctag-attention")
def test_attention_by_loops(les, uniform):
    # the weights from plain loops over pairs of members
    fitness = uniform(P)
    w = les._recombination(fitness, 0.4)
    rows = _fitness_features(fitness, 0.4).tolist()
    table = {name: value.double().tolist() for name, value in les.weights.items()}

    def dense(x, i):
        kernel, bias = (table[f"recomb_weights/params/Dense_{i}/{part}"] for part in ("kernel", "bias"))
        return [sum(x[a] * kernel[a][b] for a in range(3)) + bias[b] for b in range(len(bias))]

    keys, queries, values = ([dense(row, i) for row in rows] for i in range(3))
    scores = []
    for q in queries:
        e = [math.exp(sum(a * b for a, b in zip(q, k, strict=True)) / math.sqrt(P)) for k in keys]
        scores.append(sum(a * v[0] for a, v in zip(e, values, strict=True)) / sum(e))
    total = sum(map(math.exp, scores))
    expected = torch.tensor([math.exp(s) / total for s in scores], dtype=torch.float64)
    torch.testing.assert_close(w, expected, rtol=1e-10, atol=0)
    assert abs(w.sum() - 1) < 1e-12
    assert (w > 0).all()
    assert w[fitness.argmin()] > 1 / P  # better members weigh more


@pytest.mark.equation("eq-ctag-rates")
def test_learning_rates_by_loops(les, uniform):
    c, s = uniform(D, 3, low=-1), uniform(D, 3, low=-1)
    rates = les._learning_rates(c, s, 40)
    table = {name: value.double() for name, value in les.weights.items()}
    for j in range(D):
        inputs = [*c[j].tolist(), *s[j].tolist(), *(math.tanh(40 / scale - 1) for scale in TIME_SCALES)]
        assert len(inputs) == 19
        kernel, bias = (
            table[f"lrate_modulation/params/Dense_0/{part}"].tolist() for part in ("kernel", "bias")
        )
        hidden = [
            max(0.0, sum(x * row[b] for x, row in zip(inputs, kernel, strict=True)) + bias[b])
            for b in range(8)
        ]
        for head, rate in zip((1, 2), rates, strict=True):
            out = table[f"lrate_modulation/params/Dense_{head}/kernel"][:, 0] @ torch.tensor(hidden).double()
            out = float(out + table[f"lrate_modulation/params/Dense_{head}/bias"][0])
            assert math.isclose(rate[j], 1 / (1 + math.exp(-out)), rel_tol=1e-5)  # biases are float32


@pytest.mark.equation("eq-ctag-paths")
def test_paths_are_moving_averages(les, uniform):
    # told the same population for ever, with the mean put back each time, each path converges to its gradient
    start = les.init(uniform(D))
    x, fitness = les.ask(start), uniform(P)
    state = start
    for _ in range(400):
        state = replace(les.tell(state, x, fitness), mean=start.mean, sigma=start.sigma, best_fitness=0.0)
    w = les._recombination(fitness, 0.0)
    torch.testing.assert_close(state.path_c, ((x - start.mean).T @ w)[:, None].expand(-1, 3))
    torch.testing.assert_close(state.path_sigma, state.path_c / les.sigma_init)
    once = les.tell(replace(start, best_fitness=0.0), x, fitness)
    torch.testing.assert_close(once.path_c, state.path_c * torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64))


@pytest.mark.equation("eq-ctag-invariance")
def test_invariance(les, uniform):
    # E7: permutations and f -> 3f + 2 (the best so far likewise)
    state = advanced(les, uniform)
    x, fitness = les.ask(state), uniform(P)
    told = les.tell(state, x, fitness)
    order = torch.randperm(P, generator=torch.Generator().manual_seed(5))
    moved = les.tell(
        replace(state, best_fitness=3 * state.best_fitness + 2), x[order], 3 * fitness[order] + 2
    )
    for part in ("mean", "sigma", "path_c", "path_sigma"):
        torch.testing.assert_close(getattr(moved, part), getattr(told, part), rtol=0, atol=1e-6)
    bent = les.tell(state, x, fitness**3)
    assert not torch.allclose(bent.mean, told.mean, atol=1e-6)  # only affine maps, the z-score sees the rest


@pytest.mark.equation("eq-ctag-hull")
@pytest.mark.parametrize("seed", range(5))
def test_mean_stays_in_the_hull(les, seed):
    # E8, coordinate by coordinate; sigma stays positive
    g = torch.Generator().manual_seed(seed)
    state = les.init(torch.rand(D, generator=g, dtype=torch.float64))
    for _ in range(30):
        x = les.ask(state, generator=g)
        told = les.tell(state, x, torch.rand(P, generator=g, dtype=torch.float64))
        points = torch.cat([x, state.mean[None]])
        assert (told.mean >= points.amin(0) - 1e-12).all()
        assert (told.mean <= points.amax(0) + 1e-12).all()
        assert (told.sigma > 0).all()
        assert (told.sigma <= 1).all()
        state = told


@pytest.mark.equation("eq-ctag-cma")
@pytest.mark.parametrize("kind", ["increasing map", "rotation"])
def test_invariance_of_cma(kind):
    # E11: the same trajectory after a map of the fitness; a rotated trajectory after a rotation of space
    strategy = CMAES(population_size=10, lower=-100.0, upper=100.0, sigma_init=0.5)
    g = torch.Generator().manual_seed(8)
    q, _ = torch.linalg.qr(torch.randn(5, 5, generator=g, dtype=torch.float64))
    q = q if kind == "rotation" else torch.eye(5, dtype=torch.float64)
    bend = torch.expm1 if kind == "increasing map" else (lambda f: f)
    scales = torch.tensor([1.0, 3, 10, 30, 100], dtype=torch.float64)
    plain, turned = (
        strategy.init(m) for m in (torch.ones(5, dtype=torch.float64), q @ torch.ones(5, dtype=torch.float64))
    )
    for _ in range(25):
        x = strategy.ask(plain, generator=g)
        fitness = (x.square() * scales).sum(-1)
        plain = strategy.tell(plain, x, fitness)
        turned = strategy.tell(turned, x @ q.T, bend(fitness / 1000))
    torch.testing.assert_close(turned.mean, q @ plain.mean, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(turned.covariance, q @ plain.covariance @ q.T, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(turned.sigma, plain.sigma, rtol=1e-8, atol=0)


@pytest.mark.equation("eq-ctag-hull")
def test_knobs_move_at_their_own_rates(weights, uniform):
    # the trained rate of the mean is 1 up to rounding; with weights near zero every coordinate goes its own
    # share of the way to the weighted mean
    les = LES({name: 0.3 * weight.sign() for name, weight in weights.items()}, population_size=P)
    state = advanced(les, uniform)
    x, fitness = les.ask(state), uniform(P)
    w = les._recombination(fitness, state.best_fitness)
    share = (les.tell(state, x, fitness).mean - state.mean) / (w @ x - state.mean)
    assert (share > 0).all()
    assert (share < 1).all()
    assert share.max() - share.min() > 1e-3


def test_cma_by_loops(uniform):
    # three generations of Hansen's tutorial in plain numpy; after the first all go one way, so that the
    # path of sigma becomes long enough to stall the other
    d, n, half = 4, 8, 4
    strategy = CMAES(population_size=n, sigma_init=0.2)
    state = strategy.init(torch.full((d,), 0.5, dtype=torch.float64))
    raw = np.log((n + 1) / 2) - np.log(np.arange(1, half + 1))
    w = raw / raw.sum()
    mass = w.sum() ** 2 / (w**2).sum()
    c_s, c_c = (mass + 2) / (d + mass + 5), (4 + mass / d) / (d + 4 + 2 * mass / d)
    c_1 = 2 / ((d + 1.3) ** 2 + mass)
    c_mu = 2 * (mass - 2 + 1 / mass) / ((d + 2) ** 2 + mass)
    damping = c_s + 1 + 2 * max(0, math.sqrt((mass - 1) / (d + 1)) - 1)
    chi = math.sqrt(2) * math.gamma((d + 1) / 2) / math.gamma(d / 2)  # exact; the series is 1e-4 close
    mean, sigma, cov, p_s, p_c = np.full(d, 0.5), 0.2, np.eye(d), np.zeros(d), np.zeros(d)
    stalls = []
    for g in range(1, 4):
        x = uniform(n, d, low=0.0 if g == 1 else 0.8)
        fitness = uniform(n)
        state = strategy.tell(state, x, fitness)
        chosen = x.numpy()[np.argsort(fitness.numpy())[:half]]
        y = (chosen - mean) / sigma
        move = sum(wi * yi for wi, yi in zip(w, y, strict=True))
        values, vectors = np.linalg.eigh(cov)
        root = vectors @ np.diag(values**-0.5) @ vectors.T
        p_s = (1 - c_s) * p_s + math.sqrt(c_s * (2 - c_s) * mass) * root @ move
        length = math.sqrt((p_s**2).sum())
        going = length / math.sqrt(1 - (1 - c_s) ** (2 * g)) < (1.4 + 2 / (d + 1)) * chi
        stalls.append(not going)
        p_c = (1 - c_c) * p_c + (math.sqrt(c_c * (2 - c_c) * mass) * move if going else 0)
        lost = 0 if going else c_1 * c_c * (2 - c_c)
        cov = (1 - c_1 - c_mu + lost) * cov + c_1 * np.outer(p_c, p_c)
        cov = cov + c_mu * sum(wi * np.outer(yi, yi) for wi, yi in zip(w, y, strict=True))
        mean, sigma = mean + sigma * move, sigma * math.exp(c_s / damping * (length / chi - 1))
        for part, value in (("mean", mean), ("path_sigma", p_s), ("path_c", p_c), ("covariance", cov)):
            np.testing.assert_allclose(getattr(state, part), value, rtol=1e-3, atol=1e-4)
        assert math.isclose(state.sigma, sigma, rel_tol=1e-3)
    assert set(stalls) == {True, False}


def test_cma_solves_a_rotated_ellipsoid():
    g = torch.Generator().manual_seed(9)
    q, _ = torch.linalg.qr(torch.randn(6, 6, generator=g, dtype=torch.float64))
    strategy = CMAES(population_size=12)
    target = torch.linspace(0.3, 0.7, 6, dtype=torch.float64)
    state = strategy.init(torch.full((6,), 0.5, dtype=torch.float64))
    for _ in range(200):
        x = strategy.ask(state, generator=g)
        state = strategy.tell(
            state, x, (((x - target) @ q).square() * torch.logspace(0, 3, 6, dtype=torch.float64)).sum(-1)
        )
    assert state.best_fitness < 1e-8


@pytest.mark.parametrize("kind", [LES, CMAES, RandomSearch])
def test_protocol(kind, weights, uniform, global_random_state):
    strategy = kind(weights, population_size=P) if kind is LES else kind(population_size=P)
    before = global_random_state()
    mean = uniform(D).float()
    state = strategy.init(mean)
    assert math.isinf(state.best_fitness)
    assert state.generation == 0
    x = strategy.ask(state, generator=torch.Generator().manual_seed(1))
    assert x.shape == (P, D)
    assert x.dtype == torch.float32
    assert x.min() >= 0
    assert x.max() <= 1
    assert torch.equal(strategy.ask(state), strategy.ask(state))
    frozen = {part: getattr(state, part).clone() for part in ("mean", "sigma", "best_x")}
    fitness = torch.arange(P, dtype=torch.float32).flip(0)
    told = strategy.tell(state, x, fitness)
    assert all(torch.equal(getattr(state, part), value) for part, value in frozen.items())
    assert told.best_fitness == 0.0
    assert isinstance(told.best_fitness, float)
    assert torch.equal(told.best_x, x[-1])
    assert told.generation == 1
    worse = strategy.tell(told, x, fitness + 1)
    assert worse.best_fitness == 0.0
    assert not torch.equal(strategy.ask(told), strategy.ask(replace(told, generation=2)))
    with pytest.raises(FrozenInstanceError):
        state.generation = 5
    assert global_random_state() == before


def test_rows_of_means(les, uniform):
    state = les.init(uniform(P, D))
    assert les.ask(state).shape == (P, D)
    assert les.tell(state, les.ask(state), uniform(P)).mean.shape == (P, D)
    assert torch.equal(state.best_x, state.mean[0])


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda s, st: s.tell(st, torch.zeros(P, D + 1), torch.zeros(P)), ValueError, "x of shape"),
        (lambda s, st: s.tell(st, torch.zeros(P, D), torch.zeros(P - 1)), ValueError, "fitness of shape"),
        (
            lambda s, st: s.tell(st, torch.zeros(P, D), torch.full((P,), math.nan)),
            ValueError,
            "fitness must be finite",
        ),
        (lambda s, st: s.tell(st, torch.zeros(P, D), torch.full((P,), math.inf)), ValueError, "finite"),
        (
            lambda s, st: s.tell(st, torch.full((P, D), math.nan), torch.zeros(P)),
            ValueError,
            "x must be finite",
        ),
        (lambda s, st: s.tell(st, torch.zeros(P, D), [0.0] * P), TypeError, "fitness"),
        (lambda s, st: s.init(torch.full((D,), 1.5)), ValueError, "box"),
        (lambda s, st: s.init(torch.zeros(P + 1, D)), ValueError, "mean of shape"),
        (lambda s, st: s.init(torch.full((D,), math.nan)), ValueError, "finite"),
        (lambda s, st: s.init([0.5] * D), TypeError, "mean"),
        (lambda s, st: LES(s.weights, population_size=1), ValueError, "population_size"),
        (lambda s, st: LES(s.weights, sigma_init=0.0), ValueError, "sigma_init"),
        (lambda s, st: LES(s.weights, lower=1.0, upper=1.0), ValueError, "lower < upper"),
        (lambda s, st: LES({}), ValueError, "lack"),
        (lambda s, st: CMAES(population_size=1), ValueError, "population_size"),
        (lambda s, st: CMAES().init(torch.zeros(50, 3)), ValueError, "mean of shape"),
        (lambda s, st: RandomSearch(population_size=0), ValueError, "population_size"),
        (lambda s, st: RandomSearch(upper=math.nan), ValueError, "box"),
    ],
)
def test_rejects(les, call, error, match):
    state = les.init(torch.full((D,), 0.5))
    with pytest.raises(error, match=match):
        call(les, state)


@pytest.mark.parametrize("kind", ["LES", "CMA-ES"])
def test_smallest_population_runs(kind, weights):
    strategy = LES(weights, population_size=2) if kind == "LES" else CMAES(population_size=2)
    state = strategy.init(torch.full((1,), 0.5, dtype=torch.float64))
    for _ in range(5):
        x = strategy.ask(state)
        state = strategy.tell(state, x, x[:, 0])
    assert torch.isfinite(state.mean).all()
