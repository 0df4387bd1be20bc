import itertools
import math
from collections import Counter

import pytest
import torch

from icml24.papers.knowledge_extraction import ATTRIBUTES, BioConfig, build_corpus
from icml24.papers.knowledge_extraction.counting import (
    NAME,
    bits_per_person,
    chance_accuracy,
    determines,
    expected_top_share,
    fresh_text_entropy,
    prefix_entropy,
    usable_contexts,
    visible_probability,
    wilson_interval,
)
from icml24.papers.knowledge_extraction.sentences import TEMPLATES


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.equation("eq-knowledge_extraction-floor")
def test_prefix_tree_obeys_the_chain_rule():
    """E1: the branchings of the prefix tree add up to the entropy of the whole sequence."""
    texts = [(1, a, 9, b, c, 2) for a in (3, 4) for b in (5, 6, 7) for c in ((8,) if a == 3 else (8, 5))]
    texts += [texts[0]] * 3  # not uniform
    counts = Counter(texts)
    entropy = -sum(n / len(texts) * math.log(n / len(texts)) for n in counts.values())
    assert prefix_entropy(texts) == pytest.approx(entropy, abs=1e-12)
    # the same by conditional entropies, position by position
    by_position = 0.0
    for t in range(6):
        heads = Counter(text[:t] for text in texts)
        for (head, _), n in Counter((text[:t], text[t]) for text in texts).items():
            by_position -= n / len(texts) * math.log(n / heads[head])
    assert by_position == pytest.approx(entropy, abs=1e-12)
    assert prefix_entropy([(1, 2)] * 4) == 0.0
    with pytest.raises(ValueError, match="no sequences"):
        prefix_entropy([])


@pytest.mark.equation("eq-knowledge_extraction-floor")
def test_fresh_texts_of_a_toy_corpus():
    """E1: with every order and form equally likely, the floor is log orders + sum of log forms."""
    forms = {"a": ("w {v}", "x {v}"), "b": ("y {v}",), "c": ("p {v}", "q {v}", "r {v}")}
    texts = [
        tuple(itertools.chain.from_iterable((attribute, pick[attribute]) for attribute in order))
        for order in itertools.permutations(forms)
        for pick in (dict(zip(forms, choice, strict=True)) for choice in itertools.product(*forms.values()))
    ]
    assert prefix_entropy(texts) == pytest.approx(fresh_text_entropy(forms, permute=True), abs=1e-12)
    plain = [text for text in texts if text[::2] == ("a", "b", "c")]
    assert prefix_entropy(plain) == pytest.approx(fresh_text_entropy(forms, permute=False), abs=1e-12)
    assert fresh_text_entropy(TEMPLATES, permute=True) == pytest.approx(math.log(720) + 6 * math.log(10))


@pytest.mark.equation("eq-knowledge_extraction-floor")
def test_floor_of_stored_texts_is_at_most_people_times_texts(corpus):
    ids = [row for rows in corpus.bio_ids for row in rows]
    assert prefix_entropy(ids) <= math.log(24 * 3) + 1e-12
    assert prefix_entropy(ids) == pytest.approx(math.log(24 * 3), abs=1e-12)  # no two texts are equal here


@pytest.mark.equation("eq-knowledge_extraction-usable")
def test_what_stands_before_the_last_attribute():
    """E6: 64 contexts in canonical order, two under all orders."""
    fixed = usable_contexts([ATTRIBUTES], "company_city")
    pool = [NAME, *ATTRIBUTES[:5]]
    assert fixed == {frozenset(s) for k in range(7) for s in itertools.combinations(pool, k)}
    assert len(fixed) == 64
    for target in ATTRIBUTES:
        assert usable_contexts(itertools.permutations(ATTRIBUTES), target) == {frozenset(), frozenset({NAME})}


@pytest.mark.equation("eq-knowledge_extraction-usable")
def test_usable_contexts_by_brute_force():
    g = gen(4)
    orders = [[ATTRIBUTES[i] for i in torch.randperm(6, generator=g).tolist()] for _ in range(3)]
    for target in ATTRIBUTES:
        others = [NAME, *(a for a in ATTRIBUTES if a != target)]
        expected = set()
        for keep in itertools.product((False, True), repeat=6):
            context = {name for name, kept in zip(others, keep, strict=True) if kept}
            if all(c == NAME or order.index(c) < order.index(target) for order in orders for c in context):
                expected.add(frozenset(context))
        assert usable_contexts(orders, target) == expected
    with pytest.raises(ValueError, match="no orders"):
        usable_contexts([], "major")
    with pytest.raises(ValueError, match="does not occur"):
        usable_contexts([["major"]], "company")


