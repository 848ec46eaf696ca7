"""Bias of one class of advice, and its change, with 95 % intervals: bootstrap over groups, or over units of
several groups, every aggregate on every resample.

A block of resamples goes through `aggregate` in place of the classes: its sums are those of the groups, each
as often as it was drawn. Pairs that no group compares are left out of the sums.

Shape letters: N groups, U units, S the two subjects of a group, R resamples, X subjects, P pairs that occur,
A attributes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
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
MAXIMA = ("mu_K", "eta_K", "theta_K", "mu_normalised_K")
"""Means of maxima and of absolute values, which resampling inflates, as few groups do: their intervals are
moved so that the median of the resamples lies on the value."""
MOST_KEPT = 20_000_000
"""Values by subject and attribute that are kept of all resamples, 160 MB; beyond, those get no interval."""


class BiasEstimate(NamedTuple):
    """Every aggregate of one class, on a leading axis of 1, and the ends of its interval (NaN: none)."""

    value: BiasResult
    low: BiasResult
    high: BiasResult
    drawn: Mapping[str, Tensor]
    """Of each resample (R, ...), those that have no axis of attributes."""

    @property
    def resamples(self) -> int:
        """How many were drawn."""
        return max(map(len, self.drawn.values()), default=0)


class ClassGroups(NamedTuple):
    """The N groups of one class, as its aggregates see them."""

    scores: GroupScores
    subject_NS: NDArray[np.int64]
    attribute_N: NDArray[np.int64]
    num_subjects: int
    num_attributes: int
    unit_N: NDArray[np.int64] | None = None
    """Numbers 0 to U - 1 of what is drawn together; by default each group is a unit."""


def num_resamples(groups: int, cells: int) -> int:
    """How many resamples are drawn: RESAMPLES, of very many groups at least 200."""
    return max(FEWEST, min(RESAMPLES, WORK // max(1, groups + cells)))


def estimate_bias(groups: ClassGroups, fields: Collection[str] = BiasResult._fields) -> BiasEstimate:
    """Every aggregate, those of `fields` with their intervals."""
    blocks = resampled_bias(groups, fields)
    value = next(blocks)
    most = MOST_KEPT // RESAMPLES
    drawn: dict[str, list[Tensor]] = {
        name: [] for name in fields if name[:2] != "n_" and getattr(value, name).numel() <= most
    }
    for block in blocks:
        for name, parts in drawn.items():
            parts.append(getattr(block, name))
    return _with_ends(value, drawn, 0)


def bias_change(first: BiasEstimate, other: BiasEstimate) -> BiasEstimate:
    """By how much `other` differs from `first`, an estimate of the same groups in the same order with other
    scores, so that both are of the same resamples; without the aggregates by attribute."""
    value = (
        new - old if new.is_floating_point() else new
        for new, old in zip(other.value, first.value, strict=True)
    )
    drawn = {name: [other.drawn[name] - first.drawn[name]] for name in other.drawn}
    return _with_ends(BiasResult(*value), drawn, -1)


def _with_ends(value: BiasResult, drawn: Mapping[str, list[Tensor]], least: float) -> BiasEstimate:
    """An estimate of at least `least` out of the blocks of its resamples, which are used up."""
    low, high = (
        {name: torch.full(like.shape, torch.nan) for name, like in value._asdict().items()} for _ in (0, 1)
    )
    kept = {}
    for name, parts in drawn.items():
        if not parts:  # of a single unit
            continue
        statistic = torch.cat(parts)
        parts.clear()
        if not name.endswith("A"):
            kept[name] = statistic
        if name in MAXIMA:
            moved = statistic - statistic.nanmedian() + getattr(value, name)
            statistic = moved.clamp(least, 1)
        ends = percentiles_of_each(statistic.numpy())
        low[name], high[name] = (torch.as_tensor(end)[None] for end in ends)
    return BiasEstimate(value, BiasResult(**low), BiasResult(**high), kept)


def resampled_bias(groups: ClassGroups, fields: Collection[str] = BiasResult._fields) -> Iterator[BiasResult]:
    """Aggregates of the groups themselves, then of resamples, a block (R, ...) at a time; of a single unit
    there are no resamples."""
    subject_NS, attribute_N = groups.subject_NS, groups.attribute_N
    X, A, N = groups.num_subjects, groups.num_attributes, len(attribute_N)
    pair, pair_N = np.unique(subject_NS.min(1) * X + subject_NS.max(1), return_inverse=True)
    pair_2P = torch.from_numpy(np.stack([pair // X, pair % X]))
    P, side_N = len(pair), np.where(subject_NS[:, 0] < subject_NS[:, 1], 1.0, -1.0)
    c_N, c_normalised_N, delta_N, eps_N, mass_N = (value.numpy() for value in groups.scores)
    cell_N = pair_N * A + attribute_N
    order_N, ends = np.argsort(cell_N, kind="stable"), np.cumsum(np.bincount(cell_N, minlength=P * A))
    value_of = {"c_KPA": c_N, "c_normalised_KPA": c_normalised_N}
    if any(field.startswith("eta") for field in fields):
        value_of["sign_KPA"] = np.sign(c_N)
    if "mu_normalised_K" not in fields:
        del value_of["c_normalised_KPA"]
    signed = {name: value_N * side_N for name, value_N in value_of.items()}
    by_cell = {
        name: csr_array((value_N[order_N], order_N, np.concatenate([[0], ends])), shape=(P * A, N))
        for name, value_N in {**signed, "count_KPA": np.ones(N)}.items()
    }
    whole_N4 = np.stack([np.abs(c_N), delta_N, eps_N, mass_N], axis=1)

    def result(weight_RN: NDArray[np.float64]) -> BiasResult:
        weight_NR = np.ascontiguousarray(weight_RN.T)  # many times as fast for the sparse products
        sums = dict.fromkeys(BiasSums._fields, torch.empty(0))
        for name, matrix in by_cell.items():
            sums[name] = torch.from_numpy(np.ascontiguousarray((matrix @ weight_NR).T)).view(-1, P, A)
        sums["count_KPA"] = sums["count_KPA"].long()
        of_class = torch.from_numpy(weight_RN @ whole_N4).unbind(1)
        sums |= zip(("abs_c_K", "delta_K", "eps_K", "mass_K"), of_class, strict=True)
        return aggregate(BiasSums(**sums), X, pair_2P, fields)

    yield result(np.ones((1, N)))
    units = N if groups.unit_N is None else int(groups.unit_N.max()) + 1
    # Small blocks stay in the caches.
    for weight_RU in resamples(units, num_resamples(N, P * A), 32 * (P + X) * A) if units > 1 else ():
        yield result(weight_RU if groups.unit_N is None else weight_RU[:, groups.unit_N])
