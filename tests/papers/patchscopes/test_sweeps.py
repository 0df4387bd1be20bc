"""Sweeps over layers and prompts against plain loops, on models small enough to know by heart."""

from __future__ import annotations

import pytest
import torch

from icml24.papers import patchscopes as ps
from icml24.papers.patchscopes import multihop, relations
from icml24.papers.patchscopes.data import TwoHop
from icml24.papers.patchscopes.experiments import configure
from icml24.papers.patchscopes.sweeps import continuations, cut_after_subject

SOURCES = [torch.tensor([3, 1, 4]), torch.tensor([1, 5, 9, 2, 6]), torch.tensor([5])]
POSITIONS = [-1, 2, 0]
TARGET = torch.tensor([7, 8, 7, 8, 11])


def test_next_token_sweep_is_a_loop_of_patchscopes(gpt, plain, normal):
    for model in (gpt, plain):
        last = model.n_layers
        maps = {
            layer: ps.AffineMap(normal(*[model.d_model] * 2, seed=layer), normal(model.d_model))
            for layer in (0, 2, last)
        }
        out = ps.next_token_sweep(model, SOURCES, POSITIONS, TARGET, layers=(0, 2, last), maps=maps)
        assert out["layers"].tolist() == [0, 2, last]
        for j, (ids, at) in enumerate(zip(SOURCES, POSITIONS, strict=True)):
            stream = ps.residual_stream(model, ids)[:, :, at]
            truth = model.unembed(stream[-1])
            assert float(out["floor"][j]) == pytest.approx(float(ps.surprisal(truth, truth)), abs=1e-10)
            for k, layer in enumerate((0, 2, last)):
                spec = ps.PatchSpec(layer, layer, at, -1)
                decoded = {
                    "patchscope": ps.patchscope(model, ids, model, TARGET, spec)[:, -1],
                    "logit_lens": ps.logit_lens(model, stream[layer]),
                    "affine": model.unembed(maps[layer](stream[layer])),
                }
                for method, logits in decoded.items():
                    assert int(out[f"{method}_token"][k, j]) == int(logits.argmax())
                    assert float(out[f"{method}_precision"][k, j]) == float(ps.precision_at_1(truth, logits))
                    assert float(out[f"{method}_surprisal"][k, j]) == pytest.approx(
                        float(ps.surprisal(truth, logits)), abs=1e-10
                    )


@pytest.mark.equation("eq-patchscopes-floor")
def test_every_method_reaches_the_floor_at_the_last_layer(gpt):
    out = ps.next_token_sweep(gpt, SOURCES, POSITIONS, TARGET)
    assert len(out["layers"]) == gpt.n_layers + 1
    assert "affine_precision" not in out
    for method in ("patchscope", "logit_lens"):
        assert (out[f"{method}_precision"][-1] == 1).all()
        torch.testing.assert_close(out[f"{method}_surprisal"][-1], out["floor"], rtol=0, atol=1e-10)
        assert (out[f"{method}_surprisal"] >= out["floor"] - 1e-10).all()


def test_next_token_sweep_rejects(plain):
    with pytest.raises(ValueError, match="one position a source"):
        ps.next_token_sweep(plain, SOURCES, [0], TARGET)
    with pytest.raises(ValueError, match="one position a source"):
        ps.next_token_sweep(plain, [], [], TARGET)
    with pytest.raises(IndexError, match=r"positions\[2\] = 1"):
        ps.next_token_sweep(plain, SOURCES, [0, 0, 1], TARGET)
    with pytest.raises(ValueError, match=r"no map for layers \[1\]"):
        ps.next_token_sweep(plain, SOURCES, POSITIONS, TARGET, layers=(0, 1), maps={0: lambda h: h})
    with pytest.raises(ValueError, match=r"sources \[1\] hold several"):
        ps.next_token_sweep(plain, [SOURCES[0], TARGET.expand(2, -1)], [0, 0], TARGET)
    with pytest.raises(ValueError, match="one target prompt"):
        ps.next_token_sweep(plain, SOURCES, POSITIONS, TARGET.expand(3, -1))
    with pytest.raises(ValueError, match="layers = 9"):
        ps.next_token_sweep(plain, SOURCES, POSITIONS, TARGET, layers=(9,))