def test_only_the_name_determines_after_shuffling():
    people = build_corpus(BioConfig(n_people=200, n_values=40, n_names=1000)).people
    for target in ATTRIBUTES:
        assert determines(people, {NAME}, target)
        assert not determines(people, set(), target)
    assert determines(people, {"company"}, "company_city")
    assert determines(
        people, {"birth_date", "birth_city"}, "university"
    )  # 67,200 x 40 keys: a stand-in for the name
    assert not determines(people, {"major"}, "university")


@pytest.mark.equation("eq-knowledge_extraction-visible")
def test_share_already_visible_under_shuffling():
    """E9: Monte Carlo over 10,000 orders within 0.02."""
    g = gen(1)
    places = torch.stack([torch.randperm(6, generator=g) for _ in range(10_000)])
    for slot in range(1, 7):
        assert (places[:, 2] < slot - 1).double().mean().item() == pytest.approx(
            visible_probability(slot), abs=0.02
        )
    for bad in (0, 7):
        with pytest.raises(ValueError, match=r"1\.\.6"):
            visible_probability(bad)


@pytest.mark.equation("eq-knowledge_extraction-chance")
@pytest.mark.parametrize(("n", "k"), [(1, 7), (5, 3), (7, 2)])
def test_top_share_by_enumeration(n, k):
    """E7: exact over all k**n outcomes."""
    shares = [max(Counter(draw).values()) / n for draw in itertools.product(range(k), repeat=n)]
    assert expected_top_share(n, k) == pytest.approx(sum(shares) / len(shares), abs=1e-12)


@pytest.mark.equation("eq-knowledge_extraction-chance")
def test_top_share_by_simulation():
    """E7: 100 people and 40 classes, within four standard errors."""
    counts = torch.nn.functional.one_hot(torch.randint(40, (20_000, 100), generator=gen(2)), 40).sum(1)
    top = counts.amax(1).double() / 100
    gap = abs(top.mean().item() - expected_top_share(100, 40))
    assert gap < 4 * top.std().item() / 20_000**0.5
    assert expected_top_share(100, 40) > 1 / 40
    assert expected_top_share(400, 2) == pytest.approx(0.5 + (1 / (2 * math.pi * 400)) ** 0.5, abs=1e-3)
    for bad in ((0, 3), (3, 0)):
        with pytest.raises(ValueError, match="at least one"):
            expected_top_share(*bad)


@pytest.mark.equation("eq-knowledge_extraction-wilson")
@pytest.mark.parametrize(("p", "n"), [(0.06, 100), (0.5, 7), (0.0, 20), (1.0, 3)])
def test_wilson_interval(p, n):
    """E7: scipy's interval; and its ends are where the score test just accepts."""
    from scipy.stats import binomtest

    low, high = wilson_interval(p, n)
    if (p * n).is_integer():
        ref = binomtest(round(p * n), n).proportion_ci(method="wilson")
        assert (low, high) == pytest.approx((ref.low, ref.high), abs=1e-12)
    for end in (low, high):
        if 1e-9 < end < 1 - 1e-9:
            assert abs(p - end) / math.sqrt(end * (1 - end) / n) == pytest.approx(1.959963985, abs=1e-6)
    assert wilson_interval(0.06, 100) == pytest.approx((0.028, 0.125), abs=1e-3)


def test_wilson_rejects():
    for bad in ((1.1, 5), (-0.1, 5), (0.5, 0)):
        with pytest.raises(ValueError, match="share"):
            wilson_interval(*bad)
    with pytest.raises(ValueError, match="level"):
        wilson_interval(0.5, 5, level=1.0)


@pytest.mark.equation("eq-knowledge_extraction-bits")
def test_bits_of_a_person():
    """E8: 16.04 + 7.64 + 8.23 + 6.64 + 8.04 = 46.59 with the full pools."""
    assert bits_per_person(city=200, university=300, major=100, company=263) == pytest.approx(46.59, abs=1e-2)
    # independence: the entropies of the single draws add up; two equal halves of a pool cost one bit more
    more = bits_per_person(city=400, university=300, major=100, company=263)
    assert more - bits_per_person(city=200, university=300, major=100, company=263) == pytest.approx(1.0)
    assert bits_per_person(city=1, university=1, major=1, company=1) == pytest.approx(math.log2(67_200))
    with pytest.raises(ValueError, match="at least one"):
        bits_per_person(city=0, university=1, major=1, company=1)


def test_chance_is_the_commonest_value(corpus):
    chance = chance_accuracy(corpus, "test")
    people = [corpus.people[i] for i in corpus.split("test")]
    for attribute in ATTRIBUTES:
        values = [p.value(attribute) for p in people]
        assert chance[attribute] == max(map(values.count, values)) / len(people)
    assert chance["birth_date"] < chance["company_city"]
