import copy

import pytest
import torch

from icml24.papers.knowledge_extraction import ATTRIBUTES, BioConfig, build_corpus, p_probe, probes, q_probe
from icml24.papers.knowledge_extraction.counting import visible_probability
from icml24.papers.knowledge_extraction.probes import early_accuracy, probe_classes, probe_size, still_to_come


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def test_classes(corpus):
    labels, sizes = probe_classes(corpus)
    assert labels.shape == (24, 6)
    assert sizes[0] == 12
    for column, attribute in enumerate(ATTRIBUTES[1:], start=1):
        values = [p.value(attribute) for p in corpus.people]
        assert sizes[column] == len(set(values))
        for i in range(24):
            for j in range(24):
                assert (labels[i, column] == labels[j, column]) == (values[i] == values[j])


def test_probes_leave_the_model_alone(make_model, corpus, global_random_state):
    model = make_model()
    before, streams = copy.deepcopy(model.state_dict()), global_random_state()
    places = p_probe(model, corpus, steps=2, generator=gen())
    name = q_probe(model, corpus, steps=2, generator=gen())
    assert global_random_state() == streams
    assert places.shape == (6, 6)
    assert places.dtype == torch.float64
    assert ((places >= 0) & (places <= 1)).all()
    assert tuple(name) == ATTRIBUTES
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    again = p_probe(model, corpus, steps=2, generator=gen())
    assert torch.equal(places, again)


def test_probe_reads_what_is_linearly_there(make_model):
    """A value that stands in the text just before the place is read; one that does not is not."""
    corpus = build_corpus(BioConfig(n_people=120, n_values=4, n_names=1000, seed=2))
    model = make_model(scale=1.0).float()
    with torch.no_grad():  # blocks that only copy the token itself: features are embeddings of one token
        model.wte = torch.nn.utils.skip_init(torch.nn.Embedding, len(corpus.tokenizer), 16)
        model.wte.weight.normal_(generator=gen(1))
        for block in model.blocks:
            block.attn.o.weight.zero_()
            block.proj.weight.zero_()
    found = q_probe(model, corpus, rank=0, steps=150)  # the last token is the end mark: nothing to read
    labels, sizes = probe_classes(corpus)
    test = torch.tensor(corpus.split("test"))
    for column, attribute in enumerate(ATTRIBUTES):
        common = max((labels[test, column] == c).double().mean().item() for c in range(sizes[column]))
        assert found[attribute] <= common + 1e-12


@pytest.mark.parametrize("permute", [False, True])
def test_probe_finds_a_planted_value(permute):
    """States are zero but at one place, before the value of the third sentence as written."""
    corpus = build_corpus(BioConfig(n_people=80, n_values=3, n_names=1000, permute=permute, seed=3))

    class Planted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.wte = torch.nn.utils.skip_init(torch.nn.Embedding, len(corpus.tokenizer), 8)
            with torch.no_grad():
                self.wte.weight.zero_()
            self.ln_f = torch.nn.Identity()
            self.labels, _ = probe_classes(corpus)

        def hidden_states(self, ids, *, inputs_embeds=None):
            rows = corpus.bios[0][:, : ids.shape[1]]
            who = torch.tensor([int((rows == row).all(1).nonzero()[0]) for row in ids])
            major = torch.nn.functional.one_hot(self.labels[who, 3], 8).float()
            out = torch.zeros(*ids.shape, 8)
            where = torch.tensor([sorted(corpus.positions[i][0].values()) for i in who.tolist()])
            out[torch.arange(len(who)), where[:, 2]] = major  # only before the third value
            return [out]

    accuracy = p_probe(Planted(), corpus, rank=0, steps=120)
    assert accuracy[2, 3] == 1.0
    others = torch.ones(6, 6, dtype=torch.bool)
    others[2, 3] = False
    assert accuracy[others].max() < 0.8


def test_an_update_without_effect_is_the_plain_probe(make_model, corpus, monkeypatch):
    """E5: with U = 0 (its rate set to 0) the probe is the linear one."""
    model = make_model()
    monkeypatch.setattr(probes, "FACTOR_LR", 0.0)
    with_update = p_probe(model, corpus, rank=3, steps=6, generator=gen())
    assert torch.equal(with_update, p_probe(model, corpus, rank=0, steps=6))


@pytest.mark.equation("eq-knowledge_extraction-size")
@pytest.mark.parametrize("rank", [0, 3])
def test_a_probe_trains_as_many_parameters_as_it_says(make_model, corpus, monkeypatch, rank):
    """E5: the six attributes together are one probe of all their classes; places multiply classifiers."""
    trained = []
    original = torch.optim.AdamW

    def spy(groups):
        trained.append(sum(p.numel() for group in groups for p in group["params"]))
        return original(groups)

    monkeypatch.setattr(torch.optim, "AdamW", spy)
    model = make_model()
    classes = sum(probe_classes(corpus)[1])
    q_probe(model, corpus, rank=rank, steps=1)
    p_probe(model, corpus, rank=rank, steps=1)
    vocab = len(corpus.tokenizer)
    assert trained == [probe_size(vocab, 16, classes, rank), probe_size(vocab, 16, 6 * classes, rank)]


@pytest.mark.equation("eq-knowledge_extraction-visible")
def test_cases_still_to_come():
    """E9: in shuffled text a value is written, due or still to come with k - 1, 1 and 6 - k chances in six."""
    plain = build_corpus(BioConfig(n_people=8, n_values=3, n_names=1000))
    early = still_to_come(plain)
    assert (early == torch.ones(6, 6).triu(1).bool()).all()  # canonical order: strictly above the diagonal
    shuffled = build_corpus(BioConfig(n_people=400, n_values=3, n_names=1000, permute=True))
    expected = torch.tensor([1 - visible_probability(k) - 1 / 6 for k in range(1, 7)], dtype=torch.float64)
    gap = still_to_come(shuffled).double().mean(0) - expected[:, None]
    assert gap.abs().max() < 4 * (0.25 / 200) ** 0.5


def test_a_reader_of_the_next_value_alone_reads_nothing_ahead():
    """What a model that only recites would show: right just before each value, nowhere else."""
    corpus = build_corpus(BioConfig(n_people=60, n_values=3, n_names=1000, permute=True, seed=1))
    orders = [corpus.orders[i][0] for i in corpus.split("test")]
    due = torch.tensor([[[order[k] == a for a in ATTRIBUTES] for k in range(6)] for order in orders])
    matrix, mean = early_accuracy(due, corpus)
    assert mean == 0.0
    assert matrix[:5].nansum() == 0
    assert matrix[5].isnan().all()  # nothing is still to come at the last place
    assert due.double().mean() == pytest.approx(1 / 6)  # while the plain mean would show a sixth
    assert early_accuracy(still_to_come(corpus), corpus)[1] == 1.0


def test_probes_reject(make_model, corpus):
    model = make_model()
    lonely = build_corpus(BioConfig(n_people=1, n_values=2))
    for probe in (p_probe, q_probe):
        with pytest.raises(ValueError, match="steps"):
            probe(model, corpus, steps=0)
        with pytest.raises(ValueError, match="rank"):
            probe(model, corpus, rank=-1)
        with pytest.raises(ValueError, match="empty"):
            probe(model, lonely)
        with pytest.raises(ValueError, match=r"1\.\.16"):
            probe(model, corpus, rank=17, steps=1)
