"""Numbers of the confusion probes: confidences, hits, prior bias, paralysis, MaxProb (probes spec B4, B5).

Pure functions on float64 arrays. Shape letters: N questions, C choices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Spread(NamedTuple):
    """A mean with its spread; NaN where there are too few values."""

    mean: float
    sd: float
    """With ddof 1."""
    se: float
    """sd / sqrt(n)."""
    n: int


def spread(values: Sequence[float] | np.ndarray) -> Spread:
    """Mean, standard deviation and standard error.

    >>> tuple(round(x, 7) for x in spread([0.72, 0.715, 0.725, 0.718, 0.722]))
    (0.72, 0.0038079, 0.0017029, 5)
    """
    x = np.asarray(values, dtype=np.float64)
    sd = float(x.std(ddof=1)) if len(x) > 1 else math.nan
    return Spread(float(x.mean()) if len(x) else math.nan, sd, sd / math.sqrt(max(1, len(x))), len(x))


def confidences(logit_NC: np.ndarray) -> np.ndarray:
    """Softmax over the choices: (N, C) float64."""
    shifted = np.asarray(logit_NC, dtype=np.float64)
    exp_NC = np.exp(shifted - shifted.max(1, keepdims=True))
    return np.asarray(exp_NC / exp_NC.sum(1, keepdims=True))


def at_label(confidence_NC: np.ndarray, label_N: np.ndarray) -> np.ndarray:
    """The confidence in the (pseudo-)correct slot: (N,)."""
    return np.asarray(confidence_NC[np.arange(len(label_N)), label_N])


def ranks(confidence_NC: np.ndarray, label_N: np.ndarray) -> np.ndarray:
    """Rank of the label from 0 by descending confidence; of equal ones the lower index goes first: (N,)."""
    own_N1 = at_label(confidence_NC, label_N)[:, None]
    before_NC = np.arange(confidence_NC.shape[1]) < label_N[:, None]
    return np.asarray(((confidence_NC > own_N1) | ((confidence_NC == own_N1) & before_NC)).sum(1))


def choice_variance(confidence_NC: np.ndarray, *, ddof: int = 0) -> np.ndarray:
    """Definition 1, prior bias: the variance of a question's confidences over its choices; (N,)."""
    return np.asarray(confidence_NC.var(1, ddof=ddof))


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
    acc_mixed: float
    """Share told right of the other half, originals and changed ones."""
    acc_perturbed_only: float
    """Share told right of its changed ones alone: the reading that Table 2's numbers below 1/2 allow."""
    n: int
    """Questions in the half that is told apart."""


def halves(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A random split of indices 0 to n - 1: training half (the smaller if n is odd), evaluation half."""
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[: n // 2]), np.sort(order[n // 2 :])


def maxprob(original_N: np.ndarray, changed_N: np.ndarray, train: np.ndarray, test: np.ndarray) -> MaxProb:
    """Threshold and accuracy from the greatest confidence of each question and of its changed version.

    Args:
        original_N: max over the choices, unchanged.
        changed_N: the same of the same questions, changed.
        train: indices that set the threshold.
        test: indices that are told apart; a question counts as original iff its maximum is greater.
    """
    tau = float(np.concatenate([original_N[train], changed_N[train]]).mean()) if len(train) else math.nan
    right_original, right_changed = original_N[test] > tau, changed_N[test] <= tau
    return MaxProb(
        tau,
        float(np.concatenate([right_original, right_changed]).mean()),
        float(right_changed.mean()),
        len(test),
    )