class Words:
    """A tokenizer of whole words."""

    eos_token_id = None

    def __init__(self, vocabulary):
        self.names = [f"w{k}" for k in range(vocabulary)]
        self.ids = {name: k for k, name in enumerate(self.names)}

    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": [self.ids[word] for word in text.split()]}

    def decode(self, ids):
        return "".join(" " + self.names[int(k)] for k in ids)


def records_of(model, words, subjects):
    """Records whose object is what the model really says, so that the filter keeps them; one is made wrong."""
    out = []
    for subject in subjects:
        baseline = f"w1 w2 {subject}"
        said = continuations(model, words, [baseline + " w3"], 1)[0].strip()
        out.append(
            {
                "prompt_source": f" w4 w5 {subject} w6 w7",
                "subject": subject,
                "object": said,
                "prompt_target": "w1 w2 w0",
                "target_baseline": baseline,
            }
        )
    out[-1]["object"] = "nothing"
    return out


@pytest.mark.parametrize("suffix", ["", " w3"])
def test_attribute_sweep_is_a_loop_of_generations(gpt, suffix):
    words = Words(29)
    records = records_of(gpt, words, ["w8", "w9", "w10", "w11"])
    for record in records[:-1]:
        record["object"] = continuations(gpt, words, [record["target_baseline"] + suffix], 2)[0].split()[0]
    out = ps.attribute_sweep(
        gpt, words, records, source_layers=[0, 2], target_layers=[1, 3, 4], max_new_tokens=3, suffix=suffix
    )
    assert out["kept"] == [0, 1, 2]
    assert out["total"] == 4
    assert out["hits"].shape == (3, 2, 3)
    for t, target in enumerate((1, 3, 4)):
        for s, source in enumerate((0, 2)):
            for k, j in enumerate(out["kept"]):
                ids = torch.tensor(words(f"w4 w5 {records[j]['subject']}")["input_ids"])
                state = ps.residual_stream(gpt, ids)[source][:, -1]
                prompt = torch.tensor(words("w1 w2 w0" + suffix)["input_ids"])
                text = words.decode(
                    ps.patched_generate(
                        gpt, prompt, state, target_layer=target, target_position=2, max_new_tokens=3
                    )[0]
                )
                assert out["generations"][t][s][k] == text
                assert bool(out["hits"][t, s, k]) == ps.attribute_hit(text, records[j]["object"])
    torch.testing.assert_close(out["accuracy"], out["hits"].double().mean(-1))
    torch.testing.assert_close(out["mean_over_targets"], out["accuracy"].mean(0))
    assert (out["oracle_over_targets"] >= out["accuracy"].amax(0)).all()


def test_attribute_sweep_rejects(gpt):
    words = Words(29)
    records = records_of(gpt, words, ["w8", "w9"])
    layers = {"source_layers": [1], "target_layers": [1]}
    with pytest.raises(ValueError, match="no records"):
        ps.attribute_sweep(gpt, words, [], **layers)
    with pytest.raises(ValueError, match="attribute of none"):
        ps.attribute_sweep(gpt, words, records[1:], **layers)
    with pytest.raises(ValueError, match="source_layers = 5"):
        ps.attribute_sweep(gpt, words, records, source_layers=[5], target_layers=[1])
    with pytest.raises(ValueError, match="one target prompt"):
        ps.attribute_sweep(gpt, words, [records[0], records[1] | {"prompt_target": "w1 w0"}], **layers)


def test_cut_after_subject():
    record = {"prompt_source": " flights from New Zealand and New Zealand only", "subject": "New Zealand"}
    assert cut_after_subject(record) == "flights from New Zealand"
    with pytest.raises(ValueError, match="does not occur"):
        cut_after_subject(record | {"subject": "Peru"})


def test_continuations_keep_the_order_of_their_prompts(gpt):
    words = Words(29)
    texts = ["w1 w2 w3", "w4", "w5 w6 w7", "w8 w9"]
    together = continuations(gpt, words, texts, 3)
    assert together == [continuations(gpt, words, [text], 3)[0] for text in texts]


def table_of(model, words):
    """Three prompts a subject; the last subject's object is never said."""
    rows = []
    for record in records_of(model, words, ["w8", "w9", "w10", "w11", "w12", "w13"]):
        rows += [
            record | {"prompt_source": f"{context} {record['subject']} w6"} for context in ("w4", "w5", "w7")
        ]
    return tuple(rows)


