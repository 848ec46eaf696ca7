"""Numbers of the confusion probes: hits, prior bias, paralysis, MaxProb, t tests (probes spec B4, B5).

Pure functions on float64 arrays; confidences are a softmax over choices; p is NaN where the data admit no
test.

Shape letters: N questions, C choices.
"""

from __future__ import annotations

import math
from typing import NamedTuple

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


def paralysis(pre_N: np.ndarray, post_N: np.ndarray) -> np.ndarray:
    """Definition 2 with the sign of the paper's words: how much confidence in the right choice is lost; (N,).

    The paper's formula is the negative of it (spec B4).
    """
    return np.asarray(pre_N - post_N)


class Substitution(NamedTuple):
    """No-right-answer, per question (N,): slot y holds the substitute."""

    anc: np.ndarray
    """Mean confidence in the other choices before."""
    anc_post: np.ndarray
    """ANC', the same after."""
    rac: np.ndarray
    """Confidence in the right choice before."""
    sac: np.ndarray
    """Confidence in its substitute after."""

    @property
    def anc_post_minus_sac(self) -> np.ndarray:
        """ANC' - SAC; 0 without bias."""
        return np.asarray(self.anc_post - self.sac)

    @property
    def anc_minus_rac(self) -> np.ndarray:
        """ANC - RAC; -1 for a model that knows."""
        return np.asarray(self.anc - self.rac)


def substitution(pre_NC: np.ndarray, post_NC: np.ndarray, label_N: np.ndarray) -> Substitution:
    """The four confidences of no-right-answer."""
    rac_N, sac_N = at_label(pre_NC, label_N), at_label(post_NC, label_N)
    others = pre_NC.shape[1] - 1
    return Substitution(
        anc=(pre_NC.sum(1) - rac_N) / others,
        anc_post=(post_NC.sum(1) - sac_N) / others,
        rac=rac_N,
        sac=sac_N,
    )


class MaxProb(NamedTuple):
    """Telling changed questions from originals by the greatest confidence (spec B5)."""

    tau: float
    """Threshold: the mean of the greatest confidences of both kinds in the training half."""
    right_original: np.ndarray
    """Whether each original of the other half is above it."""
    right_changed: np.ndarray
    """Whether each changed question of the other half is not above it."""


def halves(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A random split of indices 0 to n - 1: training half (the smaller if n is odd), evaluation half."""
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[: n // 2]), np.sort(order[n // 2 :])


def maxprob(original_N: np.ndarray, changed_N: np.ndarray, train: np.ndarray, test: np.ndarray) -> MaxProb:
    """Threshold and outcomes from the greatest confidence of each question and of its changed version.

    The paper's accuracy is that of all outcomes, or of changed questions alone: only the second allows the
    numbers below 1/2 in its Table 2.

    Args:
        original_N: max over the choices, unchanged.
        changed_N: the same of the same questions, changed.
        train: indices that set the threshold.
        test: indices that are told apart; a question counts as original iff its maximum is greater.
    """
    tau = float(np.concatenate([original_N[train], changed_N[train]]).mean())
    return MaxProb(tau, original_N[test] > tau, changed_N[test] <= tau)


class Significance(NamedTuple):
    """Statistic, p-value and number of observations."""

    statistic: float
    p: float
    n: int


def t_against(values: np.ndarray, expected: float) -> Significance:
    """Two-sided one-sample t of the mean; NaN for fewer than two values, or for values that are all alike."""
    x = np.asarray(values, dtype=np.float64)
    if len(x) < 2 or np.ptp(x) <= 1e-12 * max(1.0, float(np.abs(x).max())):
        return Significance(math.nan, math.nan, len(x))
    found = stats.ttest_1samp(x, expected)
    return Significance(float(found.statistic), float(found.pvalue), len(x))
