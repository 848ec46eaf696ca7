"""Feature bias: calibrated predictions, and how often they follow either feature (Si et al. 2023).

Shape letters: K content-free texts, N texts, L labels (0 and 1), S strata.
"""

import numpy as np

from .intervals import Floats


def content_free(probability_KL: Floats) -> Floats:
    """The prediction for content-free texts: p_cf over the labels, shape (L,), from raw
    probabilities.

    Texts that give a label probability 0 are left out; the others are summed, divided by K, and
    normalised (the authors' code).

    Raises:
        ValueError: every text is left out. (The authors' code then predicts label 0 always.)
    """
    usable = probability_KL[(probability_KL > 0).all(axis=1)]
    if not len(usable):
        raise ValueError("no content-free text gives both labels a probability above 0")
    mean_L = usable.sum(axis=0) / len(probability_KL)
    return np.asarray(mean_L / mean_L.sum())


def calibrated(probability_NL: Floats, content_free_L: Floats) -> Floats:
    """Scores (N, L) = normalised p / p_cf: contextual calibration without a bias vector or another
    softmax.

    >>> calibrated(np.array([[0.6, 0.4]]), np.array([0.7, 0.3])).round(3).tolist()
    [[0.857, 1.333]]
    """
    total_N1 = probability_NL.sum(axis=1, keepdims=True)
    return np.asarray(probability_NL / np.where(total_N1 > 0, total_N1, 1.0) / content_free_L)


def stratum_weights(stratum_N: Floats) -> Floats:
    """Weights of texts (N,), with which a sum over texts, divided by that of the weights, is the
    mean over strata of their means, whatever their sizes: h1- or h2-accuracy, where a stratum is a
    cell of a task with one set of demonstrations (the authors' code).

    >>> stratum_weights(np.array([7, 7, 8]))
    array([0.5, 0.5, 1. ])
    """
    _, place_N, count_S = np.unique(stratum_N, return_inverse=True, return_counts=True)
    return np.asarray(1 / count_S[place_N])
