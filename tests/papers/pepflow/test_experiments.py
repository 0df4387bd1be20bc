"""The bars of the chapter that a short run can meet; evaluation and its trivial answers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from icml24.papers.pepflow import checks, data, experiments
from icml24.papers.pepflow.evaluation import baseline_scores, design, fit_prior, score
from icml24.papers.pepflow.training import TINY, Training, train


@pytest.fixture(scope="module")
def rows():
    files = data.chain_files()
    g = torch.Generator().manual_seed(0)
    return data.carve_fragments(files[1], stride=12, generator=g)


@pytest.fixture(scope="module")
def tiny(rows):
    return train(rows, Training(steps=3, batch=4, network=TINY), 0)


def test_overfitting_one_complex():
    """Bar: translation and sequence losses below 0.8 of their start within 90 steps."""
    trained, _, ends = experiments.learn_one(experiments.configure("quick", seed=5))
    assert ends["trans"] <= 0.8
    assert ends["seq"] <= 0.8
    assert len(trained.losses["rot"]) == 90


def test_training_is_reproducible(rows, tiny):
    again = train(rows, Training(steps=3, batch=4, network=TINY), 0)
    assert again.losses == tiny.losses
    for a, b in zip(tiny.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_modality_left_out_is_not_noised(rows):
    """With native types and angles as input, the sequence loss plays no part in the gradient."""
    training = Training(steps=2, batch=4, network=TINY, modalities=("bb",))
    trained = train(rows, training, 0)
    fresh = train(rows, replace(training, steps=0), 0)
    assert torch.equal(trained.model.ga_encoder.seq_net[4].weight, fresh.model.ga_encoder.seq_net[4].weight)
    with pytest.raises(ValueError, match="modalities"):
        train(rows, replace(training, modalities=("colour",)), 0)
    with pytest.raises(ValueError, match="no complexes"):
        train([], training, 0)


def test_evaluation(rows, tiny):
    designs = design(tiny.model, rows, "packing", samples=2, n_steps=2, seed=0)
    scores = score(rows, designs)
    assert scores.mean("aar") == 1.0  # types are fixed
    assert scores.mean("rmsd") < 1e-6  # so is the backbone
    assert 0 < scores.mean("chi1") < 180
    mean, low, high = scores.interval("chi1")
    assert low <= mean <= high
    other = design(tiny.model, rows, "co-design", samples=2, n_steps=2, seed=0, chunk=2)
    assert [len(s) for s in other] == [2] * len(rows)
    placed, bond = experiments.bond_errors(other)
    assert placed == 1.0
    assert bond <= 0.02
    gap, error = scores.ahead("chi1", scores)
    assert (gap, error) == (0.0, 0.0)
    with pytest.raises(ValueError, match="unknown mode"):
        design(tiny.model, rows, "magic", samples=1, n_steps=2, seed=0)


def test_trivial_answers(rows):
    prior = fit_prior(rows)
    assert prior.frequency.sum() == pytest.approx(1.0)
    scores = baseline_scores(rows, prior, 0, samples=40)
    native = torch.cat([r["aa"][r["gen_mask"]] for r in rows])
    share = (native == prior.frequency.argmax()).double().mean()
    lengths = np.array([int(r["gen_mask"].sum()) for r in rows])
    common = scores["common type"].values["aar"]
    assert (common * lengths).sum() / lengths.sum() == pytest.approx(float(share))
    expected = np.mean([float(prior.frequency[r["aa"][r["gen_mask"]]].mean()) for r in rows])
    assert scores["background"].mean("aar") == pytest.approx(expected, abs=0.02)
    assert scores["torsion count"].mean("aar") > scores["background"].mean("aar")
    assert scores["random angles"].mean("chi1") == pytest.approx(90, abs=8)
    assert scores["rotamer"].mean("chi1") < 60
    centred = [r["pos"][r["gen_mask"]][:, 1] for r in rows]
    radius = np.mean([float(ca.square().sum(-1).mean().sqrt()) for ca in centred])
    assert scores["centroid"].mean("rmsd") == pytest.approx(radius, rel=1e-5)


def test_checks_of_the_chapter(complexes):
    assert max(checks.identities(3).values()) <= 1e-9
    two = experiments.first_batch(list(complexes.values())[:2])
    assert checks.drift(two, 3) <= 1e-5  # bar: rotations of a sample in 200 steps
    assert max(checks.equivariance(two, 3, torch.float64).values()) <= 1e-5
    curve = checks.clean_type_curve(torch.linspace(0, 1, 5, dtype=torch.float64), 2000, 0)
    assert (curve.diff() > 0).all()


def test_profiles():
    assert experiments.configure("full").chains is None
    with pytest.raises(ValueError, match="unknown profile"):
        experiments.configure("huge")
