"""The synthesizer beside its JAX original (synthax, jitted) and torchsynth, in CPU seconds.

``python bench/ctag.py`` needs synthax, jax and torchsynth. Times are CPU seconds of the whole
process, not wall seconds, so that a library cannot win by taking more threads. Before anything
is timed, ours and synthax must give the same sounds.
"""

from __future__ import annotations

import sys
import time
import types
import warnings
from collections.abc import Callable

import click
import harness
import jax
import numpy as np
import pytorch_lightning
import torch

from icml24.papers import ctag
from icml24.papers.ctag.parameters import COLUMNS
from icml24.papers.ctag.voice import white_noise

# torchsynth 1.0.2 imports a module that later versions of lightning dropped
_alias = types.ModuleType("pytorch_lightning.core.lightning")
_alias.LightningModule = pytorch_lightning.LightningModule
sys.modules["pytorch_lightning.core.lightning"] = _alias

from synthax.config import SynthConfig as JaxConfig  # noqa: E402
from synthax.synth import Voice as JaxVoice  # noqa: E402
from torchsynth.config import SynthConfig as TorchConfig  # noqa: E402
from torchsynth.synth import Voice as TorchVoice  # noqa: E402

warnings.filterwarnings("ignore", message=".*requires_grad.*|.*lightning.*")

RATE, CONTROL, SECONDS = 48000, 480, 2.0


def cpu_seconds(call: Callable[[], object], number: int = 1) -> float:
    """CPU seconds of one call, all threads together."""
    start = time.process_time()
    for _ in range(number):
        call()
    return (time.process_time() - start) / number


def jax_parameters(units: np.ndarray) -> dict[str, dict[str, dict[str, np.ndarray]]]:
    """Unit vectors [B, 78] as synthax's tree of normalised parameters."""
    tree: dict[str, dict[str, np.ndarray]] = {}
    for name, column in COLUMNS.items():
        module, parameter = name.split(".", 1)
        if "[" not in parameter:
            tree.setdefault(f"modules_{module}", {})[parameter] = units[:, column]
    first = COLUMNS["mixer.level[0]"]
    tree["modules_mixer"] = {"level": units[:, first : first + 3]}
    first = COLUMNS["mod_matrix.mod[0,0]"]
    tree["modules_mod_matrix"] = {"mod": units[:, first : first + 20].reshape(-1, 5, 4)}
    return {"params": tree}


def synthax_call(units: np.ndarray) -> Callable[[], np.ndarray]:
    """The jitted JAX synthesizer on these parameters."""
    voice = JaxVoice(
        JaxConfig(batch_size=len(units), sample_rate=RATE, buffer_size_seconds=SECONDS, control_rate=CONTROL)
    )
    parameters = jax.tree_util.tree_map(jax.numpy.asarray, jax_parameters(units))
    expected = jax.tree_util.tree_structure(voice.init(jax.random.PRNGKey(0)))
    assert jax.tree_util.tree_structure(parameters) == expected
    render = jax.jit(voice.apply)
    return lambda: np.asarray(render(parameters).block_until_ready())


def check_same_sounds(units: np.ndarray) -> None:
    """One sound at a time (the original shares a peak within a batch), noise off."""
    voice, column = ctag.Voice(), COLUMNS["mixer.level[2]"]
    for row in units[:3]:
        quiet = row[None].copy()
        quiet[0, column] = 0.0
        ours = voice(torch.from_numpy(quiet)).numpy()
        gap = np.sqrt(np.mean((ours - synthax_call(quiet)()) ** 2))
        assert gap < 2e-2, gap  # the original sums phases in float32


@click.command()
@click.option("--repeats", default=9, show_default=True, help="Interleaved pairs a row.")
def main(repeats: int) -> None:
    """Time the synthesizer at batch 1, 16 and 50 against synthax, at 50 against torchsynth."""
    torch.set_num_threads(1)
    harness.seconds = cpu_seconds
    units = np.random.default_rng(0).random((50, 78), dtype=np.float32)
    check_same_sounds(units)
    voice = ctag.Voice()
    noise = white_noise(voice.config)
    rows = []
    for batch in (50, 16, 1):
        part = torch.from_numpy(units[:batch])
        rows.append(
            harness.compare(
                f"{batch} sounds of 2 s at 48 kHz, CPU time (synthax, jitted)",
                lambda part=part: voice(part, noise),
                synthax_call(units[:batch]),
                repeats=repeats,
                number=1 if batch > 1 else 5,
                unit="ms",
            )
        )
    peer = TorchVoice(
        TorchConfig(
            batch_size=50,
            reproducible=False,
            sample_rate=RATE,
            control_rate=CONTROL,
            buffer_size_seconds=SECONDS,
        )
    )
    peer.randomize(0)
    with torch.no_grad():
        rows.append(
            harness.compare(
                "50 sounds of 2 s at 48 kHz, CPU time (torchsynth)",
                lambda: voice(torch.from_numpy(units), noise),
                peer.output,
                repeats=repeats,
                unit="ms",
            )
        )
    harness.write(
        "ctag",
        "A synthesizer of 78 knobs",
        "synthax, torchsynth",
        rows,
        ["torch", "jax", "synthax", "torchsynth"],
    )


if __name__ == "__main__":
    main()
