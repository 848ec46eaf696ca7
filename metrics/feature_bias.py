"""Feature bias: calibrated predictions, and how often they follow one feature or the other.

Shape letters: K content-free texts, N texts, L the two labels 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def content_free(probability_KL: Array) -> Array:
    """What a model answers to nothing: p_cf over the labels, shape (L,), from raw label probabilities.

    Texts for which a label has probability 0 are left out; the others are summed, divided by K, and
    normalised (probes spec C5).

    Raises:
        ValueError: every text is left out. (The authors' code then predicts label 0 always.)
    """
    kept = probability_KL[(probability_KL > 0).all(axis=1)]
    if not len(kept):
        raise ValueError("no content-free text gives both labels a probability above 0")
    mean_L = kept.sum(axis=0) / len(probability_KL)
    return np.asarray(mean_L / mean_L.sum())


def calibrated(probability_NL: Array, content_free_L: Array) -> Array:
    """Scores (N, L) = normalised p / p_cf: contextual calibration without a bias vector or another softmax.

    >>> calibrated(np.array([[0.6, 0.4]]), np.array([0.7, 0.3])).round(3).tolist()
    [[0.857, 1.333]]
    """
    total_N1 = probability_NL.sum(axis=1, keepdims=True)
    return np.asarray(probability_NL / np.where(total_N1 > 0, total_N1, 1.0) / content_free_L)


def predicted(score_NL: Array) -> NDArray[np.int64]:
    """The label with the higher score, (N,); 0 where they are equal."""
    return np.asarray(score_NL.argmax(axis=1))


class FeatureAccuracy(NamedTuple):
    """Shares in [0, 1] over the disambiguating cells."""

    h1: float
    h2: float
    """1 - h1: where the features differ, a prediction follows one of them."""
    sd: float
    """Standard deviation (ddof 1) of h1, and of h2, over seeds; NaN for one seed."""
    se: float
    """Standard error over texts of one seed's h1 (its mean over seeds), if texts were drawn at random."""
    seeds: int


def feature_accuracy(
    one_10: Sequence[float], one_01: Sequence[float], n_10: Sequence[int] = (), n_01: Sequence[int] = ()
) -> FeatureAccuracy:
    """h1- and h2-accuracy: the mean over seeds and over the two cells, whatever their sizes (probes spec C1).

    Args:
        one_10: the share predicted 1 in the cell with h1 = 1 and h2 = 0, one per seed.
        one_01: the same for h1 = 0 and h2 = 1.
        n_10: texts in that cell, one per seed; for the standard error only.
        n_01: the same for the other.

    Returns:
        NaN wherever a cell of a seed has no share.

    >>> feature_accuracy([0.8, 0.7], [0.3, 0.2])[:2]
    (0.75, 0.25)
    """
    h1_S = (np.asarray(one_10, float) + 1 - np.asarray(one_01, float)) / 2
    if not len(h1_S):
        return FeatureAccuracy(math.nan, math.nan, math.nan, math.nan, 0)
    variances = [
        (p * (1 - p) / n + q * (1 - q) / m) / 4
        for p, q, n, m in zip(one_10, one_01, n_10, n_01, strict=False)
        if n and m
    ]
    error = float(np.sqrt(variances).mean()) if variances else math.nan
    h1 = float(h1_S.mean())
    spread = float(h1_S.std(ddof=1)) if len(h1_S) > 1 else math.nan
    return FeatureAccuracy(h1, 1 - h1, spread, error, len(h1_S))
