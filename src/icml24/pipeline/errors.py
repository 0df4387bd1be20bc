"""Errors a reader of the command line can act on.

Each message says what was wrong, what was expected, and what to do about it. The
command line prints the message alone, without a traceback, and exits with `status`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "BadParameter",
    "BookError",
    "ChapterFailed",
    "ClusterError",
    "Interrupted",
    "StaleBook",
    "UnknownChapter",
    "UnknownParameter",
    "UnknownProfile",
    "WriteFailed",
    "nearest",
]


class BookError(Exception):
    """Something about the book, its parameters or its machine that the user can put right."""

    status = 1


class UnknownChapter(BookError):
    """No chapter of `_toc.yml` has this slug."""


class UnknownProfile(BookError):
    """The profile is neither ``quick`` nor ``full``."""


class UnknownParameter(BookError):
    """The chapter's parameter cell declares no such name."""


class BadParameter(BookError):
    """A value does not have the type that the parameter cell declares."""


class ChapterFailed(BookError):
    """A cell of a chapter raised, or its kernel died."""


class StaleBook(BookError):
    """A chapter's executed notebook is missing, failed, or older than its sources."""


class WriteFailed(BookError):
    """A file could not be written; nothing of it was left behind."""


class ClusterError(BookError):
    """The scheduler could not be reached, or it gave a chapter up."""


class Interrupted(BaseException):
    """The run was ended by a signal; kernels are gone and nothing is half-written.

    Parameters
    ----------
    signum : int
        The signal's number; the process exits with ``128 + signum``, as a shell reports it.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(f"ended by signal {signum}")
        self.signum = signum
        self.status = 128 + signum


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which of `known` the user may have meant: the closest ones, or all of them.

    Examples
    --------
    >>> nearest("alpah", ["alpha", "beta"])
    'did you mean alpha?'
    >>> nearest("zzz", ["alpha", "beta"])
    'known are: alpha, beta'
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known are: {', '.join(names)}" if names else "there are none"
