r"""Every measure of the chapter for one trained model.

Three segmentation protocols, always named: `strict` (candidates are all classes, predictions on
background count as false positives: the paper's setting as described), `foreground` (background
pixels left out), `present` (foreground pixels, candidates are the image's own classes).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .baselines import filip_scores, gloria_scores, pacl_scores
from .data import CLASSES, COLOURS, Scenes, Vocabulary
from .encoders import DualEncoder
from .measures import k_precision, mean_iou, retrieval_recall, upsample
from .training import OBJECTIVES

__all__ = ["Embedded", "class_scores", "class_texts", "embed", "evaluate", "pointing_accuracy", "scores"]


@dataclass(frozen=True)
class Embedded:
    """Embeddings of a set of pairs, as `DualEncoder` gives them, with the mask."""

    image: Tensor
    patches: Tensor
    text: Tensor
    tokens: Tensor
    mask: Tensor


def embed(model: DualEncoder, scenes: Scenes, *, batch: int = 500) -> Embedded:
    """All embeddings of a set, without gradients."""
    parts = []
    with torch.no_grad():
        for i in range(0, len(scenes), batch):
            part = slice(i, i + batch)
            out = model(scenes.images[part], scenes.tokens[part], scenes.mask[part])
            parts.append([out[name] for name in ("image", "patches", "text", "tokens")])
    return Embedded(*(torch.cat(column) for column in zip(*parts, strict=True)), scenes.mask)


def class_texts(model: DualEncoder, *, style: str = "labels", ensemble: bool = False) -> Tensor:
    """Pooled prompt of each class, [C, d]: one prompt, or the normalised mean over colour templates."""
    article = ["a"] if style == "sentence" else []
    templates = [article, *([[*article, colour] for colour in COLOURS] if ensemble else [])]
    means = []
    for words in templates:
        tokens = torch.tensor([Vocabulary.encode([*words, name]) for name in CLASSES])
        with torch.no_grad():
            pooled, _ = model.encode_text(tokens, torch.ones_like(tokens, dtype=torch.bool))
        means.append(F.normalize(pooled, dim=-1))
    return torch.stack(means).mean(0) if ensemble else pooled


def scores(objective: str, images: Embedded, text: Tensor, tokens: Tensor, mask: Tensor) -> Tensor:
    """Matching scores [images, texts] by which an objective retrieves, in chunks of images.

    Cosines of pooled embeddings; FILIP takes the mean of its two scores, PACL its attended
    cosine. GLoRIA adds its local score to the cosine, as its loss does.
    """
    if objective not in ("filip", "pacl", "gloria"):
        return F.normalize(images.image, dim=-1) @ F.normalize(text, dim=-1).T
    rows = []
    for i in range(0, len(images.image), 50):
        patches = images.patches[i : i + 50]
        if objective == "filip":
            to_text, to_image = filip_scores(patches, tokens, mask)
            rows.append((to_text + to_image.T) / 2)
        elif objective == "pacl":
            rows.append(pacl_scores(patches, text))
        else:
            cosine = F.normalize(images.image[i : i + 50], dim=-1) @ F.normalize(text, dim=-1).T
            rows.append(cosine + gloria_scores(patches, tokens, mask, 4.0))
    return torch.cat(rows)


def class_scores(patches: Tensor, class_text: Tensor) -> Tensor:
    """Cosine of every patch with every class prompt, [B, P, C]."""
    return F.normalize(patches, dim=-1) @ F.normalize(class_text, dim=-1).T


def pointing_accuracy(cosines: Tensor, cells: Tensor) -> float:
    """Share of present classes whose best-scoring patch shows the class; NaN without any.

    Parameters
    ----------
    cosines : Tensor, shape (B, P, C)
    cells : Tensor of int64, shape (B, P)
        Class of each patch, -1 on background.
    """
    shown = cells[..., None] == torch.arange(cosines.shape[-1])
    hit = shown.gather(1, cosines.argmax(1, keepdim=True))[:, 0]
    return float(hit[shown.any(1)].double().mean())


def evaluate(model: DualEncoder, scenes: Scenes, singles: Scenes, *, objective: str) -> dict[str, float]:
    """Classification, retrieval, faithfulness, segmentation and pointing of one model.

    Parameters
    ----------
    model : DualEncoder
    scenes : Scenes
        Test scenes of several classes.
    singles : Scenes
        Scenes of one class each, for zero-shot classification.
    objective : str
        What the model was trained with; decides how it scores pairs.

    Returns
    -------
    dict of str to float
        "zero_shot", "zero_shot_ensemble", "i2t_r1" ... "t2i_r10", "k_precision",
        "k_precision_na" (classes and colours alone), "miou_strict", "miou_foreground",
        "miou_present", "pointing", "duplicates" (share of captions that another image shares).

    Raises
    ------
    ValueError
        Unknown objective, or `singles` with several classes in a scene.
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"unknown objective {objective!r}; expected one of {OBJECTIVES}")
    if any(len(found) != 1 for found in singles.objects):
        raise ValueError("singles must show one class a scene: render them with max_classes=1")
    style = singles.config.caption_style
    seen, alone = embed(model, scenes), embed(model, singles)
    labels = torch.tensor([found[0].label for found in singles.objects])
    results = {}
    for name, ensemble in (("zero_shot", False), ("zero_shot_ensemble", True)):
        prompts = class_texts(model, style=style, ensemble=ensemble)
        lone = torch.ones(len(prompts), 1, dtype=torch.bool)
        picked = scores(objective, alone, prompts, prompts[:, None], lone).argmax(1)
        results[name] = float((picked == labels).double().mean())
    matrix = scores(objective, seen, seen.text, seen.tokens, seen.mask)
    results |= retrieval_recall(matrix)
    results |= _faithfulness(matrix, scenes)
    results |= _segmentation(class_scores(seen.patches, class_texts(model, style=style)), scenes)
    captions = [tuple(row) for row in scenes.tokens.tolist()]
    results["duplicates"] = sum(captions.count(c) > 1 for c in captions) / len(captions)
    return results


def _faithfulness(matrix: Tensor, scenes: Scenes) -> dict[str, float]:
    predicted = [Vocabulary.decode(scenes.tokens[j]) for j in matrix.argmax(1).tolist()]
    true = [
        {*Vocabulary.decode(scenes.tokens[i]), *(w for o in found for w in (CLASSES[o.label], o.colour))}
        for i, found in enumerate(scenes.objects)
    ]
    return {
        "k_precision": k_precision(predicted, true),
        "k_precision_na": k_precision(predicted, true, restrict_to={*CLASSES, *COLOURS}),
    }


def _segmentation(cosines: Tensor, scenes: Scenes) -> dict[str, float]:
    grid, size = (scenes.config.grid,) * 2, scenes.images.shape[1:3]
    cells = scenes.cells
    shown = (cells[..., None] == torch.arange(len(CLASSES))).any(1)
    among_all = upsample(cosines.argmax(-1), grid, size)
    among_own = upsample(cosines.masked_fill(~shown[:, None], -torch.inf).argmax(-1), grid, size)
    return {
        "miou_strict": mean_iou(among_all, scenes.segmentation),
        "miou_foreground": mean_iou(among_all, scenes.segmentation, background=False),
        "miou_present": mean_iou(among_own, scenes.segmentation, background=False),
        "pointing": pointing_accuracy(cosines, cells),
    }
