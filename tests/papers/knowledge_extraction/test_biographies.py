import json
import re
from pathlib import Path

import pytest
import torch

from icml24.papers.knowledge_extraction import (
    ATTRIBUTES,
    Person,
    WordTokenizer,
    first_value_positions,
    render_biography,
    split_words,
)
from icml24.papers.knowledge_extraction.sentences import QUESTIONS, TEMPLATES
from icml24.papers.knowledge_extraction.tokens import atomic

BIO = json.loads((Path(__file__).parent / "data" / "bio.json").read_text(encoding="utf8"))
ANN = Person(3, "Ann", "Bea", "Coy", "May", 7, 2001, "Ur", "MIT", "Art", "Acme", "Bern")


@pytest.mark.parametrize("case", BIO["cases"], ids=lambda case: case["person"]["last"])
def test_hand_written_texts_and_positions(case):
    person = Person(**case["person"])
    args = person, case["order"], case["template_ids"], BIO["table"]
    assert render_biography(*args, fullname=case["fullname"]) == case["text"]
    tokenizer = WordTokenizer.from_texts([case["text"]])
    assert first_value_positions(*args, tokenizer, fullname=case["fullname"]) == case["positions"]


@pytest.mark.parametrize(("text", "words"), BIO["words"])
def test_words(text, words):
    assert split_words(text) == words


def test_words_of_nothing():
    assert split_words("") == []
    assert split_words(" \n\t") == []


@pytest.mark.parametrize(
    ("value", "joined"),
    [
        ("Princeton, NJ", "Princeton_NJ"),
        ("Washington, D.C.", "Washington_D_C_"),
        ("Meta", "Meta"),
        ("a . b", "a_b"),
    ],
)
def test_atomic_values(value, joined):
    assert atomic(value) == joined
    assert split_words(joined) == [joined]


def test_person():
    assert ANN.full_name == "Ann Bea Coy"
    assert ANN.pronoun == "She"
    assert [ANN.value(a) for a in ATTRIBUTES] == ["May 7, 2001", "Ur", "MIT", "Art", "Acme", "Bern"]
    with pytest.raises(ValueError, match="unknown attribute 'age'"):
        ANN.value("age")


def random_plan(seed):
    g = torch.Generator().manual_seed(seed)
    order = [ATTRIBUTES[i] for i in torch.randperm(6, generator=g).tolist()]
    return order, [int(torch.randint(len(TEMPLATES[a]), (), generator=g)) for a in order]


@pytest.mark.parametrize("fullname", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_a_biography_says_everything_once_and_names_the_person(seed, fullname):
    order, chosen = random_plan(seed)
    text = render_biography(ANN, order, chosen, TEMPLATES, fullname=fullname)
    starts = [text.index(ANN.value(a)) for a in order]
    assert starts == sorted(starts)
    assert all(text.count(ANN.value(a)) == 1 for a in ATTRIBUTES)
    assert text.count("Ann Bea Coy") == (6 if fullname else 1)
    assert text.startswith("Ann Bea Coy")
    assert text.count("She ") == (0 if fullname else 5)
    tokenizer = WordTokenizer.from_texts([text])
    ids = [1, *tokenizer.encode(text), 1]
    where = first_value_positions(ANN, order, chosen, TEMPLATES, tokenizer, fullname=fullname)
    assert list(where) == list(ATTRIBUTES)
    for attribute, place in where.items():
        value = tokenizer.encode(ANN.value(attribute))
        assert ids[place + 1 : place + 1 + len(value)] == value
        assert ids[place : place + len(value)] != value


def test_forms_are_well_formed():
    assert tuple(TEMPLATES) == ATTRIBUTES == tuple(QUESTIONS)
    for attribute, forms in TEMPLATES.items():
        assert len(forms) == len(set(forms)) == 10
        assert all(re.fullmatch(r"\{s\} [^{}]+\{v\}[^{}]*\.", form) for form in forms), attribute
    every = [form for forms in TEMPLATES.values() for form in forms]
    assert len(set(every)) == 60
    assert all(question.count("{s}") == 1 and question.endswith("?") for question in QUESTIONS.values())


def test_rejects():
    good = list(ATTRIBUTES), [0] * 6, TEMPLATES
    for order in (
        ATTRIBUTES[:5],
        [*ATTRIBUTES[:5], "major"],
        [*ATTRIBUTES, "major"],
        [*ATTRIBUTES[:5], 3],
        [],
    ):
        with pytest.raises(ValueError, match="permutation"):
            render_biography(ANN, order, [0] * len(order), TEMPLATES)
    with pytest.raises(ValueError, match="template id"):
        render_biography(ANN, ATTRIBUTES, [0] * 5, TEMPLATES)
    for bad in (10, -1):
        with pytest.raises(IndexError, match="university"):
            render_biography(ANN, ATTRIBUTES, [0, 0, bad, 0, 0, 0], TEMPLATES)
    with pytest.raises(ValueError, match="place"):
        render_biography(ANN, *good[:2], {**TEMPLATES, "major": ("{s} studies.",)})
    with pytest.raises(KeyError, match="Coy"):
        first_value_positions(ANN, *good, WordTokenizer(["Ann", "Bea"]))


def test_tokenizer():
    tokenizer = WordTokenizer.from_texts(["b a, a", "C's d-e."])
    assert (tokenizer.pad_id, tokenizer.eos_id) == (0, 1)
    assert tokenizer.words[2:] == (",", ".", "C's", "a", "b", "d-e")
    assert len(tokenizer) == 8
    assert tokenizer.encode("a , b") == [5, 2, 6]
    assert tokenizer.decode([1, *tokenizer.encode("b a, d-e."), 0]) == "<EOS> b a , d-e . <PAD>"
    assert tokenizer.decode(torch.tensor([5, 6])) == "a b"
    assert tokenizer.encode("") == []
    with pytest.raises(KeyError, match="'zebra'"):
        tokenizer.encode("a zebra")
    with pytest.raises(IndexError, match="8"):
        tokenizer.decode([8])
    with pytest.raises(TypeError, match="iterable of texts"):
        WordTokenizer.from_texts("abc")
