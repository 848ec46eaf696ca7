"""Bias of one class of advice, and its change, with 95 % intervals: a bootstrap over groups, or over units of
several groups, that recomputes every aggregate on every resample.

`aggregate` sees resamples in place of classes: the sums of a resample count each group as often as it was
drawn. Pairs of subjects that occur in no group are left out of the sums.

Shape letters: N groups, U units, S the two subjects of a group, R resamples, X subjects, P pairs that occur,
A attributes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from metrics.bias.group_scores import GroupScores
from metrics.bias.sums import BiasResult, BiasSums, aggregate
from metrics.intervals import RESAMPLES, Floats, percentiles, resamples

WORK = 200_000_000
"""Limit on groups and cells over all resamples: very many groups get fewer resamples, but at least 200."""
MAXIMA = ("mu_K", "eta_K", "theta_K", "mu_normalised_K")
"""Means of maxima and of absolute values. Resampling inflates them, as small samples do, so their intervals
are shifted until the median of the resamples equals the value."""
MOST_KEPT = 10_000
"""Largest number of values of one kind (such as by subject and attribute) whose resamples are all stored, 160
MB; larger kinds get no interval."""


class ClassGroups(NamedTuple):
    """The N groups of one class, as input of its aggregates."""

    scores: GroupScores
    subject_NS: NDArray[np.int64]
    attribute_N: NDArray[np.int64]
    num_subjects: int
    num_attributes: int
    unit_N: NDArray[np.int64]
    """Unit of each group, 0 to U - 1: units are drawn as a whole."""


class BiasEstimate(NamedTuple):
    """Aggregates of one class."""

    numbers: dict[str, Floats]
    """By field of `BiasResult`, without its first axis: value, low and high end (NaN: none), (3, ...)."""
    counts: BiasResult
    """Counts of the groups; the fields n give the number that each value is computed from."""
    resamples: int
    """Number of resamples drawn."""


def estimate_bias(fields: Collection[str], *sides: ClassGroups) -> BiasEstimate:
    """Aggregates of one class with their intervals. With two sides, how much the second differs: both must be
    the same groups in the same order with other scores, and share the resamples."""
    blocks = zip(*map(resampled_bias, sides), strict=True)
    whole, count = next(blocks), 0
    values = {name: _change(whole, name)[0] for name in fields}
    drawn = {name: list[Floats]() for name, value in values.items() if value.size <= MOST_KEPT}
    for block in blocks:
        count += len(block[0].n_K)
        for name, parts in drawn.items():
            parts.append(_change(block, name))
    numbers = dict[str, Floats]()
    for name, value in values.items():
        ends = np.full((2, *value.shape), np.nan)
        if drawn.get(name):
            statistic_R = np.concatenate(drawn[name])
            if name in MAXIMA:
                median = np.nanquantile(statistic_R, 0.5, method="lower")
                statistic_R = (statistic_R - median + value).clip(1 - len(sides), 1)
            ends = percentiles(statistic_R)
        numbers[name] = np.stack([value, *ends])
    return BiasEstimate(numbers, whole[0], count)


def _change(sides: Sequence[BiasResult], name: str) -> Floats:
    """An aggregate, or, of two sides, by how much the second differs."""
    first, *other = (np.asarray(getattr(side, name)) for side in sides)
    return other[0] - first if other else first


def resampled_bias(groups: ClassGroups) -> Iterator[BiasResult]:
    """Yield aggregates of the groups, then of resamples in blocks (R, ...); none for a single unit."""
    scores, subject_NS, attribute_N, X, A, unit_N = groups
    c_N, c_normalised_N, *whole = (value_N.numpy() for value_N in scores)
    pair, pair_N = np.unique(np.sort(subject_NS, axis=1) @ [X, 1], return_inverse=True)
    pair_2P, P, N = torch.from_numpy(np.stack(np.divmod(pair, X))), len(pair), len(c_N)
    side_N = np.where(subject_NS[:, 0] < subject_NS[:, 1], 1.0, -1.0)
    place = (pair_N * A + attribute_N, np.arange(N))
    of_cells = [
        csr_array((value_N, place), shape=(P * A, N))
        for value_N in (c_N * side_N, np.sign(c_N) * side_N, c_normalised_N * side_N, np.ones(N))
    ]
    whole_N4 = np.stack([np.abs(c_N), *whole], axis=1)

    def result(weight_RN: Floats) -> BiasResult:
        weight_NR = np.ascontiguousarray(weight_RN.T)  # makes the sparse products many times faster
        cells = [np.ascontiguousarray((matrix @ weight_NR).T).reshape(-1, P, A) for matrix in of_cells]
        return aggregate(BiasSums(*map(torch.from_numpy, (*cells, *(weight_RN @ whole_N4).T))), X, pair_2P)

    yield result(np.ones((1, N)))
    units = int(unit_N.max()) + 1
    count = max(200, min(RESAMPLES, WORK // (N + P * A)))
    # Small blocks fit the caches.
    for weight_RU in resamples(units, count, 32 * (P + X) * A) if units > 1 else ():
        yield result(weight_RU[:, unit_N])
