"""Profiles: named instances of a chapter's frozen configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

__all__ = ["choose"]

Config = TypeVar("Config")


def choose(profiles: Mapping[str, Config], name: str, **overrides: Any) -> Config:
    """Configuration of a profile, with single fields replaced.

    Parameters
    ----------
    profiles : mapping of str to a frozen dataclass
        Usually ``{"quick": QUICK, "full": FULL}``.
    name : str
        Key into `profiles`.
    **overrides
        Fields to replace. ``None`` leaves a field as the profile has it, so that a
        parameter cell can offer "as in the profile" as its default.

    Returns
    -------
    The dataclass instance.

    Raises
    ------
    ValueError
        Unknown profile or field; the message lists those there are.
    """
    if name not in profiles:
        raise ValueError(f"unknown profile {name!r}; expected one of {sorted(profiles)}")
    config = profiles[name]
    known = {field.name for field in dataclasses.fields(config)}  # type: ignore[arg-type]
    unknown = sorted(set(overrides) - known)
    if unknown:
        raise ValueError(f"unknown fields {unknown} for profile {name!r}; expected some of {sorted(known)}")
    given = {key: value for key, value in overrides.items() if value is not None}
    return dataclasses.replace(config, **given)  # type: ignore[type-var]
