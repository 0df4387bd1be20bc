r"""Losses, scores, the schedule and the three groups of parameters of the authors' training."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icml24.common.checks import WrongType, floating, number, positive, whole

__all__ = ["balanced_accuracy", "param_groups", "warmup_cosine_lr", "weighted_node_cross_entropy"]

RECURRENT = ("B_re", "B_im", "nu_log", "theta_log", "gamma_log")


def weighted_node_cross_entropy(logits: Tensor, labels: Tensor, node_mask: Tensor) -> Tensor:
    r"""Cross entropy over nodes in which rare classes weigh more (eq-gred-loss).

    With :math:`f_c` the share of class c among the real nodes of the batch and
    :math:`w_v = 1 - f_{y_v}`,

    .. math:: L = \sum_v w_v\, \mathrm{CE}_v \Big/ \sum_v w_v .

    Parameters
    ----------
    logits : Tensor, shape (B, N, C), floating
    labels : Tensor, shape (B, N), integer
        Classes; ignored at nodes that are not real.
    node_mask : Tensor, shape (B, N), bool
        Real nodes.

    Returns
    -------
    Tensor, scalar
        Zero where every weight is: no real node, or all of one class.

    Raises
    ------
    ValueError
        Shapes that differ, a label outside 0..C-1 at a real node.
    """
    if floating("logits", logits).ndim != 3:
        raise ValueError(f"logits must be (B,N,C); got shape {tuple(logits.shape)}")
    classes = logits.shape[-1]
    real, labels = _labelled(labels, node_mask, classes, logits.shape[:2])
    scores = logits[real]
    counts = torch.bincount(labels, minlength=classes).to(logits.dtype)
    weight = 1 - (counts / max(len(labels), 1))[labels]
    loss = F.cross_entropy(scores, labels, reduction="none") if len(labels) else scores.sum(dim=-1)
    return (weight * loss).sum() / weight.sum().clamp_min(torch.finfo(logits.dtype).tiny)


def balanced_accuracy(pred: Tensor, labels: Tensor, node_mask: Tensor, num_classes: int) -> float:
    """Mean over classes of the share of its real nodes that are predicted right.

    Parameters
    ----------
    pred, labels : Tensor, shape (B, N), integer
    node_mask : Tensor, shape (B, N), bool
    num_classes : int
        Classes without a node have recall 0 (0/1), and count.

    Returns
    -------
    float
        In [0, 1].
    """
    count = whole("num_classes", num_classes, 1)
    real, truth = _labelled(labels, node_mask, count, None)
    if not isinstance(pred, Tensor) or pred.shape != labels.shape:
        got = tuple(pred.shape) if isinstance(pred, Tensor) else type(pred).__name__
        raise ValueError(f"pred must be {tuple(labels.shape)}, as labels; got {got}: use logits.argmax(-1)")
    right = torch.bincount(truth[pred[real] == truth], minlength=count).double()
    return float((right / torch.bincount(truth, minlength=count).clamp_min(1)).mean())


def warmup_cosine_lr(step: int, *, total: int, warmup: int, lr_min: float, lr_max: float) -> float:
    r"""Learning rate of a step: linear up, then half a cosine down (eq-gred-schedule).

    .. math::

        \ell(t) = \begin{cases} \ell_{\min} + (\ell_{\max} - \ell_{\min})\, t / W & t \le W \\
        \ell_{\min} + \tfrac12 (\ell_{\max} - \ell_{\min})
        \bigl(1 + \cos \pi \tfrac{t - W}{T - W}\bigr) & t > W \end{cases}

    Parameters
    ----------
    step : int
        :math:`t`, from 0; beyond `total` the rate stays at `lr_min`.
    total, warmup : int
        :math:`T` and :math:`W`, ``0 <= warmup <= total``.
    lr_min, lr_max : float
        ``0 <= lr_min <= lr_max``.

    Returns
    -------
    float
    """
    t, total, warmup = whole("step", step), whole("total", total, 1), whole("warmup", warmup)
    low, high = number("lr_min", lr_min, least=0.0), number("lr_max", lr_max, least=0.0)
    if warmup > total or low > high:
        raise ValueError(
            f"expected warmup <= total and lr_min <= lr_max; got {warmup}, {total} and {low}, {high}"
        )
    if t <= warmup:
        return low + (high - low) * t / warmup if warmup else high
    done = min(1.0, (t - warmup) / (total - warmup)) if total > warmup else 1.0
    return low + 0.5 * (high - low) * (1 + math.cos(math.pi * done))


def param_groups(
    model: nn.Module, *, lr: float, weight_decay: float, lr_factor: float = 1.0
) -> list[dict[str, object]]:
    """Three groups for ``torch.optim.AdamW``; every parameter is in exactly one.

    Parameters
    ----------
    model : Module
    lr, weight_decay : float
    lr_factor : float, default 1.0
        Multiplies `lr` for the recurrent group.

    Returns
    -------
    list of three dict
        Keys ``name``, ``params``, ``lr``, ``weight_decay``. ``recurrent``: B_re, B_im and the logarithms of
        the eigenvalues, without decay; ``no_decay``: embeddings, norms and biases; ``regular``: dense
        kernels **and C_re, C_im**, with decay.
    """
    if not isinstance(model, nn.Module):
        raise WrongType(f"model must be a torch.nn.Module; got {type(model).__name__}")
    rate, decay = positive("lr", lr), number("weight_decay", weight_decay, least=0.0)
    factor = number("lr_factor", lr_factor, least=0.0)
    chosen: dict[str, list[nn.Parameter]] = {"recurrent": [], "no_decay": [], "regular": []}
    seen: set[int] = set()
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                chosen[_group(module, name)].append(parameter)
    rates = {"recurrent": (rate * factor, 0.0), "no_decay": (rate, 0.0), "regular": (rate, decay)}
    return [
        {"name": name, "params": chosen[name], "lr": pair[0], "weight_decay": pair[1]}
        for name, pair in rates.items()
    ]


def _group(module: nn.Module, name: str) -> str:
    if name in RECURRENT:
        return "recurrent"
    plain = isinstance(module, (nn.Embedding, nn.LayerNorm, nn.modules.batchnorm._BatchNorm))
    return "no_decay" if plain or name.endswith("bias") else "regular"


def _labelled(
    labels: Tensor, node_mask: Tensor, classes: int, shape: torch.Size | None
) -> tuple[Tensor, Tensor]:
    """Mask and labels of the real nodes."""
    for name, x in (("labels", labels), ("node_mask", node_mask)):
        if not isinstance(x, Tensor):
            raise WrongType(f"{name} must be a torch.Tensor; got {type(x).__name__}")
    if labels.is_floating_point():
        raise WrongType(f"labels must have an integer dtype; got {labels.dtype}")
    wanted = labels.shape if shape is None else shape
    if labels.ndim != 2 or labels.shape != wanted or node_mask.shape != wanted:
        raise ValueError(
            f"labels and node_mask must be {tuple(wanted)}, (B,N); got {tuple(labels.shape)} "
            f"and {tuple(node_mask.shape)}"
        )
    real = node_mask.bool()
    kept = labels[real].long()
    if len(kept) and not (int(kept.min()) >= 0 and int(kept.max()) < classes):
        raise ValueError(f"labels of real nodes must lie in 0..{classes - 1}")
    return real, kept
