"""Numbers of the confusion probes: hits, prior bias, paralysis, MaxProb, t tests (probes spec B4, B5).

Pure functions on float64 arrays; confidences are a softmax over choices; p is NaN where the data admit no
test.

Shape letters: N questions, C choices.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats


def at_label(confidence_NC: np.ndarray, label_N: np.ndarray) -> np.ndarray:
    """The confidence in the (pseudo-)correct slot: (N,)."""
    return np.asarray(confidence_NC[np.arange(len(label_N)), label_N])


def ranks(confidence_NC: np.ndarray, label_N: np.ndarray) -> np.ndarray:
    """Rank of the label from 0 by descending confidence; of equal ones the lower index goes first: (N,)."""
    own_N1 = at_label(confidence_NC, label_N)[:, None]
    before_NC = np.arange(confidence_NC.shape[1]) < label_N[:, None]
    return np.asarray(((confidence_NC > own_N1) | ((confidence_NC == own_N1) & before_NC)).sum(1))


def choice_variance(confidence_NC: np.ndarray) -> np.ndarray:
    """Definition 1, prior bias: the variance of a question's confidences over its choices; (N,)."""
    return np.asarray(confidence_NC.var(1))


def others_less_own(confidence_NC: np.ndarray, label_N: np.ndarray) -> np.ndarray:
    """The mean confidence in the other choices less that in slot y, (N,): of no-right-answer ANC - RAC before
    (-1 for a model that knows), and ANC' - SAC after (0 without bias), when slot y holds the substitute."""
    own_N = at_label(confidence_NC, label_N)
    return np.asarray((confidence_NC.sum(1) - own_N) / (confidence_NC.shape[1] - 1) - own_N)


def halves(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A random split of indices 0 to n - 1: training half (the smaller if n is odd), evaluation half."""
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[: n // 2]), np.sort(order[n // 2 :])


def maxprob(
    original_N: np.ndarray, changed_N: np.ndarray, train: np.ndarray, test: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Telling changed questions from originals by the greatest confidence (spec B5): the threshold tau, the
    mean of both kinds in the training half; and which originals, and changed ones, of the other half are told
    right.

    The paper's accuracy is that of all outcomes, or of changed questions alone: only the second allows the
    numbers below 1/2 in its Table 2.

    Args:
        original_N: max over the choices, unchanged.
        changed_N: the same of the same questions, changed.
        train: indices that set the threshold.
        test: indices that are told apart; a question counts as original iff its maximum is greater.
    """
    tau = float(np.concatenate([original_N[train], changed_N[train]]).mean())
    return tau, original_N[test] > tau, changed_N[test] <= tau


def t_against(values: np.ndarray, expected: float) -> float:
    """Two-sided p of a one-sample t test of the mean; NaN for fewer than two values, or values all alike."""
    x = np.asarray(values, dtype=np.float64)
    if len(x) < 2 or np.ptp(x) <= 1e-12 * max(1.0, float(np.abs(x).max())):
        return math.nan
    return float(stats.ttest_1samp(x, expected).pvalue)
