r"""Word-level tokens: short sequences are what makes the experiment fit on one CPU core.

The paper uses GPT-2's byte-pair tokens; here a token is a word or a punctuation mark, and
`atomic` glues the parts of a value together so that most values are one token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["WordTokenizer", "atomic", "split_words"]

WORD = re.compile(r"\w+(?:[-'&/]\w+)*|[^\w\s]")
SPECIAL = ("<PAD>", "<EOS>")


def split_words(text: str) -> list[str]:
    """Words and punctuation marks of a text; ``-``, ``'``, ``&`` and ``/`` join inside a word."""
    return WORD.findall(text)


def atomic(value: str) -> str:
    """Value with every run of white space, commas and full stops turned into one underscore."""
    return re.sub(r"[\s,.]+", "_", value)


class WordTokenizer:
    """Fixed vocabulary of words: id 0 pads, id 1 ends a sequence, then the words in sorted order.

    Parameters
    ----------
    words : iterable of str
        Duplicates are dropped.
    """

    pad_id = 0
    eos_id = 1

    def __init__(self, words: Iterable[str]) -> None:
        self.words: tuple[str, ...] = (*SPECIAL, *sorted(set(words)))
        self._ids = {word: index for index, word in enumerate(self.words) if index > 1}

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> WordTokenizer:
        """Vocabulary of all words in `texts` (a list of strings, not one string)."""
        if isinstance(texts, str):
            raise TypeError("from_texts expects an iterable of texts; got one string")
        return cls(word for text in texts for word in split_words(text))

    def __len__(self) -> int:
        """Number of ids, the two special ones included."""
        return len(self.words)

    def encode(self, text: str) -> list[int]:
        """Ids of the words of a text, without an end mark; a word not in the vocabulary is a `KeyError`."""
        try:
            return [self._ids[word] for word in split_words(text)]
        except KeyError as error:
            raise KeyError(
                f"word {error.args[0]!r} is not in the vocabulary of {len(self)}; build it from all texts"
            ) from None

    def decode(self, ids: Sequence[int]) -> str:
        """Words of the ids, joined by spaces; `IndexError` for an id outside the vocabulary."""
        numbers = [int(i) for i in ids]
        outside = [i for i in numbers if not 0 <= i < len(self)]
        if outside:
            raise IndexError(f"ids {outside} lie outside the vocabulary of {len(self)}")
        return " ".join(self.words[i] for i in numbers)
