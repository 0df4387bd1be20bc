r"""The agents: one technique from each of three families on top of plain SAC, 64 in all.

`CRITIC` holds remedies made for reinforcement learning (what the target does with two
critics), `NETWORK` general regularisers of a network, `PLASTICITY` ways to keep it able to
learn. The abstract speaks of over 60 agents, each with one technique of every family; four
choices a family give 64. The fourth member of each tuple is our reconstruction.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

__all__ = ["CRITIC", "FAMILIES", "NETWORK", "PLASTICITY", "AgentSpec", "full_grid", "techniques"]

#: Remedies made for critics.
CRITIC = ("none", "cdq", "gpl", "top")
#: General regularisers of a network.
NETWORK = ("none", "layer_norm", "spectral_norm", "weight_decay")
#: Ways to keep a network able to learn.
PLASTICITY = ("none", "redo", "crelu", "reset")
#: The families by the name of the field of `AgentSpec` that chooses from them.
FAMILIES: dict[str, tuple[str, ...]] = {"critic": CRITIC, "network": NETWORK, "plasticity": PLASTICITY}
#: Accepted besides the 64: layer norm with a little dropout, as in DroQ.
EXTENSIONS = {"critic": (), "network": ("dropout",), "plasticity": ()}


@dataclass(frozen=True)
class AgentSpec:
    """One agent, named by its three techniques.

    Parameters
    ----------
    critic : {"none", "cdq", "gpl", "top"}
        Mean of two critics; their minimum; a learned pessimism; one chosen by a bandit.
    network : {"none", "layer_norm", "spectral_norm", "weight_decay", "dropout"}
        Regulariser of the critic's network. ``"dropout"`` is an extension outside the grid.
    plasticity : {"none", "redo", "crelu", "reset"}
        Recycled units, concatenated ReLU, or full resets.

    Raises
    ------
    ValueError
        A technique that its family does not have.
    """

    critic: str = "none"
    network: str = "none"
    plasticity: str = "none"

    def __post_init__(self) -> None:
        for family, choices in FAMILIES.items():
            chosen, allowed = getattr(self, family), choices + EXTENSIONS[family]
            if not isinstance(chosen, str) or chosen not in allowed:
                raise ValueError(f"unknown {family} technique {chosen!r}; expected one of {allowed}")

    @property
    def name(self) -> str:
        """Techniques other than ``"none"``, joined by ``"+"``; ``"sac"`` when there is none."""
        return "+".join(v for v in (self.critic, self.network, self.plasticity) if v != "none") or "sac"


def full_grid() -> tuple[AgentSpec, ...]:
    """All 64 agents; the last family varies fastest.

    Returns
    -------
    tuple of AgentSpec, length 64
        In the order of ``itertools.product(CRITIC, NETWORK, PLASTICITY)``.
    """
    return tuple(AgentSpec(*choice) for choice in itertools.product(CRITIC, NETWORK, PLASTICITY))


def techniques(family: str) -> tuple[str, ...]:
    """Techniques of a family.

    Raises
    ------
    ValueError
        Unknown family; the message lists the three.
    """
    if family not in FAMILIES:
        raise ValueError(f"unknown family {family!r}; expected one of {tuple(FAMILIES)}")
    return FAMILIES[family]
