from pathlib import Path

import numpy as np
import pytest
import torch

from icml24.papers.knowledge_extraction import (
    ATTRIBUTES,
    BioConfig,
    TrainConfig,
    build_corpus,
    evaluate_bio,
    evaluate_qa,
    exact_match,
    finetune_qa,
    first_token_accuracy,
)

F64 = torch.float64


@pytest.fixture(scope="module")
def parity():
    with np.load(Path(__file__).parent / "data" / "metrics.npz") as file:
        return {key: torch.from_numpy(np.asarray(file[key])) for key in file.files}


def test_parity_of_the_metrics(parity):
    first = first_token_accuracy(parity["logits"], parity["targets"], parity["positions"])
    assert first == pytest.approx(float(parity["first"]), abs=1e-9)
    exact = exact_match(parity["pred"], parity["target"], parity["lengths"])
    assert exact == pytest.approx(float(parity["exact"]), abs=1e-9)


def test_metrics_by_hand():
    logits = torch.zeros(3, 2, 4)
    logits[0, 1, 2] = logits[1, 0, 3] = logits[2, 1, 1] = 1.0
    assert first_token_accuracy(logits, torch.tensor([2, 3, 0]), torch.tensor([1, 0, 1])) == pytest.approx(
        2 / 3
    )
    predicted = torch.tensor([[1, 2, 9], [1, 2, 3]])
    target = torch.tensor([[1, 2, 3], [1, 0, 3]])
    assert exact_match(predicted, target, torch.tensor([2, 3])) == 0.5
    assert exact_match(predicted, target, torch.tensor([3, 1])) == 0.5


def test_metrics_reject():
    logits, targets, places = torch.zeros(3, 2, 4), torch.zeros(3).long(), torch.zeros(3).long()
    with pytest.raises(ValueError, match="expected logits"):
        first_token_accuracy(logits[0], targets, places)
    with pytest.raises(ValueError, match="expected logits"):
        first_token_accuracy(logits, targets[:2], places)
    with pytest.raises(ValueError, match="no rows"):
        first_token_accuracy(logits[:0], targets[:0], places[:0])
    for bad in (2, -1):
        with pytest.raises(IndexError, match=r"0\.\.1"):
            first_token_accuracy(logits, targets, places + bad)
    with pytest.raises(ValueError, match="NaN"):
        first_token_accuracy(logits * torch.nan, targets, places)
    ids = torch.zeros(2, 3).long()
    with pytest.raises(ValueError, match="expected predicted"):
        exact_match(ids, ids[:, :2], torch.ones(2).long())
    with pytest.raises(ValueError, match="no rows"):
        exact_match(ids[:0], ids[:0], torch.ones(0).long())
    for bad in (0, 4):
        with pytest.raises(ValueError, match=r"1\.\.3"):
            exact_match(ids, ids, torch.full((2,), bad))


def decode_one_by_one(model, prompt, length):
    ids = list(prompt)
    for _ in range(length):
        ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    return ids[len(prompt) :]


@pytest.mark.equation("eq-knowledge_extraction-greedy")
def test_greedy_decoding_equals_one_teacher_forced_pass(make_model, corpus):
    """E10: on random models, some of whose answers are made right by construction, 200 prompts and more."""
    asked = right = 0
    for seed in range(3):
        model = make_model(seed)
        for person in corpus.questions[:4]:
            for question in person.values():
                prompt = question.ids[: question.answer]
                greedy = decode_one_by_one(model, prompt, 3)
                for answer in (greedy, [greedy[0], 2, 3], list(question.ids[question.answer :])[:3]):
                    ids = torch.tensor([[*prompt, *answer]])
                    likeliest = model(ids)[:, len(prompt) - 1 : -1].argmax(-1)
                    length = torch.tensor([len(answer)])
                    one_pass = exact_match(likeliest, torch.tensor([answer]), length)
                    decoded = exact_match(
                        torch.tensor([greedy[: len(answer)]]), torch.tensor([answer]), length
                    )
                    assert one_pass == decoded
                    right += int(one_pass)
                    asked += 1
    assert asked >= 200
    assert 0 < right < asked


@pytest.mark.equation("eq-knowledge_extraction-greedy")
def test_evaluation_equals_decoding(make_model, corpus):
    """`evaluate_qa` against generation with the cache, attribute by attribute."""
    model = make_model(scale=1.0)
    finetune_qa(model, corpus, TrainConfig(steps=90, batch_size=48, lr=1e-2, warmup=5))  # some answers right
    for split in ("train", "test"):
        result = evaluate_qa(model, corpus, split)
        for attribute in ATTRIBUTES:
            first = exact = 0
            for i in corpus.split(split):
                question = corpus.questions[i][attribute]
                answer = list(question.ids[question.answer :])
                new = model.generate(torch.tensor([question.ids[: question.answer]]), len(answer))[0].tolist()
                first += new[0] == answer[0]
                exact += new == answer
            n = len(corpus.split(split))
            assert result["first"][attribute] == pytest.approx(first / n)
            assert result["exact"][attribute] == pytest.approx(exact / n)
    accuracies = evaluate_qa(model, corpus, "train")["exact"].values()
    assert any(0 < accuracy < 1 for accuracy in accuracies)


def test_biographies_are_judged_on_their_own_text(make_model, corpus):
    model = make_model(1)
    found = evaluate_bio(model, corpus, "test")
    for attribute in ATTRIBUTES:
        hits = 0
        for i in corpus.split("test"):
            ids, place = corpus.bio_ids[i][0], corpus.positions[i][0][attribute]
            hits += int(model(torch.tensor([ids]))[0, place].argmax()) == ids[place + 1]
        assert found[attribute] == pytest.approx(hits / len(corpus.split("test")))


def test_many_questions_are_judged_in_parts(monkeypatch, make_model, corpus):
    from icml24.papers.knowledge_extraction import evaluation

    model = make_model(1)
    whole = evaluate_qa(model, corpus, "test"), evaluate_bio(model, corpus, "test")
    monkeypatch.setattr(evaluation, "CHUNK", 5)
    assert (evaluate_qa(model, corpus, "test"), evaluate_bio(model, corpus, "test")) == whole


def test_empty_and_unknown_splits(make_model, corpus):
    model = make_model()
    lonely = build_corpus(BioConfig(n_people=1, n_values=2))
    for evaluate in (evaluate_qa, evaluate_bio):
        with pytest.raises(ValueError, match="unknown split"):
            evaluate(model, corpus, "validation")
        with pytest.raises(ValueError, match="empty"):
            evaluate(model, lonely, "train")
