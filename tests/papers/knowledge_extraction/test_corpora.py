import pytest
import torch

from icml24 import datasets
from icml24.papers.knowledge_extraction import (
    ATTRIBUTES,
    BioConfig,
    build_corpus,
    load_pools,
    sample_people,
    split_words,
)
from icml24.papers.knowledge_extraction.data import SIZES, pools_source


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def test_offline_pools_have_the_sizes_of_the_original():
    assert pools_source() == "Faker"
    pools = load_pools()
    assert {name: len(pool) for name, pool in pools.items()} == SIZES
    assert all(len(set(pool)) == len(pool) for pool in pools.values())
    for name in ("first", "middle", "last"):
        assert all(len(split_words(entry)) == 1 for entry in pools[name])
    seats = {city for _, city in pools["company"]}
    assert seats <= set(pools["city"])
    assert len(seats) < 200  # headquarters share cities
    assert load_pools() == pools


def test_pools_keep_their_first_entries():
    pools = load_pools()
    few = load_pools(n_values=7, n_names=500)
    assert [len(few[k]) for k in few] == [400, 400, 500, 7, 7, 7, 7]
    assert all(few[k] == pools[k][: len(few[k])] for k in few)
    glued = load_pools(n_values=40, atomic_values=True)
    for name in ("city", "university", "major"):
        assert all(len(split_words(value)) == 1 for value in glued[name])
    assert glued["first"] == pools["first"]
    for bad in ({"n_values": 0}, {"n_names": -1}):
        with pytest.raises(ValueError, match="at least 1"):
            load_pools(**bad)


def test_original_pools_where_they_are(monkeypatch, tmp_path):
    root = tmp_path / "knowledge_extraction"
    root.mkdir()
    import hashlib

    from icml24.papers.knowledge_extraction import data

    entries, contents = [], {}
    for name, file in data.FILES.items():
        text = "Acme Inc.; Bern, CH\nBolt; Ur\n" if name == "company" else f"{name} one\n\n{name}2, X\n"
        (root / file).write_text(text)
        contents[file] = text
        entries.append(datasets.DataFile(file, hashlib.sha256(text.encode()).hexdigest(), len(text), "x"))
    known = datasets.REGISTRY["knowledge_extraction"]
    monkeypatch.setattr(
        datasets,
        "REGISTRY",
        {
            "knowledge_extraction": datasets.DataSet(
                known.name, "t", known.slug, tuple(entries), "l", "s", "n"
            )
        },
    )
    monkeypatch.setenv("ICML24_DATA", str(tmp_path))
    assert pools_source() == "original"
    pools = load_pools(atomic_values=True)
    assert pools["major"] == ["major_one", "major2_X"]
    assert pools["first"] == ["first one", "first2, X"]
    assert pools["company"] == [("Acme_Inc_", "Bern_CH"), ("Bolt", "Ur")]
    assert load_pools()["company"] == [("Acme Inc.", "Bern, CH"), ("Bolt", "Ur")]


def test_people_are_distinct_and_follow_the_pools(global_random_state):
    pools = load_pools(n_values=5, n_names=3)
    before = global_random_state()
    people = sample_people(27, pools, generator=gen())  # all 27 names there are
    assert global_random_state() == before
    assert len({p.full_name for p in people}) == 27
    assert [p.index for p in people] == list(range(27))
    seat = dict(pools["company"])
    for p in people:
        assert p.company_city == seat[p.company]
        assert 1 <= p.birth_day <= 28
        assert 1900 <= p.birth_year < 2100
        assert p.birth_city in pools["city"]
        assert p.university in pools["university"]
        assert p.major in pools["major"]
    assert people == sample_people(27, pools, generator=gen())
    assert people != sample_people(27, pools, generator=gen(1))
    with pytest.raises(ValueError, match="28 people need 28 full names; the pools hold 27"):
        sample_people(28, pools)
    with pytest.raises(ValueError, match="at least one"):
        sample_people(0, pools)
    with pytest.raises(ValueError, match="major"):
        sample_people(1, {**pools, "major": []})


def test_values_are_uniform():
    people = sample_people(4000, load_pools(n_values=8), generator=gen(3))
    for pick in (lambda p: p.birth_city, lambda p: p.university, lambda p: p.major, lambda p: p.company):
        counts = torch.tensor([sum(pick(p) == v for p in people) for v in {pick(p) for p in people}])
        assert len(counts) == 8
        chi2 = ((counts - 500.0) ** 2 / 500).sum()
        assert chi2 < 7 + 4 * 14**0.5  # mean and four standard deviations at seven degrees of freedom


