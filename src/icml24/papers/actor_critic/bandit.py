r"""Tactical optimism and pessimism: a bandit that picks an episode's pessimism.

The update follows the official code of TOP, with its division by :math:`e^{w}` rather than
by the probability; where that code divides by a standard deviation of zero, this one
divides by one.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from icml24.common.checks import number, positive, probability, whole
from icml24.common.random import generator as stream

__all__ = ["OptimismBandit"]


class OptimismBandit:
    r"""Exponential weights with forgetting over a few levels of pessimism.

    Parameters
    ----------
    arms : sequence of float, default (1.0, 0.0)
        Levels of pessimism; not empty. Arm 0 is in force before the first draw.
    lr : float, default 0.1
        Step of the log-weights.
    decay : float, default 0.9
        Factor on the played arm's log-weight at each update, in [0, 1].
    window : int, default 5
        Number of latest feedbacks that standardise the new one.

    Raises
    ------
    ValueError
        No arms, or an option out of range.

    Notes
    -----
    Source: eq-actor_critic-bandit.
    """

    def __init__(
        self, arms: Sequence[float] = (1.0, 0.0), *, lr: float = 0.1, decay: float = 0.9, window: int = 5
    ) -> None:
        self.arms = tuple(number("arms", arm) for arm in arms)
        if not self.arms:
            raise ValueError("arms is empty; expected at least one level of pessimism, as in (1.0, 0.0)")
        self._lr, self._decay = positive("lr", lr), probability("decay", decay, closed=True)
        self._recent: deque[float] = deque(maxlen=whole("window", window, 1))
        self._log_weights = torch.zeros(len(self.arms), dtype=torch.float64)
        self._default = stream(0, "actor_critic", "bandit")
        self._arm = 0

    @property
    def arm(self) -> int:
        """Index of the arm in force; setting it plays that arm (ValueError when there is none such)."""
        return self._arm

    @arm.setter
    def arm(self, index: int) -> None:
        index = operator.index(index)
        if not 0 <= index < len(self.arms):
            raise ValueError(f"arm must be an index below {len(self.arms)}; got {index}")
        self._arm = index

    def probabilities(self) -> Tensor:
        """Probability of each arm at the next draw: float64, shape (arms,)."""
        return torch.softmax(self._log_weights, 0)

    def select(self, *, generator: torch.Generator | None = None) -> float:
        """Draw the arm of the coming episode and return its pessimism.

        Parameters
        ----------
        generator : torch.Generator, optional
            None continues a stream of the bandit's own, the same for every new bandit.
        """
        g = self._default if generator is None else generator
        self.arm = int(torch.multinomial(self.probabilities(), 1, generator=g))
        return self.arms[self.arm]

    def update(self, feedback: float) -> None:
        """Credit the arm in force with the gain in return over the episode before.

        Parameters
        ----------
        feedback : float
            Difference of two successive episodes' returns; finite (ValueError otherwise).
        """
        self._recent.append(number("feedback", feedback))
        recent = torch.tensor(list(self._recent), dtype=torch.float64)
        if recent.max() == recent.min():  # no news; the rounded spread of equal values need not be zero
            gain = 0.0
        else:
            gain = float((recent[-1] - recent.mean()) / recent.std(correction=0))
        weight = self._decay * self._log_weights[self.arm]
        self._log_weights[self.arm] = weight + self._lr * gain / weight.exp().clamp(min=1e-4)
