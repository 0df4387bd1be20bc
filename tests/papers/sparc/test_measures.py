"""Retrieval, K-precision, segmentation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from icml24.papers.sparc import k_precision, mean_iou, retrieval_recall, segment


def test_parity(arrays, numbers):
    found = retrieval_recall(arrays["recall_sim"])
    assert found.keys() == numbers["recall"].keys()
    assert all(math.isclose(found[key], numbers["recall"][key], abs_tol=1e-9) for key in found)
    kp = numbers["kp"]
    assert math.isclose(k_precision(kp["pred"], kp["ref"]), kp["all"], abs_tol=1e-9)
    restricted = k_precision(kp["pred"], kp["ref"], restrict_to=kp["restrict"])
    assert math.isclose(restricted, kp["restricted"], abs_tol=1e-9)
    guess, truth = arrays["iou_pred"], arrays["iou_target"]
    assert math.isclose(mean_iou(guess, truth), numbers["iou_background"], abs_tol=1e-6)
    assert math.isclose(mean_iou(guess, truth, background=False), numbers["iou_foreground"], abs_tol=1e-6)
    out = segment(arrays["seg_patches"], arrays["seg_text"], (4, 4), (12, 12))
    assert out.dtype == torch.int64
    assert torch.equal(out, arrays["seg_out"].long())


@pytest.mark.equation("eq-sparc-recall")
def test_recall_by_hand():
    """Ranks 1, 3, 2 along rows and 2, 2, 1 along columns; a tie counts in favour of the pair."""
    scores = [[5.0, 1.0, 0.0], [6.0, 2.0, 3.0], [5.0, 4.0, 4.0]]
    found = retrieval_recall(scores, ks=(1, 2))
    assert found == {
        "i2t_r1": pytest.approx(1 / 3),
        "t2i_r1": pytest.approx(1 / 3),
        "i2t_r2": pytest.approx(2 / 3),
        "t2i_r2": pytest.approx(1.0),
    }
    assert retrieval_recall(np.zeros((4, 4)), ks=[1])["i2t_r1"] == 1.0


def test_k_precision_by_hand():
    predicted = [["red", "seven"], ["circle"], []]
    true = [{"seven"}, ["circle", "two"], ["two"]]
    assert k_precision(predicted, true) == pytest.approx(0.75)
    assert k_precision(predicted, true, restrict_to={"red"}) == 0.0
    assert math.isnan(k_precision([[]], [["two"]]))


@pytest.mark.equation("eq-sparc-iou")
def test_iou_by_hand():
    """Class 0: 2 of 3; class 1: 1 of 2 (or of 1 without background); the class not shown is no matter."""
    target = [[[0, 0, 1, -1], [-1, -1, -1, -1]]]
    guess = [[[0, 0, 1, 1], [0, 2, 2, 2]]]
    assert mean_iou(guess, target) == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert mean_iou(guess, target, background=False) == 1.0
    assert mean_iou(np.array(guess[0]), np.array(target[0])) == pytest.approx(7 / 12)


@pytest.mark.equation("eq-sparc-iou")
def test_images_count_equally_and_empty_ones_not_at_all():
    target = torch.full((3, 2, 2), -1)
    target[0], target[1, 0, 0] = 0, 1
    guess = torch.zeros(3, 2, 2, dtype=torch.int64)
    assert mean_iou(guess, target) == pytest.approx(0.5)
    assert math.isnan(mean_iou(guess[2:], target[2:]))


def test_segment_places_patches_row_by_row():
    classes = torch.eye(4)
    patches = torch.eye(4)[[0, 1, 2, 3, 0, 1]][None] * 3
    out = segment(patches, classes, (2, 3), (4, 6))
    expected = torch.tensor([[0, 0, 1, 1, 2, 2]] * 2 + [[3, 3, 0, 0, 1, 1]] * 2)
    assert torch.equal(out[0], expected)
    odd = segment(patches, classes, (2, 3), (3, 5))
    assert odd.shape == (1, 3, 5)
    assert torch.equal(odd[0, 0], torch.tensor([0, 0, 1, 1, 2]))


def test_reversed_views_and_tensors_of_ids():
    scores = np.random.default_rng(0).normal(size=(5, 5))
    assert retrieval_recall(scores[::-1, ::-1]) == retrieval_recall(scores[::-1, ::-1].copy())
    labels = np.arange(12).reshape(1, 3, 4) % 3
    assert mean_iou(labels[:, ::-1], labels[:, ::-1]) == 1.0
    predicted, true = torch.tensor([[1, 2], [3, 4]]), torch.tensor([[1, 5], [3, 4]])
    assert k_precision(predicted, true) == k_precision(predicted.numpy(), true.tolist()) == 0.75
    assert k_precision(predicted, true, restrict_to=torch.tensor([1, 3])) == 1.0


BAD = [
    (lambda: retrieval_recall(torch.zeros(2, 3)), "square"),
    (lambda: retrieval_recall(torch.full((2, 2), math.nan)), "NaN"),
    (lambda: retrieval_recall(torch.zeros(2, 2), ks=(0,)), "at least 1"),
    (lambda: k_precision([[1]], []), "one reference"),
    (lambda: mean_iou(torch.zeros(1, 2, 2), torch.zeros(1, 2, 3)), r"\(1, 2, 2\).*\(1, 2, 3\)"),
    (lambda: mean_iou(torch.zeros(2), torch.zeros(2)), "one shape"),
    (lambda: segment(torch.zeros(1, 6, 4), torch.zeros(3, 4), (2, 2), (4, 4)), "2 x 2"),
    (lambda: segment(torch.zeros(1, 6, 4), torch.zeros(3, 4), (-2, -3), (4, 4)), "-2 x -3"),
    (lambda: segment(torch.zeros(1, 6, 4), torch.zeros(3, 5), (2, 3), (4, 4)), r"\(3, 5\)"),
    (lambda: segment(torch.zeros(1, 6, 4), torch.zeros(3, 4), (2, 3), (0, 4)), "size"),
]


@pytest.mark.parametrize(("call", "words"), BAD)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
