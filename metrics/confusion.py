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


def others_less_own(confidence_NC: np.ndarray, label_N: np.ndarray) -> np.ndarray:
    """Mean confidence in the other choices minus that in slot y, (N,). For no-right-answer (section
    3.2): ANC - RAC before the change (-1 if the model knows), ANC' - SAC after it (0 without bias;
    slot y has the substitute).
    """
    own_N = at_label(confidence_NC, label_N)
    return np.asarray((confidence_NC.sum(1) - own_N) / (confidence_NC.shape[1] - 1) - own_N)


def maxprob(original_NC: np.ndarray, changed_NC: np.ndarray) -> dict[str, np.ndarray]:
    """Separate changed questions from originals by their highest confidence (section 3.3). A random
    half of the questions (the smaller if their number is odd) sets the threshold tau, the mean of
    the two kinds; the numbers are NaN for them, and (N,) for all.

    The paper's accuracy may be over originals and changed questions (`acc_mixed`), or over changed
    questions alone (`acc_perturbed_only`): only the second allows the numbers below 1/2 in its
    Table 2.

    Args:
        original_NC: confidences in the choices of the originals. The highest is rounded to twelve
            decimals, so that the order of choices does not matter.
        changed_NC: the same for the same questions, changed.
    """
    original_N = original_NC.max(1).round(12)
    changed_N = changed_NC.max(1).round(12)
    place_N = np.argsort(np.random.default_rng(0).permutation(len(original_N)))
    train_N = place_N < len(original_N) // 2
    tau = np.concatenate([original_N[train_N], changed_N[train_N]]).mean()
    right_N = np.array([original_N > tau, changed_N <= tau])
    numbers = {"tau": tau, "acc_perturbed_only": right_N[1], "acc_mixed": right_N.mean(0)}
    return {name: np.where(train_N, np.nan, value_N) for name, value_N in numbers.items()}


def t_against(values: np.ndarray, expected: float) -> float:
    """Two-sided p of a one-sample t test of the mean; NaN for fewer than two values, or identical
    values.
    """
    x = np.asarray(values, dtype=np.float64)
    if len(x) < 2 or np.ptp(x) <= 1e-12 * max(1.0, float(np.abs(x).max())):
        return math.nan
    return float(stats.ttest_1samp(x, expected).pvalue)