def test_corpus_is_consistent(corpus):
    assert len(corpus.people) == 24
    tokenizer = corpus.tokenizer
    for person, texts, orders, ids, where, questions in zip(
        corpus.people,
        corpus.texts,
        corpus.orders,
        corpus.bio_ids,
        corpus.positions,
        corpus.questions,
        strict=True,
    ):
        assert len(texts) == len(orders) == len(ids) == len(where) == 3
        for text, order, row, places in zip(texts, orders, ids, where, strict=True):
            assert row == [1, *tokenizer.encode(text), 1]
            assert sorted(order, key=places.get) == list(order)
            for attribute, place in places.items():
                value = tokenizer.encode(person.value(attribute))
                assert row[place + 1 : place + 1 + len(value)] == value
        for attribute, question in questions.items():
            assert list(question.ids) == [1, *tokenizer.encode(question.text), 1]
            assert list(question.ids[question.answer :]) == [*tokenizer.encode(person.value(attribute)), 1]
            assert person.full_name in question.text
            assert tokenizer.decode(question.ids[: question.answer]).endswith("Answer :")
    rows, first, counts = corpus.bios
    assert counts.tolist() == [3] * 24
    for i in range(24):
        for m in range(3):
            row = rows[first[i] + m].tolist()
            kept = corpus.bio_ids[i][m]
            assert row == kept + [0] * (len(row) - len(kept))


def test_variants_share_people_and_vocabulary():
    common = {"n_people": 10, "n_values": 4, "n_names": 1000, "seed": 9}
    plain = build_corpus(BioConfig(**common))
    for changes in ({"multiplicity": 4}, {"permute": True}, {"fullname": True}, {"celebrity_fraction": 0.5}):
        other = build_corpus(BioConfig(**common, **changes))
        assert other.people == plain.people
        assert other.tokenizer.words == plain.tokenizer.words
        assert build_corpus(other.config).texts == other.texts
    assert build_corpus(BioConfig(**{**common, "seed": 10})).people != plain.people


def test_augmentations_do_what_they_say():
    common = {"n_people": 12, "n_values": 4, "n_names": 1000}
    plain = build_corpus(BioConfig(**common))
    assert all(len(t) == 1 for t in plain.texts)
    assert all(order == ATTRIBUTES for orders in plain.orders for order in orders)
    many = build_corpus(BioConfig(**common, multiplicity=5))
    assert all(len(t) == 5 and len(set(t)) > 1 for t in many.texts)
    assert all(order == ATTRIBUTES for orders in many.orders for order in orders)
    shuffled = build_corpus(BioConfig(**common, multiplicity=5, permute=True))
    assert len({order for orders in shuffled.orders for order in orders}) > 30
    named = build_corpus(BioConfig(**common, fullname=True))
    for person, texts in zip(named.people, named.texts, strict=True):
        assert texts[0].count(person.full_name) == 6


def test_celebrities_are_augmented_and_minorities_are_tested():
    config = BioConfig(
        n_people=10, n_values=4, n_names=1000, multiplicity=5, permute=True, celebrity_fraction=0.3
    )
    corpus = build_corpus(config)
    assert [len(t) for t in corpus.texts] == [5] * 3 + [1] * 7
    assert all(orders == [ATTRIBUTES] for orders in corpus.orders[3:])
    assert corpus.split("train") == [0, 1, 2]
    assert corpus.split("test") == list(range(3, 10))
    rows, first, counts = corpus.bios
    assert len(rows) == int(counts.sum()) == 22
    assert first.tolist() == [0, 5, 10, *range(15, 22)]


def test_given_people_are_used():
    people = sample_people(5, load_pools(n_values=3), generator=gen(1))
    corpus = build_corpus(BioConfig(multiplicity=2), people=people)
    assert corpus.people == people
    assert corpus.split("train") == [0, 1]
    with pytest.raises(ValueError, match="empty list"):
        build_corpus(BioConfig(), people=[])


@pytest.mark.parametrize(
    "bad",
    [{"multiplicity": 0}, {"celebrity_fraction": 1.2}, {"celebrity_fraction": -0.1}, {"n_people": 0},
     {"celebrity_fraction": float("nan")}],
)  # fmt: skip
def test_config_rejects(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        BioConfig(**bad)


def test_splits_reject():
    lonely = build_corpus(BioConfig(n_people=1, n_values=2))
    with pytest.raises(ValueError, match="'train' is empty"):
        lonely.split("train")
    assert lonely.split("test") == [0]
    famous = build_corpus(BioConfig(n_people=4, n_values=2, celebrity_fraction=1.0))
    with pytest.raises(ValueError, match="'test' is empty"):
        famous.split("test")
    with pytest.raises(ValueError, match="unknown split"):
        lonely.split("validation")
