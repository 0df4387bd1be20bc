r"""Figures printed by the authors, to stand beside those measured here.

All from the public repository ``ai-chem/Nanomaterial_Morphology_Prediction`` at commit e19cf36:
its README and its result files. Each pair is (accuracy, macro-F1) as (mean, standard deviation).
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "COUNTS",
    "FOREST_ALL",
    "FOREST_FILTERED",
    "FOREST_TUNED",
    "LLM_ACCURACY",
    "LLM_SHOTS",
    "TEXT_FOREST",
]

Pair = tuple[tuple[float, float], tuple[float, float]]

#: Rows that carry each shape, syntheses, and syntheses with labels (README).
COUNTS: Mapping[str, int] = {
    "Cube": 140,
    "Stick": 84,
    "Sphere": 40,
    "Flat": 16,
    "Amorphous": 34,
    "syntheses": 215,
    "labelled": 209,
}

#: Default forests on all 29 columns (results_rf.csv, unoptimized).
FOREST_ALL: Mapping[str, Pair] = {
    "Cube": ((0.73, 0.03), (0.70, 0.04)),
    "Stick": ((0.74, 0.04), (0.73, 0.05)),
    "Sphere": ((0.84, 0.03), (0.70, 0.03)),
    "Flat": ((0.72, 0.15), (0.41, 0.06)),
    "Amorphous": ((0.80, 0.02), (0.62, 0.07)),
}

#: Default forests on the 22 filtered columns (results_rf_filtered.csv, unoptimized).
FOREST_FILTERED: Mapping[str, Pair] = {
    "Cube": ((0.74, 0.03), (0.71, 0.03)),
    "Stick": ((0.77, 0.03), (0.76, 0.03)),
    "Sphere": ((0.84, 0.01), (0.70, 0.04)),
    "Flat": ((0.77, 0.16), (0.45, 0.07)),
    "Amorphous": ((0.81, 0.04), (0.61, 0.10)),
}

#: Tuned forests (the README's headline table).
FOREST_TUNED: Mapping[str, Pair] = {
    "Cube": ((0.76, 0.02), (0.73, 0.03)),
    "Stick": ((0.78, 0.01), (0.77, 0.01)),
    "Sphere": ((0.82, 0.06), (0.67, 0.08)),
    "Flat": ((0.82, 0.11), (0.52, 0.09)),
    "Amorphous": ((0.80, 0.02), (0.62, 0.04)),
}

#: Accuracy of forests on BERT embeddings of the procedure, template 0 (result files).
TEXT_FOREST: Mapping[str, float] = {
    "Cube": 0.73,
    "Stick": 0.65,
    "Sphere": 0.77,
    "Flat": 0.55,
    "Amorphous": 0.79,
}

#: Accuracy of six chat models, ten examples, 20 % test rows (README, table 2), by recorded setting.
LLM_ACCURACY: Mapping[str, tuple[float, ...]] = {
    "gpt-4-0613_10_0.2_strict_text": (0.71, 0.68, 0.88, 0.90, 0.87),
    "mistral-small_10_0.2_strict_text": (0.76, 0.67, 0.77, 0.92, 0.88),
    "mistral-tiny_10_0.2_strict_text": (0.76, 0.71, 0.62, 0.81, 0.53),
    "mistral-medium_10_0.2_strict_text": (0.70, 0.71, 0.38, 0.89, 0.70),
    "gpt-3.5-turbo-1106_10_0.2_strict_text": (0.69, 0.62, 0.63, 0.90, 0.80),
    "gpt-4-turbo-preview_10_0.2_strict_text": (0.60, 0.61, 0.44, 0.91, 0.88),
}

#: Average accuracy of GPT-4 by number of examples, 20 % test rows (split_and_n_samples).
LLM_SHOTS: Mapping[int, float] = {4: 0.650, 8: 0.795, 10: 0.810}
