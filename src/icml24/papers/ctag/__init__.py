r"""Text to audio through seventy-eight knobs (Cherep, Singh and Shand, ICML 2024).

A synthesizer of 78 unit parameters (`Voice` and its modules), a score of how well a sound
fits a text (`ContrastiveScorer`, `ClapScorer`), and an evolution strategy that turns the
knobs (`LES`, `CMAES`, `RandomSearch`, `optimise`). Sounds are tensors [batch, samples] in
[-1, 1]; randomness comes from the generator given, never from global state.
"""

from .audio import write_wav
from .clap import ClapScorer
from .cma import CMAES
from .evolution import LES, ESState, RandomSearch
from .les_weights import load_les_weights
from .modules import adsr, lfo, mix_audio, mix_modulation, upsample
from .oscillators import fm_vco, sine_vco, square_saw_vco
from .parameters import PARAMETERS, ParameterRange, SynthConfig, unpack_parameters
from .scorers import ContrastiveScorer, TextAudioScorer
from .search import CtagResult, fitness_from_similarity, interpolate, optimise
from .voice import Voice

__all__ = [
    "CMAES",
    "LES",
    "PARAMETERS",
    "ClapScorer",
    "ContrastiveScorer",
    "CtagResult",
    "ESState",
    "ParameterRange",
    "RandomSearch",
    "SynthConfig",
    "TextAudioScorer",
    "Voice",
    "adsr",
    "fitness_from_similarity",
    "fm_vco",
    "interpolate",
    "lfo",
    "load_les_weights",
    "mix_audio",
    "mix_modulation",
    "optimise",
    "sine_vco",
    "square_saw_vco",
    "unpack_parameters",
    "upsample",
    "write_wav",
]
