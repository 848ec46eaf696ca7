"""Bias of one class of advice with 95 % intervals: bootstrap over groups, every aggregate on every resample.

A block of resamples goes through `aggregate` in place of the classes: its sums are those of the groups, each
as often as it was drawn. Pairs that no group compares are left out of the sums.

Shape letters: N groups, S the two subjects of a group, R resamples, X subjects, P pairs that occur,
A attributes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from metrics.bias.group_scores import GroupScores
from metrics.bias.sums import BiasResult, BiasSums, aggregate
from metrics.intervals import RESAMPLES, percentiles_of_each, resamples

WORK = 200_000_000
"""Groups and cells of all resamples: with very many groups, fewer resamples are drawn."""
FEWEST = 200
MAXIMA = frozenset(
    f"{name}_K" for name in ("mu", "eta", "theta", "mu_normalised", "eta_normalised", "theta_normalised")
)
"""Means of maxima and of absolute values, which resampling inflates, as few groups do: their intervals are
moved so that the median of the resamples lies on the value."""
MOST_KEPT = 20_000_000
"""Values by subject and attribute that are kept of all resamples, 160 MB; beyond, those get no interval."""


class BiasEstimate(NamedTuple):
    """Every aggregate of one class, on a leading axis of 1, and the ends of its interval (NaN: none)."""

    value: BiasResult
    low: BiasResult
    high: BiasResult
    resamples: int


class ClassGroups(NamedTuple):
    """The N groups of one class, as its aggregates see them."""

    scores: GroupScores
    subject_NS: Tensor
    attribute_N: Tensor
    num_subjects: int
    num_attributes: int

    def where(self, kept_N: Tensor) -> ClassGroups:
        """Some of the groups, by a mask."""
        scores = GroupScores(*(value[kept_N] for value in self.scores))
        return self._replace(
            scores=scores, subject_NS=self.subject_NS[kept_N], attribute_N=self.attribute_N[kept_N]
        )

    def renumbered(self) -> ClassGroups:
        """The same with ids for those subjects and attributes alone that occur, in their order: few groups of
        a large set are then aggregated as fast as a small set."""
        names_X, subject_NS = self.subject_NS.unique(return_inverse=True)
        names_A, attribute_N = self.attribute_N.unique(return_inverse=True)
        return ClassGroups(self.scores, subject_NS, attribute_N, len(names_X), len(names_A))


def num_resamples(groups: int, cells: int) -> int:
    """How many resamples are drawn: RESAMPLES, of very many groups at least 200."""
    return max(FEWEST, min(RESAMPLES, WORK // max(1, groups + cells)))


def estimate_bias(groups: ClassGroups, fields: Collection[str] = BiasResult._fields) -> BiasEstimate:
    """Every aggregate, those of `fields` with their intervals."""
    blocks = resampled_bias(groups)
    value = next(blocks)
    most = MOST_KEPT // RESAMPLES
    drawn: dict[str, list[Tensor]] = {
        name: []
        for name, like in zip(BiasResult._fields, value, strict=True)
        if name in fields and like.is_floating_point() and like.numel() <= most
    }
    for block in blocks:
        for name, parts in drawn.items():
            parts.append(getattr(block, name))
    low, high = (
        {name: torch.full(like.shape, torch.nan) for name, like in value._asdict().items()} for _ in (0, 1)
    )
    for name, parts in drawn.items():
        if parts:
            statistic = torch.cat(parts)
            if name in MAXIMA:
                moved = statistic - statistic.nanmedian() + getattr(value, name)
                statistic = moved.clamp(0, 1)
            ends = percentiles_of_each(statistic.numpy())
            low[name], high[name] = (torch.as_tensor(end)[None] for end in ends)
    count = max((sum(map(len, parts)) for parts in drawn.values()), default=0)
    return BiasEstimate(value, BiasResult(**low), BiasResult(**high), count)


def resampled_bias(groups: ClassGroups) -> Iterator[BiasResult]:
    """The aggregates of the groups themselves, then of resamples, a block (R, ...) at a time; of a single
    group there are no resamples."""
    subject_NS, attribute_N = groups.subject_NS.numpy(), groups.attribute_N.numpy()
    X, A, N = groups.num_subjects, groups.num_attributes, len(attribute_N)
    pair, pair_N = np.unique(subject_NS.min(1) * X + subject_NS.max(1), return_inverse=True)
    pair_2P = torch.from_numpy(np.stack([pair // X, pair % X]))
    P, side_N = len(pair), np.where(subject_NS[:, 0] < subject_NS[:, 1], 1.0, -1.0)
    c_N, c_normalised_N, delta_N, eps_N, mass_N = (value.numpy() for value in groups.scores)
    cell_N = pair_N * A + attribute_N
    order_N, ends = np.argsort(cell_N, kind="stable"), np.cumsum(np.bincount(cell_N, minlength=P * A))
    by_cell = [
        csr_array((value_N[order_N], order_N, np.concatenate([[0], ends])), shape=(P * A, N))
        for value_N in (
            c_N * side_N,
            np.sign(c_N) * side_N,
            c_normalised_N * side_N,
            np.sign(c_normalised_N) * side_N,
            np.ones(N),
        )
    ]
    whole_N4 = np.stack([np.abs(c_N), delta_N, eps_N, mass_N], axis=1)

    def result(weight_RN: NDArray[np.float64]) -> BiasResult:
        weight_NR = np.ascontiguousarray(weight_RN.T)  # many times as fast for the sparse products
        *sums, count_RPA = (
            torch.from_numpy(np.ascontiguousarray((matrix @ weight_NR).T)).view(-1, P, A)
            for matrix in by_cell
        )
        of_class = torch.from_numpy(weight_RN @ whole_N4).unbind(1)
        return aggregate(BiasSums(*[*sums, count_RPA.long(), *of_class]), X, pair_2P)

    yield result(np.ones((1, N)))
    if N > 1:
        yield from map(result, resamples(N, num_resamples(N, P * A), 4 * (P + X) * A))
