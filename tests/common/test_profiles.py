from dataclasses import dataclass

import pytest

from icml24.common.profiles import choose


@dataclass(frozen=True)
class Config:
    steps: int = 3
    lr: float = 0.1


PROFILES = {"quick": Config(), "full": Config(steps=300)}


def test_overrides_replace_and_none_keeps():
    assert choose(PROFILES, "full", lr=0.5, steps=None) == Config(steps=300, lr=0.5)
    assert PROFILES["full"] == Config(steps=300)


def test_unknown_names_are_listed():
    with pytest.raises(ValueError, match=r"unknown profile 'ful'.*'full', 'quick'"):
        choose(PROFILES, "ful")
    with pytest.raises(ValueError, match=r"\['step'\].*'lr', 'steps'"):
        choose(PROFILES, "quick", step=1)
