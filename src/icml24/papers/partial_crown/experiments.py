r"""What the chapter runs: two instances of one configuration, and functions from it to results.

Every random stream is named by the base seed and its purpose. Nothing here plots or prints.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from icml24.common.profiles import choose
from icml24.common.random import generator

from .bounds import bound_network
from .branching import BranchResult, greedy_branching, monte_carlo_extrema, uniform_branching
from .data import random_network
from .equations import PDE, AllenCahn, Burgers
from .networks import TanhMLP
from .systems import DiffusionSorption, Schrodinger
from .training import PINNConfig, train_pinn

__all__ = [
    "FULL",
    "QUICK",
    "Config",
    "Row",
    "certify_row",
    "condition_rows",
    "configure",
    "curve",
    "greedy_over_uniform",
    "grid_widths",
    "milliseconds_a_box",
    "other_equations",
    "released_comparison",
    "residual_row",
    "sampling_ladder",
    "sound_equations",
    "sound_networks",
    "uniform_curve",
    "widths_by_radius",
]


@dataclass(frozen=True)
class Config:
    """Sizes of every experiment.

    Attributes
    ----------
    seed : int
        Base seed.
    small_evaluations, long_evaluations : int
        Boxes for the residuals of the two stored networks.
    condition_evaluations : int
        Boxes for each initial and boundary condition.
    official_evaluations : int
        Boxes for the residual of the authors' network.
    samples : int
        Points of a Monte Carlo maximum.
    uniform : tuple of int
        Cells an axis of the uniform partitions.
    sound_boxes, sound_points : int
        Boxes a network, and points a box, of the search for a violation.
    sound_networks : tuple of tuple of int
        Widths of the random networks in that search.
    other_evaluations, other_steps : int
        Boxes and training iterations for the three other equations.
    schrodinger_horizon : float
        Last time of the Schroedinger network (the paper's: pi / 2).
    checkpoint_steps, checkpoint_evaluations
        Iterations at which a network of its own is certified, and boxes for each.
    """

    seed: int = 0
    small_evaluations: int = 5000
    long_evaluations: int = 5000
    condition_evaluations: int = 1500
    official_evaluations: int = 0
    samples: int = 200_000
    uniform: tuple[int, ...] = (8, 12, 16, 23, 32, 45, 64)
    sound_boxes: int = 24
    sound_points: int = 900
    sound_networks: tuple[tuple[int, ...], ...] = ((2, 1, 1, 1), (2, 2, 1, 1), (2, 2, 2, 1), (2, 8, 8, 1))
    other_evaluations: int = 0
    other_steps: int = 0
    schrodinger_horizon: float = 0.5
    checkpoint_steps: tuple[int, ...] = ()
    checkpoint_evaluations: int = 0


QUICK = Config(long_evaluations=3000, uniform=(8, 12, 16, 23, 32, 45))
FULL = Config(
    long_evaluations=20_000,
    official_evaluations=15_000,
    samples=1_000_000,
    sound_boxes=64,
    sound_points=1000,
    sound_networks=(
        *(
            (2, 1, 1),
            (2, 1, 1, 1),
            (2, 1, 1, 1, 1),
            (2, 2, 1, 1),
            (2, 2, 2, 1),
            (2, 1, 2, 1),
            (2, 2, 1, 2, 1),
        ),
        *((2, 6, 6, 1), (2, 8, 8, 1), (2, 20, 20, 20, 1)),
    ),
    other_evaluations=3000,
    other_steps=1500,
    checkpoint_steps=(20, 40, 80, 160, 320, 640, 1280),
    checkpoint_evaluations=3000,
)


def configure(profile: str, **overrides: object) -> Config:
    """The profile's configuration, with single fields replaced (see `profiles.choose`)."""
    return choose({"quick": QUICK, "full": FULL}, profile, **overrides)


@dataclass(frozen=True)
class Row:
    """One certified quantity: sampled maxima, certificate, and what it took. Squares, as in the paper's table."""

    name: str
    sampled_few: float
    sampled: float
    certified: float
    boxes: int
    seconds: float
    result: BranchResult = field(repr=False)

    @property
    def ratio(self) -> float:
        """Certified over sampled square; at least one if the bound is sound."""
        return self.certified / self.sampled if self.sampled else np.inf


def certify_row(
    name: str,
    bounds: Callable[[Tensor], tuple[Tensor, Tensor]],
    error: Callable[[Tensor], Tensor],
    domain: Tensor,
    evaluations: int,
    config: Config,
    *,
    squared: bool = False,
    batch: int = 64,
) -> Row:
    """Sample a quantity on a domain, certify it greedily, and square both (`squared`: it is a square already)."""
    draws = generator(config.seed, "sample", name)
    few = monte_carlo_extrema(error, domain, 10_000, generator=draws)
    low, high = monte_carlo_extrema(error, domain, config.samples, generator=draws)
    low, high = min(low, few[0]), max(high, few[1])
    start = time.process_time()
    result = greedy_branching(
        bounds, domain, max_evaluations=evaluations, empirical_min=low, empirical_max=high, batch=batch
    )
    spent = time.process_time() - start
    power = 1 if squared else 2
    few_size, size = (max(abs(a), abs(b)) ** power for a, b in (few, (low, high)))
    return Row(name, few_size, size, result.largest**power, result.evaluations, spent, result)


def residual_row(name: str, pde: PDE, net: TanhMLP, evaluations: int, config: Config) -> Row:
    """The residual of a network on the equation's whole domain."""
    return certify_row(
        *(name, lambda b: pde.residual_bounds(net, b), lambda x: pde.residual(net, x), pde.domain),
        *(evaluations, config),
        squared=isinstance(pde, Schrodinger),
    )


def condition_rows(name: str, pde: PDE, net: TanhMLP, evaluations: int, config: Config) -> list[Row]:
    """Initial and boundary conditions of a network, one row each."""
    (t0, x0), (t1, x1) = pde.domain.tolist()
    squared = isinstance(pde, Schrodinger)
    start = torch.tensor([[t0, x0], [t0, x1]], dtype=torch.float64)
    rows = [
        certify_row(
            *(f"{name}, initial", lambda b: pde.initial_bounds(net, b)),
            *(lambda x: pde.initial_error(net, x[:, 1]), start, evaluations, config),
            squared=squared,
        )
    ]
    sides = {"x = -1": x0, "x = 1": x1} if isinstance(pde, Burgers) else {"periodic": x0}
    if isinstance(pde, DiffusionSorption):
        sides = {"x = 0": x0, "x = 1": x1}
    for side, x in sides.items():
        face = torch.tensor([[t0, x], [t1, x]], dtype=torch.float64)
        for order in (0, 1) if isinstance(pde, Schrodinger) else (None,):
            more = {} if order is None else {"order": order}
            label = f"{name}, {side}" + (" slope" if order else "")
            rows.append(
                certify_row(
                    *(label, lambda b, m=more: pde.boundary_bounds(net, b, **m)),
                    *(lambda x, m=more: pde.boundary_error(net, x, **m), face, evaluations, config),
                    squared=squared,
                )
            )
    return rows


def curve(row: Row) -> tuple[np.ndarray, np.ndarray]:
    """Boxes, and certified over sampled maximum (not squared), along a branching."""
    history = np.array(row.result.history)
    return history[:, 0], np.maximum(np.abs(history[:, 1]), np.abs(history[:, 2])) / np.sqrt(row.sampled)


def uniform_curve(pde: PDE, net: TanhMLP, row: Row, cells: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The same for uniform partitions of ``cells`` squared boxes."""
    found = [
        uniform_branching(lambda b: pde.residual_bounds(net, b), pde.domain, splits=(n, n)) for n in cells
    ]
    ratios = np.array([r.largest for r in found]) / np.sqrt(row.sampled)
    return np.array([r.evaluations for r in found]), ratios


def greedy_over_uniform(row: Row, uniform: tuple[np.ndarray, np.ndarray], least: int = 500) -> float:
    """Largest greedy certificate over the uniform one, at the uniform budgets of `least` boxes and more.

    The greedy certificate at a budget is that of the last round within it.
    """
    boxes, ratios = curve(row)
    at = [(ratios[boxes <= n][-1], u) for n, u in zip(*uniform, strict=True) if n >= least]
    return float(max(g / u for g, u in at))


def widths_by_radius(
    pde: PDE, net: TanhMLP, radii: Sequence[float], config: Config, boxes: int = 48
) -> dict[str, np.ndarray]:
    """Median width of the residual's bounds on boxes of shrinking radius (a share of the domain), by method.

    The entry "sampled" is the range over 200 points and the corners: the width that no bound can beat.
    """
    low, high = pde.domain
    draws = generator(config.seed, "radii")
    centres = low + (high - low) * (0.1 + 0.8 * torch.rand(boxes, 2, generator=draws, dtype=torch.float64))
    spread = torch.rand(200, 2, generator=draws, dtype=torch.float64) * 2 - 1
    spread = torch.cat((spread, torch.tensor([[-1.0, -1], [-1, 1], [1, -1], [1, 1]], dtype=torch.float64)))
    out: dict[str, list[float]] = {"interval": [], "entry": [], "neuron": [], "sampled": []}
    for r in radii:
        half = r * (high - low)
        batch = torch.stack((centres - half, centres + half), 1)
        for name, options in (
            ("interval", {"method": "ibp"}),
            ("entry", {"product": "entry"}),
            ("neuron", {"product": "neuron"}),
        ):
            a, b = pde.residual_bounds(net, batch, **options)
            out[name].append(float((b - a).median()))
        points = (centres[:, None] + spread * half).reshape(-1, 2)
        values = pde.residual(net, points).reshape(boxes, -1)
        out["sampled"].append(float((values.amax(1) - values.amin(1)).median()))
    return {name: np.array(v) for name, v in out.items()}


def grid_widths(pde: PDE, net: TanhMLP, splits: tuple[int, int]) -> dict[str, float]:
    """Median width of the residual's bounds over a regular grid, by method."""
    out = {}
    for name, options in (
        ("interval", {"method": "ibp"}),
        ("entry", {"product": "entry"}),
        ("neuron", {"product": "neuron"}),
    ):
        found = uniform_branching(
            lambda b, o=options: pde.residual_bounds(net, b, **o), pde.domain, splits=splits
        )
        out[name] = float((found.box_upper - found.box_lower).median())
    return out


def sampling_ladder(pde: PDE, net: TanhMLP, sizes: Sequence[int], repeats: int, config: Config) -> np.ndarray:
    """Monte Carlo maxima of |residual|, shape (sizes, repeats)."""
    out = np.empty((len(sizes), repeats))
    for i, n in enumerate(sizes):
        for j in range(repeats):
            found = monte_carlo_extrema(
                lambda x: pde.residual(net, x),
                pde.domain,
                n,
                generator=generator(config.seed, "ladder", n, j),
            )
            out[i, j] = max(abs(found[0]), abs(found[1]))
    return out


def released_comparison(net: TanhMLP, released: dict[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """Widths of our bounds over those of the released code, by product and quantity, (24,) each."""
    boxes = torch.from_numpy(released["boxes"])
    out: dict[str, dict[str, np.ndarray]] = {}
    for product in ("neuron", "entry"):
        e = bound_network(net, boxes, product=product)
        residual = Burgers().residual_bounds(net, boxes, product=product)
        ours = {
            **{"u": (e.u.lower, e.u.upper), "ut": (e.du[0].lower, e.du[0].upper)},
            **{"ux": (e.du[1].lower, e.du[1].upper), "uxx": (e.d2u[1].lower, e.d2u[1].upper), "r": residual},
        }
        out[product] = {}
        for name, (low, high) in ours.items():
            theirs = released[f"official_{name}"]
            out[product][name] = (high - low).flatten().numpy() / (theirs[:, 1] - theirs[:, 0])
    return out


def milliseconds_a_box(net: TanhMLP, config: Config, repeats: int = 5, batch: int = 256) -> float:
    """CPU milliseconds a box for the Burgers residual, batches of 256: the median of some repeats."""
    pde = Burgers()
    low, high = pde.domain
    draws = generator(config.seed, "speed")
    centres = low + (high - low) * torch.rand(batch, 2, generator=draws, dtype=torch.float64)
    boxes = torch.stack((centres - 0.01, centres + 0.01), 1)
    spent = []
    for _ in range(repeats):
        start = time.process_time()
        pde.residual_bounds(net, boxes)
        spent.append((time.process_time() - start) / batch * 1e3)
    return float(np.median(spent))


def other_equations(config: Config) -> dict[str, tuple[PDE, TanhMLP, list[Row]]]:
    """Train and certify a small network of each of the three other equations."""
    plans: dict[str, tuple[PDE, tuple[int, ...]]] = {
        "Allen-Cahn": (AllenCahn(), (2, 16, 16, 16, 1)),
        "Schroedinger": (Schrodinger(config.schrodinger_horizon), (2, 20, 20, 20, 2)),
        "Diffusion-sorption": (DiffusionSorption(), (2, 16, 16, 16, 1)),
    }
    out = {}
    for name, (pde, widths) in plans.items():
        net = train_pinn(
            pde,
            PINNConfig(widths=widths, max_iter=config.other_steps),
            generator=generator(config.seed, "partial_crown", name),
        )
        rows = condition_rows(name, pde, net, min(config.other_evaluations, 1500), config)
        rows.append(residual_row(f"{name}, residual", pde, net, config.other_evaluations, config))
        out[name] = (pde, net, rows)
    return out


def sound_networks(config: Config) -> dict[str, TanhMLP]:
    """Random networks of the configured widths in both dtypes, of ordinary and of threefold weights."""
    out = {}
    for k, widths in enumerate(config.sound_networks):
        name = "-".join(map(str, widths))
        for scale in (1.0, 3.0):
            dtype = torch.float32 if (k + int(scale)) % 2 else torch.float64
            out[f"{name} x{scale:g}"] = random_network(widths, config.seed + k, scale=scale, dtype=dtype)
    return out


def sound_equations(config: Config) -> list[tuple[PDE, TanhMLP]]:
    """All four equations, each with random networks of width one (single) and two (double precision)."""
    out: list[tuple[PDE, TanhMLP]] = []
    for pde in (Burgers(), AllenCahn(), Schrodinger(), DiffusionSorption()):
        for hidden, dtype in (((1, 1), torch.float32), ((2, 1), torch.float64)):
            widths = (2, *hidden, pde.outputs)
            out.append((pde, random_network(widths, config.seed, dtype=dtype, domain=pde.domain)))
    return out
