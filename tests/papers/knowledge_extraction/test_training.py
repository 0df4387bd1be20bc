import copy
import math

import pytest
import torch

from icml24.papers.knowledge_extraction import (
    BioConfig,
    GPTConfig,
    RotaryGPT,
    TrainConfig,
    build_corpus,
    evaluate_bio,
    evaluate_qa,
    finetune_qa,
    pretrain,
    warmup_decay,
)
from icml24.papers.knowledge_extraction import training as t

F64 = torch.float64


def state(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.equation("eq-knowledge_extraction-loss")
def test_loss_is_the_mean_over_targets_that_are_not_padding(make_model, corpus):
    model = make_model()
    rows = corpus.bios[0][:7]
    logits = model(rows)
    terms = []
    for b, row in enumerate(rows.tolist()):
        for place in range(len(row) - 1):
            if row[place + 1] != 0:
                terms.append(-torch.log_softmax(logits[b, place], -1)[row[place + 1]])
    assert t.next_token_loss(model, rows).item() == pytest.approx((sum(terms) / len(terms)).item(), abs=1e-12)


@pytest.mark.equation("eq-knowledge_extraction-answer")
def test_answer_loss_counts_the_value_and_the_end_mark(make_model, corpus):
    """The batch of one finetuning step, rebuilt question by question from texts."""
    model = make_model()
    asked = {tuple(q.ids): q.answer for i in corpus.split("train") for q in corpus.questions[i].values()}
    reference = copy.deepcopy(model)
    config = TrainConfig(steps=1, batch_size=len(asked), lr=0.0, weight_decay=0.0)  # one epoch in one batch
    loss = finetune_qa(model, corpus, config)["loss"][0]
    terms = []
    for ids, answer in asked.items():
        logits = reference(torch.tensor([ids]))[0].log_softmax(-1)
        terms += [-logits[place - 1, ids[place]] for place in range(answer, len(ids))]
    assert loss == pytest.approx((sum(terms) / len(terms)).item(), abs=1e-12)
    every = finetune_qa(copy.deepcopy(reference), corpus, config, answer_only=False)["loss"][0]
    assert every != pytest.approx(loss, abs=1e-3)


@pytest.mark.equation("eq-knowledge_extraction-schedule")
def test_one_step_moves_by_the_scheduled_rate(make_model, corpus):
    """After one AdamW step from rest each weight has moved by rate * sign(gradient), the decay apart."""
    model = make_model()
    before = copy.deepcopy(model)
    config = TrainConfig(steps=10, batch_size=5, lr=1e-3, weight_decay=0.3, warmup=4, clip=1e9, eps=0.0)
    rates = []

    def stop(step):
        rates.append(step)
        raise StopIteration

    with pytest.raises(StopIteration):
        pretrain(model, corpus, config, callback=stop)
    rate = 1e-3 * warmup_decay(0, 10, warmup=4)
    assert rate == 1e-3 / 4
    moved = [
        (a - b * (1 - rate * 0.3)).abs() for a, b in zip(model.parameters(), before.parameters(), strict=True)
    ]
    sizes = torch.cat([m.flatten() for m in moved])
    touched = sizes > 0.5 * rate
    assert touched.double().mean() > 0.5
    torch.testing.assert_close(sizes[touched], torch.full_like(sizes[touched], rate), rtol=1e-6, atol=0)
    assert rates == [1]


@pytest.mark.equation("eq-knowledge_extraction-schedule")
def test_every_step_uses_the_scheduled_rate(make_model, corpus, monkeypatch):
    """Cosine to a tenth in pretraining, a straight line to zero in finetuning; written out by hand."""
    rates = []

    class Watched(torch.optim.AdamW):
        def step(self, closure=None):
            rates.append(self.param_groups[0]["lr"])
            return super().step(closure)

    monkeypatch.setattr(torch.optim, "AdamW", Watched)
    config = TrainConfig(steps=8, batch_size=4, lr=1e-3, warmup=3)
    pretrain(make_model(), corpus, config)
    along = [0, 0.2, 0.4, 0.6, 0.8]
    rise = [1 / 3, 2 / 3, 1]
    cosine = [0.1 + 0.9 * math.cos(math.pi * t / 2) ** 2 for t in along]
    assert rates == pytest.approx([1e-3 * f for f in rise + cosine], rel=1e-12)
    rates.clear()
    finetune_qa(make_model(), corpus, config)
    assert rates == pytest.approx([1e-3 * f for f in rise + [1 - t for t in along]], rel=1e-12)


def test_training_is_reproducible_and_leaves_global_streams_alone(make_model, corpus, global_random_state):
    before = global_random_state()
    config = TrainConfig(steps=3, batch_size=4, seed=2)
    models = [make_model() for _ in range(3)]
    losses = [
        pretrain(m, corpus, c)["loss"]
        for m, c in zip(models, (config, config, TrainConfig(steps=3, batch_size=4, seed=3)), strict=True)
    ]
    assert global_random_state() == before
    assert losses[0] == losses[1] != losses[2]
    assert same(state(models[0]), state(models[1]))
    assert not same(state(models[0]), state(models[2]))


def test_every_epoch_shows_every_person_once(corpus, monkeypatch, make_model):
    seen = []
    monkeypatch.setattr(
        t, "next_token_loss", lambda model, ids, keep=None: seen.append(ids) or (model.wte.weight.sum() * 0)
    )
    pretrain(make_model(), corpus, TrainConfig(steps=6, batch_size=8))
    rows = [row[row != 0].tolist() for ids in seen for row in ids]
    owner = {tuple(ids): i for i, of_person in enumerate(corpus.bio_ids) for ids in of_person}
    people = [owner[tuple(row)] for row in rows]
    assert sorted(people[:24]) == sorted(people[24:]) == list(range(24))
    assert people[:24] != people[24:]
    assert len({tuple(row) for row in rows}) > 24  # several of the three texts of a person occur


def test_only_training_people_are_asked_about(corpus, monkeypatch, make_model):
    seen = []
    monkeypatch.setattr(
        t, "next_token_loss", lambda model, ids, keep=None: seen.append(ids) or (model.wte.weight.sum() * 0)
    )
    finetune_qa(make_model(), corpus, TrainConfig(steps=9, batch_size=8))
    rows = {tuple(row[row != 0].tolist()) for ids in seen for row in ids}
    expected = {q.ids for i in corpus.split("train") for q in corpus.questions[i].values()}
    assert rows == expected
    seen.clear()
    pretrain(make_model(), corpus, TrainConfig(steps=5, batch_size=8), qa_ratio=2.0)
    assert [len(ids) for ids in seen] == [8, 16] * 5
    assert {tuple(row[row != 0].tolist()) for ids in seen[1::2] for row in ids} <= expected
    seen.clear()
    pretrain(make_model(), corpus, TrainConfig(steps=2, batch_size=8))
    assert [len(ids) for ids in seen] == [8, 8]


@pytest.mark.equation("eq-knowledge_extraction-mixed")
def test_mixed_gradient_is_the_sum_of_both(make_model, corpus):
    """One step without momentum memory: the clipped gradient is that of L_BIO + L_QA."""
    model = make_model()
    batches = []
    original = t.next_token_loss

    def spy(m, ids, keep=None):
        batches.append(ids)
        return original(m, ids, keep)

    t.next_token_loss = spy
    try:
        history = pretrain(model, corpus, TrainConfig(steps=1, batch_size=4, clip=1e9), qa_ratio=1.0)
    finally:
        t.next_token_loss = original
    fresh = make_model()
    total = original(fresh, batches[0]) + original(fresh, batches[1])
    total.backward()
    assert total.item() == pytest.approx(history["loss"][0] + history["qa_loss"][0], abs=1e-12)
    for ours, theirs in zip(model.parameters(), fresh.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-12)


def test_lora_trains_the_factors_only(make_model, corpus):
    model = make_model()
    plain = state(model)
    finetune_qa(model, corpus, TrainConfig(steps=4, batch_size=16), lora=(2, 3))
    kept = {name.replace(".base", ""): tensor for name, tensor in state(model).items()}
    assert all(torch.equal(kept[name], tensor) for name, tensor in plain.items())
    assert model.blocks[0].attn.q.B.abs().sum() > 0
    assert model.wte.U.abs().sum() > 0


def test_learns_to_recite_and_to_answer():
    """Four people, float32: every fact memorised; the questions trained on answered."""
    corpus = build_corpus(BioConfig(n_people=4, n_values=6, n_names=1000, seed=1))
    model = RotaryGPT(
        GPTConfig(len(corpus.tokenizer), n_layer=1, n_head=2, d_model=32),
        generator=torch.Generator().manual_seed(0),
    )
    calls = []
    history = pretrain(
        model, corpus, TrainConfig(steps=90, batch_size=4, lr=2e-2, warmup=10), callback=calls.append
    )
    assert calls == list(range(1, 91))
    assert history["loss"][-1] < 0.2 < history["loss"][0]
    assert set(evaluate_bio(model, corpus, "train").values()) == {1.0}
    finetune_qa(model, corpus, TrainConfig(steps=60, batch_size=12, lr=5e-3, weight_decay=0.01, warmup=10))
    assert set(evaluate_qa(model, corpus, "train")["exact"].values()) == {1.0}


def test_rejects(make_model, corpus):
    model = make_model()
    for bad in (
        {"steps": 0},
        {"batch_size": 0},
        {"lr": -1.0},
        {"lr": math.nan},
        {"clip": math.inf},
        {"warmup": -1},
    ):
        with pytest.raises(ValueError, match=r"steps|" + next(iter(bad))):
            TrainConfig(**bad)
    for ratio in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="qa_ratio"):
            pretrain(model, corpus, TrainConfig(steps=1), qa_ratio=ratio)
    with torch.no_grad():
        model.blocks[1].fc.weight[0, 0] = math.nan
    with pytest.raises(RuntimeError, match="step 0"):
        pretrain(model, corpus, TrainConfig(steps=2, batch_size=3))
    with pytest.raises(RuntimeError, match="step 0"):
        finetune_qa(model, corpus, TrainConfig(steps=2, batch_size=3))
    lonely = build_corpus(BioConfig(n_people=1, n_values=2))
    with pytest.raises(ValueError, match="'train' is empty"):
        finetune_qa(make_model(), lonely, TrainConfig(steps=1))
