import math

import pytest
import torch

from icml24.common.contrastive import symmetric_info_nce


def test_by_hand():
    # two pairs: each side picks its partner with probability e^2 / (e^2 + 1) or e / (e + 1)
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    expected = (math.log1p(math.exp(-2)) + math.log1p(math.exp(-1))) / 2
    assert math.isclose(symmetric_info_nce(logits), expected)
    assert math.isclose(symmetric_info_nce(torch.zeros(5, 5)), math.log(5), rel_tol=1e-6)


def test_symmetry_and_masks():
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 6, generator=g, dtype=torch.float64)
    torch.testing.assert_close(symmetric_info_nce(logits), symmetric_info_nce(logits.T))
    eye = torch.eye(6, dtype=torch.bool)
    torch.testing.assert_close(symmetric_info_nce(logits, eye), symmetric_info_nce(logits))
    # several partners share the target: the mean of their negative log probabilities
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    same = labels[:, None] == labels
    rows = torch.stack([-logits.log_softmax(1)[i, same[i]].mean() for i in range(6)]).mean()
    columns = torch.stack([-logits.log_softmax(0)[same[:, j], j].mean() for j in range(6)]).mean()
    torch.testing.assert_close(symmetric_info_nce(logits, same), (rows + columns) / 2)


def test_rectangular_and_gradient():
    logits = torch.zeros(2, 3, requires_grad=True)
    mask = torch.tensor([[True, True, False], [False, False, True]])
    symmetric_info_nce(logits, mask).backward()
    assert torch.isfinite(logits.grad).all()
    assert (logits.grad[mask] < 0).all()
    assert (logits.grad[~mask] > 0).all()


@pytest.mark.parametrize(
    ("logits", "positives", "error", "match"),
    [
        (torch.zeros(2, 2, dtype=torch.int64), None, TypeError, "floating"),
        (torch.zeros(2, 3), None, ValueError, "square"),
        (torch.zeros(0, 0), None, ValueError, "empty"),
        (torch.zeros(4), None, ValueError, r"\(n, m\)"),
        (torch.zeros(2, 2), torch.ones(2, 2), TypeError, "boolean"),
        (torch.zeros(2, 2), torch.ones(2, 3, dtype=torch.bool), ValueError, "shape"),
        (torch.zeros(2, 2), torch.tensor([[True, True], [False, False]]), ValueError, "at least one"),
    ],
)
def test_rejects(logits, positives, error, match):
    with pytest.raises(error, match=match):
        symmetric_info_nce(logits, positives)
