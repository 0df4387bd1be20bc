"""Linear probes against scikit-learn, and what they can and cannot know."""

from __future__ import annotations

import torch
from sklearn.linear_model import LogisticRegression

from icml24.papers.patchscopes.probes import fit_probe, folds_by_subject, folds_within_subject, probe_hits


def test_fit_is_the_usual_logistic_regression(normal):
    X, y = normal(80, 6, seed=1), torch.randint(0, 3, (80,), generator=torch.Generator().manual_seed(2))
    weight, bias = fit_probe(X, y, 3)
    peer = LogisticRegression(C=1.0, tol=1e-8, max_iter=1000).fit(X, y)
    ours = (X @ weight + bias).softmax(-1)
    torch.testing.assert_close(ours, torch.from_numpy(peer.predict_proba(X)), rtol=0, atol=1e-3)


def test_folds():
    subjects = ["a", "a", "b", "c", "c", "c"]
    assert folds_by_subject(subjects, 2) == [0, 0, 1, 0, 0, 0]
    assert folds_within_subject(subjects, 2) == [0, 1, 0, 0, 1, 0]


def test_an_object_of_one_subject_needs_that_subject(normal):
    # five subjects, each with its own object and its own direction, read in four contexts
    centre, noise = normal(5, 8, seed=3), 0.05 * normal(20, 8, seed=4)
    subjects = [f"s{k % 5}" for k in range(20)]
    X = centre.repeat(4, 1) + noise
    objects = [f"o{k % 5}" for k in range(20)]
    assert probe_hits(X, objects, folds_within_subject(subjects, 4)).all()
    assert not probe_hits(X, objects, folds_by_subject(subjects, 5)).any()
    shared = ["even" if k % 5 % 2 == 0 else "odd" for k in range(20)]  # objects repeat over subjects
    assert probe_hits(X, shared, folds_within_subject(subjects, 4)).all()
