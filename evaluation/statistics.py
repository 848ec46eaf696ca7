"""Statistics of rows, their 95 % intervals over units and seeds, and their paired change between
two sets of rows.

    share("right", "em")             # the mean of a field that is in [0, 1]
    Statistic("accuracy gap", ("known", "biased"), lambda sums_RC: ...)
    OfRows("different answers", ("answer",), lambda rows: rows["answer"].nunique())
    Comparison("same answer", ("answer",), lambda rows, first: ...)

A `Statistic` is a function of sums over rows, so that leaving out a unit only needs its sums; the
others see all rows.

Shape letters: N rows, U units, C columns (the number of rows, then the fields), R sets of rows, P
parts (1, or 2 of a change), S seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from interventune.metrics.intervals import (
    TINY,
    combined,
    error_of_seeds,
    interval,
    interval_of_change,
    jackknife_error,
)

from .results import NO_INTERVAL, Estimate, Row

if TYPE_CHECKING:
    from pandas import DataFrame

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Statistic:
    """A function of sums over rows. A row counts if it has all fields.

    Args:
        heading: in tables and figures.
        fields: keys of a row: numbers or booleans.
        of: sums (R, C), the number of rows first, to (R,); by default the mean of the first field.
        n: the sum that is reported as n, as a function of the sums (C,); by default the number of
            rows.
        share: the mean of one field in [0, 1]: shown in percent.
        limits: the least and the largest value, for the interval; of a share 0 and 1.
        continuous: units that all agree do so by construction, and give no interval.
    """

    numeric: ClassVar[bool] = True
    """Whether the fields are numbers."""
    change_only: ClassVar[bool] = False
    """Whether only a change has a value."""
    most_parts: ClassVar[int] = 10**9
    """The jackknife leaves out one part of the units after the other: most have one unit each."""

    heading: str
    fields: tuple[str, ...]
    of: Callable[..., Any] = lambda sums_RC: sums_RC[:, 1] / sums_RC[:, 0]
    n: Callable[[Floats], float] = lambda sum_C: sum_C[0]
    share: bool = False
    limits: tuple[float, float] | None = None
    continuous: bool = False

    def columns(self, fields_NF: Floats) -> Floats:
        """Return the columns (N, C) of rows, given their fields."""
        return np.insert(fields_NF, 0, 1.0, axis=1)

    def leave_units_out(
        self, parts: Sequence[DataFrame], unit_N: Ints, units: int
    ) -> tuple[Floats, Floats]:
        """Compute the statistic of the rows; of two parts, how much larger it is in the first.

        Args:
            parts: the fields of the N rows, once or twice.
            unit_N: their units, 0 to U - 1.
            units: U.

        Returns:
            The values of all rows, then without each unit, (1 + U,); n of all rows, then of each
            unit, by part (P, 1 + U).
        """
        columns = (self.columns(part.to_numpy(dtype=np.float64)) for part in parts)
        by_column = (
            [np.bincount(unit_N, one_N, units) for one_N in each_NC.T] for each_NC in columns
        )
        sums_PUC = np.stack([np.stack(sums_CU, axis=1) for sums_CU in by_column])
        all_P1C = sums_PUC.sum(axis=1, keepdims=True)
        values = map(self.of, all_P1C - np.insert(sums_PUC, 0, 0, axis=1))
        n_PU = np.apply_along_axis(self.n, 2, np.concatenate([all_P1C, sums_PUC], axis=1))
        return np.subtract.reduce([*values]), n_PU


@dataclass(frozen=True)
class OfRows(Statistic):
    """A function `of` the table of all rows of a cell, with the fields, which may have any type."""

    numeric = False
    # With single units, the error of a quantile does not converge (Shao and Wu 1989).
    most_parts = 10

    def value(self, parts: Sequence[DataFrame]) -> float:
        """Return the value of rows or, of two parts, how much larger it is in the first."""
        return float(np.subtract.reduce([self.of(part) for part in parts]))

    def leave_units_out(
        self, parts: Sequence[DataFrame], unit_N: Ints, units: int
    ) -> tuple[Floats, Floats]:
        """See Statistic."""
        n_U = np.bincount(unit_N, minlength=units)
        values = [self.value(parts)]
        for unit in range(units):
            others = [part[unit_N != unit] for part in parts]
            # Undefined without the only unit.
            values.append(self.value(others) if units > 1 else math.nan)
        return np.array(values), np.tile(np.insert(n_U, 0, len(unit_N)), (len(parts), 1))


@dataclass(frozen=True)
class Comparison(OfRows):
    """A function `of` two tables of the same questions in the same order: of a later and of the
    first checkpoint, or value of a compared dimension.
    """

    change_only = True

    def value(self, parts: Sequence[DataFrame]) -> float:
        """Return the value of two parts."""
        return float(self.of(*parts))


def share(heading: str, field: str) -> Statistic:
    """The mean of a field in [0, 1]."""
    return Statistic(heading, (field,), share=True)


def estimate(statistic: Statistic, rows: DataFrame, first: DataFrame | None = None) -> Estimate:
    """Compute a statistic of rows with its interval over units; or its difference from that of the
    `first` rows, over the questions that both answered, where a unit has the rows of both sides.

    The rows of several seeds give the mean over them, with an interval over units and seeds. Two
    sides with the same seeds are compared seed by seed; otherwise units are paired, seeds are not.

    Args:
        statistic: the statistic to compute.
        rows: its fields (numbers as float64), and the column `unit`; rows without a field (NaN) are
            ignored. With a column `run`, those of several seeds.
        first: the same; rows with the same index have the same question, and no index occurs twice
            in a seed.
    """
    import pandas as pd

    fields = [*statistic.fields]
    # A wide table takes long to index.
    columns = [*dict.fromkeys((*fields, "unit", "run"))]
    sides = [
        by_seed(side.filter(columns).dropna(subset=fields))
        for side in (rows, first)
        if side is not None
    ]
    if first is not None and all(sides):
        if common := [seed for seed in sides[0] if seed in sides[1]]:  # at both steps of a run
            sides = [{seed: side[seed] for seed in common} for side in sides]
        indices = [part.index for side in reversed(sides) for part in side.values()]
        both = reduce(lambda one, other: one.intersection(other, sort=False), indices)
        sides = [{seed: part.loc[both] for seed, part in side.items()} for side in sides]
    later = [*sides[0].values()]
    if not (all(sides) and any(map(len, later))) or (first is None and statistic.change_only):
        return Estimate(math.nan, *NO_INTERVAL, 0, 0)
    code_N, names = pd.concat([part["unit"] for part in later]).factorize()
    jackknifed = min(len(names), statistic.most_parts)
    unit_SN = np.split(code_N % jackknifed, np.cumsum([*map(len, later)])[:-1])
    now, *before = ([part[fields] for part in side.values()] for side in sides)
    # Pairs of seeds: S of the later side with R of the first.
    grid: list[list[tuple[DataFrame, ...]]] = [[(part,)] for part in now]
    if before:
        alike = sides[0].keys() == sides[1].keys() or len(now) == len(before[0]) == 1
        starts = [[part] for part in before[0]] if alike else [before[0]] * len(now)
        grid = [[(part, one) for one in ones] for part, ones in zip(now, starts, strict=True)]
    with np.errstate(invalid="ignore", divide="ignore"):
        results = [
            [statistic.leave_units_out(parts, unit_N, jackknifed) for parts in pairs]
            for unit_N, pairs in zip(unit_SN, grid, strict=True)
        ]
        values_SRU = np.array([[values for values, _ in row] for row in results])
        n_PU = np.concatenate([n for row in results for _, n in row])
        counted_PU = n_PU[:, 1:] > 0
        units = int(counted_PU.all(axis=0).sum())
        values_SRU = values_SRU[..., np.insert(counted_PU.any(axis=0), 0, True)]
        value, *others = values_SRU.mean((0, 1))
        error = jackknife_error(value, np.array(others))
        t, seeds, seed_std = None, 1, math.nan
        groups = [group for group in (values_SRU.mean(1), values_SRU.mean(0)) if len(group) > 1]
        if groups:
            seeds = max(map(len, groups))
            seed_std = math.hypot(*(group[:, 0].std(ddof=1) for group in groups))
            # One unit has no error: the interval covers the seeds.
            several = counted_PU.shape[1] if units > 1 else 0
            own = [
                (error_of_seeds(group[:, 0], group[:, 1 : 1 + several]), len(group))
                for group in groups
            ]
            error, t = combined((error, units) if units > 1 else (0.0, 2), *own)
        if first is None or statistic.change_only:
            limits = (0, 1) if statistic.share else statistic.limits
            if statistic.continuous and error < TINY:
                limits = None
            ends = interval(value, error, units, limits, t)
        elif statistic.share:
            now_N, first_N = (
                np.mean([part[fields[0]] for part in side], 0) for side in (now, before[0])
            )
            squares = now[0].to_numpy(np.float64, copy=True)
            squares[:, 0] = np.square(now_N - first_N)
            (square,) = statistic.of(statistic.columns(squares).sum(0, keepdims=True))
            ends = interval_of_change(value, error, square, units, t)
        else:
            width = np.ptp(statistic.limits) if statistic.limits else math.inf
            bounded = width < math.inf and error > TINY  # units that agree give no interval
            ends = interval(value, error, units, (-width, width) if bounded else None, t)
    low, high = map(float, ends)
    if jackknifed < len(names):  # each part has several units
        units = len(names)
    return Estimate(float(value), low, high, int(n_PU[:, 0].min()), units, seeds, seed_std)


def by_seed(rows: DataFrame) -> dict[Any, DataFrame]:
    """The rows of each seed; without a column `run`, they are of one."""
    return dict(iter(rows.groupby("run", sort=False))) if "run" in rows else {"": rows}


def compared(
    rows: DataFrame, along: str, start: str, by: Sequence[str]
) -> Iterator[tuple[Row, DataFrame, DataFrame]]:
    """Pair the rows with the value `start` of a dimension with those of each other value, by the
    other dimensions of a cell, and yield them with the place of their change.
    """
    same = [name for name in by if name != along]
    against = start if along == "checkpoint" else f"{along}={start}"
    for values, part in rows.groupby(same, sort=False) if same else [((), rows)]:
        sides = dict(iter(part.groupby(along, sort=False)))
        for other in [name for name in sides if name != start and start in sides]:
            place = dict(zip(same, values, strict=True)) | {along: other, "against": against}
            yield place, sides[start], sides[other]