def test_relations_score_a_sweep_and_two_probes(gpt, monkeypatch):
    words = Words(29)
    rows = table_of(gpt, words)
    monkeypatch.setattr(relations, "RELATIONS", ("made", "unknown"))
    unknown = tuple(row | {"object": "nothing"} for row in rows)
    monkeypatch.setattr(relations, "relation_rows", {"made": rows, "unknown": unknown}.__getitem__)
    config = configure("quick", relation_sources=(0, 2), relation_targets=(1, 3), relation_tokens=3)
    (found,) = relations.measure_relations(
        gpt, words, config, suffix=" w3"
    )  # the unknown one has nothing to read
    records = rows[::3]
    sweep = ps.attribute_sweep(
        gpt, words, records, source_layers=(0, 2), target_layers=(1, 3), max_new_tokens=3, suffix=" w3"
    )
    assert (found.kept, found.total) == (5, 6)
    torch.testing.assert_close(found.accuracy, sweep["accuracy"])
    torch.testing.assert_close(found.best, sweep["accuracy"].amax(0))
    objects = [record["object"] for record in records[:5]]
    assert found.majority == max(map(objects.count, objects)) / 5
    pairs = sweep["hits"].reshape(4, 5).double()  # chosen on records 0, 2, 4, judged on 1 and 3
    assert found.held_out_pair == float(pairs[int(pairs[:, [0, 2, 4]].mean(1).argmax()), [1, 3]].mean())
    assert float(found.probe_seen[0]) == 1.0  # layer 0 is the subject's embedding in every context
    repeated = sum(objects.count(name) > 1 for name in objects) / 5
    assert float(found.probe_unseen.max()) <= repeated + 1e-6  # an object of one subject cannot be named
    broken = rows[:3] + tuple(row | {"prompt_target": "w1 w0"} for row in rows[3:])
    monkeypatch.setattr(relations, "relation_rows", lambda name: broken)
    with pytest.raises(ValueError, match="one target prompt"):  # a malformed table is no unknown relation
        relations.measure_relations(gpt, words, config, suffix=" w3")


class Loose(Words):
    """Unknown words become the placeholder."""

    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": [self.ids.get(word, 0) for word in text.split()]}


def test_two_hops_are_a_loop_of_generations(gpt, monkeypatch):
    words = Loose(29)
    monkeypatch.setattr(multihop, "SUFFIX", " w3")
    monkeypatch.setattr(multihop, "CONTEXTS", ("", "w4 {}"))
    items = []
    for first, second in (
        ("w5 w6", "w1 w2 x"),
        ("w7 w8", "w9 x"),
        ("w10 w11", "w1 w2 x"),
        ("w12 w13", "w9 x"),
    ):
        middle = continuations(gpt, words, [first], 1)[0].strip()
        answer = continuations(gpt, words, [f"{second[:-1]}{middle} w3"], 1)[0].strip()
        items.append(TwoHop(first, middle, answer, second, f"w14 {first}"))
    items.append(TwoHop("w5 w6", items[0].middle, "nothing", "w9 x", "w14"))
    monkeypatch.setattr(multihop, "two_hop_items", lambda: items)
    result = multihop.multi_hop(gpt, words, configure("quick", hop_layers=(1, 3), hop_tokens=2))
    assert result.items == tuple(items[:4])
    assert result.total == 5
    texts = {"hits": [i.first for i in items], "control": [f"w4 {i.middle}" for i in items]}
    for name, sources in texts.items():
        for j, item in enumerate(items[:4]):
            stream = ps.residual_stream(gpt, torch.tensor(words(sources[j])["input_ids"]))
            prompt = torch.tensor(words(item.second + " w3")["input_ids"])
            for s, source in enumerate((1, 3)):
                for t, target in enumerate((1, 3)):
                    new = ps.patched_generate(
                        gpt,
                        prompt,
                        stream[source][:, -1],
                        target_layer=target,
                        target_position=-2,
                        max_new_tokens=2,
                    )
                    hit = item.answer in words.decode(new[0]).split()
                    assert bool(getattr(result, name)[s, t, j]) == hit
    plainly = continuations(gpt, words, [f"{item.composed} w3" for item in items[:4]], multihop.ANSWER_TOKENS)
    assert result.vanilla.tolist() == [
        i.answer in text.split() for i, text in zip(items, plainly, strict=False)
    ]
    monkeypatch.setattr(multihop, "two_hop_items", lambda: items[4:])
    assert multihop.multi_hop(gpt, words, configure("quick", hop_layers=(1,), hop_tokens=2)) == 1
