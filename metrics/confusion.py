"""Measures of the confusion probes (Shen and Kejriwal 2022): hits, prior bias, paralysis, MaxProb,
t tests.

Pure functions on float64 arrays; confidences are a softmax over choices; p is NaN if the data allow
no test.

Shape letters: N questions, C choices.
"""

import math

import numpy as np
from scipy import stats


def at_label(confidence_NC: np.ndarray, label_N: np.ndarray) -> np.ndarray:
    """The confidence in the (pseudo-)correct slot: (N,)."""
    return np.asarray(confidence_NC[np.arange(len(label_N)), label_N])


def ranks(confidence_NC: np.ndarray, label_N: np.ndarray) -> np.ndarray:
    """Rank of the label from 0 by descending confidence, (N,); of ties the lower index is first."""
    choice_NC = np.argsort(-confidence_NC, axis=1, kind="stable")
    return (choice_NC == label_N[:, None]).argmax(1)


def choice_variance(confidence_NC: np.ndarray) -> np.ndarray:
    """Definition 1, prior bias: the variance of a question's confidences over its choices, (N,)."""
    return np.asarray(confidence_NC.var(1))


def others_less_own(confidence_NC: np.ndarray, label_N: np.ndarray) -> np.ndarray:
    """Mean confidence in the other choices minus that in slot y, (N,). For no-right-answer (section
    3.2): ANC - RAC before the change (-1 if the model knows), ANC' - SAC after it (0 without bias;
    slot y has the substitute).
    """
    own_N = at_label(confidence_NC, label_N)
    return np.asarray((confidence_NC.sum(1) - own_N) / (confidence_NC.shape[1] - 1) - own_N)


def halves(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Split the indices 0 to n - 1 at random: training half (the smaller if n is odd), evaluation
    half.
    """
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[: n // 2]), np.sort(order[n // 2 :])


def maxprob(
    original_N: np.ndarray, changed_N: np.ndarray, train: np.ndarray, test: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Separate changed questions from originals by their highest confidence (section 3.3). Return
    the threshold tau, which is the mean of the two kinds in the training half, and which originals
    and which changed questions of the other half are classified correctly.

    The paper's accuracy may be over all of these, or over changed questions alone: only the second
    allows the numbers below 1/2 in its Table 2.

    Args:
        original_N: max over the choices, unchanged.
        changed_N: the same for the same questions, changed.
        train: indices that set the threshold.
        test: indices to classify; a question counts as original iff its maximum is greater.
    """
    tau = float(np.concatenate([original_N[train], changed_N[train]]).mean())
    return tau, original_N[test] > tau, changed_N[test] <= tau


def t_against(values: np.ndarray, expected: float) -> float:
    """Two-sided p of a one-sample t test of the mean; NaN for fewer than two values, or identical
    values.
    """
    x = np.asarray(values, dtype=np.float64)
    if len(x) < 2 or np.ptp(x) <= 1e-12 * max(1.0, float(np.abs(x).max())):
        return math.nan
    return float(stats.ttest_1samp(x, expected).pvalue)
