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


def maxprob(before_N: np.ndarray, after_N: np.ndarray) -> dict[str, np.ndarray]:
    """Separate changed questions from originals by their highest confidence (section 3.3), in a
    random half of the questions, as in Table 2; NaN for the others, which set the threshold.
    Confidences are rounded to twelve decimals, so that the order of choices does not matter.

    The paper's accuracy may be over all of these, or over changed questions alone: only the second
    allows the numbers below 1/2 in its Table 2.

    Args:
        before_N: max over the choices, unchanged.
        after_N: the same for the same questions, changed.

    Returns:
        tau, the threshold: the mean of both kinds in the first half (the smaller if N is odd);
        whether the changed question is classified correctly, which counts as original iff its
        maximum is greater; the share of correct ones of the question and its original.
    """
    before_N, after_N = before_N.round(12), after_N.round(12)
    order_N = np.random.default_rng(0).permutation(len(before_N))
    train = np.sort(order_N[: len(order_N) // 2])
    tau = np.concatenate([before_N[train], after_N[train]]).mean()
    changed_N = after_N <= tau
    outcomes = {
        "tau": np.full(len(order_N), tau),
        "acc_perturbed_only": changed_N * 1.0,
        "acc_mixed": ((before_N > tau) * 1.0 + changed_N) / 2,
    }
    for outcome_N in outcomes.values():
        outcome_N[train] = np.nan
    return outcomes


def t_against(values: np.ndarray, expected: float) -> float:
    """Two-sided p of a one-sample t test of the mean; NaN for fewer than two values, or identical
    values.
    """
    x = np.asarray(values, dtype=np.float64)
    if len(x) < 2 or np.ptp(x) <= 1e-12 * max(1.0, float(np.abs(x).max())):
        return math.nan
    return float(stats.ttest_1samp(x, expected).pvalue)
