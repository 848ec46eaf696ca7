"""Numbers of the confusion probes: hits, prior bias, paralysis, MaxProb, t tests, irregularities of a set
(probes spec B4 to B6).

Pure functions on float64 arrays; confidences are a softmax over choices; p is NaN where the data admit no
test.

Shape letters: N questions, C choices.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

Z95 = 1.96
_WORD = re.compile(r"\w+")
"""The paper names no tokenisation for word overlap: ours is runs of word characters, in lower case."""


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


def t_welch(first: np.ndarray, second: np.ndarray) -> Significance:
    """Two-sided t of two samples of their own variances."""
    if min(len(first), len(second)) < 2 or (np.ptp(first) == 0 and np.ptp(second) == 0):
        return Significance(math.nan, math.nan, len(first) + len(second))
    found = stats.ttest_ind(first, second, equal_var=False)
    return Significance(float(found.statistic), float(found.pvalue), len(first) + len(second))


class Interval(NamedTuple):
    """A mean and its normal 95 % interval, mean ± 1.96 sd / sqrt(n), with ddof 1."""

    mean: float
    low: float
    high: float
    n: int


def interval(values: Sequence[float] | np.ndarray) -> Interval:
    """Mean and interval of at least two values.

    >>> tuple(round(x, 3) for x in interval([3, 5, 8, 4]))
    (5.0, 2.883, 7.117, 4)
    """
    x = np.asarray(values, dtype=np.float64)
    mean, half = float(x.mean()), Z95 * float(x.std(ddof=1)) / math.sqrt(len(x))
    return Interval(mean, mean - half, mean + half, len(x))


class Irregularities(NamedTuple):
    """What a set and a model's picks look like."""

    balance: tuple[float, ...]
    """Share of questions whose right choice stands in each slot."""
    selected: Interval
    """Length of the choices that the model picks, in words split at white space."""
    other: Interval
    """Of those that it does not."""
    length: Significance
    """Welch's t of both lengths."""
    overlap: float
    """Pearson's r of the frequencies of words shared with the prompt, in picked and in other choices."""
    vocabulary: int
    """Words in these frequencies."""
    n: int


def irregularities(
    prompts: Sequence[str], choices: Sequence[Sequence[str]], labels: Sequence[int], picks: Sequence[int]
) -> Irregularities:
    """Of questions as they are, with the slot that a model picks in each."""
    slots = max(map(len, choices))
    counts = np.bincount(np.asarray(labels), minlength=slots)
    lengths: tuple[list[int], list[int]] = ([], [])
    shared: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for prompt, texts, pick in zip(prompts, choices, picks, strict=True):
        words = set(_WORD.findall(prompt.lower()))
        for slot, text in enumerate(texts):
            lengths[slot != pick].append(len(text.split()))
            shared[slot != pick].update(word for word in _WORD.findall(text.lower()) if word in words)
    return Irregularities(
        balance=tuple(float(share) for share in counts / counts.sum()),
        selected=interval(lengths[0]),
        other=interval(lengths[1]),
        length=t_welch(np.array(lengths[0]), np.array(lengths[1])),
        overlap=frequency_correlation(*shared),
        vocabulary=len(shared[0].keys() | shared[1].keys()),
        n=len(prompts),
    )


def frequency_correlation(first: Counter[str], second: Counter[str]) -> float:
    """Pearson's r over the union of both vocabularies; NaN where one does not vary."""
    words = sorted(first.keys() | second.keys())
    x, y = (np.array([counts[word] for word in words], dtype=np.float64) for counts in (first, second))
    if len(words) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    return float(stats.pearsonr(x, y).statistic)
