r"""Sizes of the experiments, `QUICK` and `FULL`; functions from a configuration to results belong here."""

from __future__ import annotations

from dataclasses import dataclass

from icml24.common.profiles import choose

__all__ = ["FULL", "QUICK", "Config", "config_of"]


@dataclass(frozen=True)
class Config:
    """Size of a run.

    Attributes
    ----------
    seed : int
        Base seed of every generator.
    """

    seed: int = 0


#: At most a minute on one thread.
QUICK = Config()

#: The size of the recorded results.
FULL = Config()


def config_of(profile: str, **overrides: object) -> Config:
    """Return the configuration of a profile, single fields replaced (see `choose`)."""
    return choose({"quick": QUICK, "full": FULL}, profile, **overrides)
