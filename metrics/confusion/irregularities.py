"""Irregularities of a multiple-choice set and of what a model picks there (probes spec B6).

The paper names no tokenisation for word overlap: ours is runs of word characters, in lower case.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from metrics.confusion.significance import Significance, t_welch

_WORD = re.compile(r"\w+")
Z95 = 1.96


class Interval(NamedTuple):
    """A mean and its normal 95 % interval, mean ± 1.96 sd / sqrt(n), with ddof 1."""

    mean: float
    low: float
    high: float
    n: int


def interval(values: Sequence[float] | np.ndarray) -> Interval:
    """Mean and interval; NaN where there are too few values.

    >>> tuple(round(x, 3) for x in interval([3, 5, 8, 4]))
    (5.0, 2.883, 7.117, 4)
    """
    x = np.asarray(values, dtype=np.float64)
    mean = float(x.mean()) if len(x) else math.nan
    half = Z95 * float(x.std(ddof=1)) / math.sqrt(len(x)) if len(x) > 1 else math.nan
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
