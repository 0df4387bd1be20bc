r"""From a person to a text: six sentences, in an order, each in one of its forms.

The subject of a sentence is the full name in the first sentence *as written* and a pronoun
afterwards; with `fullname` it is the name throughout. Shuffling the order therefore moves the
name to the new first sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from icml24.papers.knowledge_extraction.people import Person
from icml24.papers.knowledge_extraction.sentences import ATTRIBUTES
from icml24.papers.knowledge_extraction.tokens import WordTokenizer

__all__ = ["first_value_positions", "render_biography"]


def render_biography(
    person: Person,
    order: Sequence[str],
    template_ids: Sequence[int],
    table: Mapping[str, Sequence[str]],
    *,
    fullname: bool = False,
) -> str:
    """Write one biography.

    Parameters
    ----------
    person : Person
    order : sequence of str
        The six attributes in the order of their sentences.
    template_ids : sequence of int
        ``template_ids[j]`` chooses among ``table[order[j]]``.
    table : mapping of attribute to forms
        Forms with ``{s}`` (subject) and ``{v}`` (value), such as `sentences.TEMPLATES`.
    fullname : bool, default False
        Name the person in every sentence.

    Returns
    -------
    str
        Sentences joined by one space.

    Raises
    ------
    ValueError
        `order` is not a permutation of the attributes, `template_ids` has another length, or a
        form lacks ``{v}``.
    IndexError
        A template id outside its attribute's forms; the message names the attribute.
    """
    return _render(person, order, template_ids, table, fullname)[0]


def first_value_positions(
    person: Person,
    order: Sequence[str],
    template_ids: Sequence[int],
    table: Mapping[str, Sequence[str]],
    tokenizer: WordTokenizer,
    *,
    fullname: bool = False,
) -> dict[str, int]:
    """Where each value is about to begin.

    Parameters
    ----------
    person, order, template_ids, table, fullname
        As for `render_biography`.
    tokenizer : WordTokenizer
        Knows every word of the text.

    Returns
    -------
    dict of attribute to int
        Index, in the ids ``[EOS] + encode(text) + [EOS]``, of the token just *before* the
        first token of the value; keys in canonical order.

    Raises
    ------
    ValueError, IndexError
        As `render_biography`.
    KeyError
        A word is not in the vocabulary.
    """
    text, starts = _render(person, order, template_ids, table, fullname)
    position, seen = 0, 0  # the EOS in front shifts "tokens before" to "index of the last one of them"
    found = {}
    for attribute, start in sorted(starts.items(), key=lambda item: item[1]):
        position += len(tokenizer.encode(text[seen:start]))
        found[attribute], seen = position, start
    return {attribute: found[attribute] for attribute in ATTRIBUTES}


def _render(
    person: Person,
    order: Sequence[str],
    template_ids: Sequence[int],
    table: Mapping[str, Sequence[str]],
    fullname: bool,
) -> tuple[str, dict[str, int]]:
    """Text, and the offset of every value in it."""
    if len(order) != len(ATTRIBUTES) or set(order) != set(ATTRIBUTES):
        raise ValueError(f"order must be a permutation of {list(ATTRIBUTES)}; got {list(order)}")
    if len(template_ids) != len(order):
        raise ValueError(f"one template id a sentence: expected {len(order)}, got {len(template_ids)}")
    text, starts = "", {}
    for place, (attribute, chosen) in enumerate(zip(order, template_ids, strict=True)):
        forms = table[attribute]
        if not 0 <= chosen < len(forms):
            raise IndexError(f"{attribute} has forms 0 to {len(forms) - 1}; got template id {chosen}")
        subject = person.full_name if fullname or place == 0 else person.pronoun
        before, slot, after = forms[chosen].partition("{v}")
        if not slot:
            raise ValueError(f"form {chosen} of {attribute} has no place {{v}} for the value: {before!r}")
        text += (" " if place else "") + before.replace("{s}", subject)
        starts[attribute] = len(text)
        text += person.value(attribute) + after.replace("{s}", subject)
    return text, starts
