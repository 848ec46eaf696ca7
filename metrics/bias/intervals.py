"""mu, eta and theta of one class of advice, or their change: intervals, and their values by chance.

They are means over subjects, or pairs of subjects, of |mean C| in each attribute: of the largest,
or of all. Noise raises them, so the value of a sample is too large on average. Noise of twice the
variance raises it further; a straight line through both, in the standard deviation, leads to the
value `extrapolated` to no noise. This is too small on average, as the value is a convex function of
the noise; it is right without preference, with one far above the noise, and with mixtures of these.
The interval reaches from below the extrapolated value to above the sample's.

Noise is made by random signs: of deviations from the means; for a model without preference, of the
scores, which swaps the two subjects of random groups.

Shape letters: N groups, E entries (a group, for each of its subjects), U units, C cells (a subject
or an ordered pair, with an attribute) in the order of subjects, X subjects or ordered pairs, R
draws, T the three noises of a draw.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from interventune.metrics.intervals import TINY, Floats, quantile

SEED = 0
DRAWS = 400
BLOCK = 4_000_000
"""Random signs at a time."""
WORK = 40_000_000
"""Limit on units over all draws: very many get fewer draws, but at least 100."""
LEAST = 10
"""Fewer units get no interval."""
BELOW = 0.025
ABOVE = 0.01
"""How often the interval of a value may lie above, or below the truth; that of a change: BELOW for
both.
"""
CHANCE = 0.95
"""The share of models without preference that get at most the upper end by chance."""

Ints = NDArray[np.int64]
Number = tuple[float, float, float, int, float]
"""A value and the ends of its interval (NaN: none), the number of seeds, and their standard
deviation.
"""


class ClassGroups(NamedTuple):
    """The N groups of one class."""

    c_N: Floats
    """C, from the perspective of the first subject."""
    c_normalised_N: Floats
    subject_NS: Ints
    attribute_N: Ints
    unit_N: Ints
    """Unit of each group, 0 to U - 1."""


def maxima(
    names: Iterable[str], *sides: Sequence[ClassGroups], paired: bool = False
) -> dict[str, tuple[Number, Number]]:
    """Compute some of mu, eta, theta and mu_normalised of one class: each with its interval and, as
    a second number, the mean that models without preference get on these groups, from 0 to what 95
    % of them get at most. With two sides, the same groups with other scores, by how much the
    second's are larger. A side has the groups of each of its seeds, over which the mean is taken;
    the interval covers them, seed by seed of both sides if they are `paired`.
    """
    units = max(int(groups.unit_N.max()) + 1 for groups in chain(*sides))
    draw = np.random.default_rng(SEED)
    statistics = {
        name: [[statistic(name, groups) for groups in side] for side in reversed(sides)]
        for name in names
    }
    drawn = {name: list[Floats]() for name in statistics}
    samples = dict[str, list[Floats]]()
    block = min(DRAWS, max(1, BLOCK // units))
    for _ in range(0, max(100, min(DRAWS, WORK // units)), block):
        sign_TUR = draw.choice([-1.0, 1.0], (3, units, block))
        # How large noise is, is only estimated, with about this error.
        sign_TUR[1:] *= np.exp(draw.normal(size=block) / math.sqrt(2 * units))
        for name, measures in statistics.items():
            by_side = [np.array([one(sign_TUR) for one in side]) for side in measures]
            drawn[name].append(np.subtract.reduce([side.mean(0) for side in by_side]))
            samples[name] = [side[:, 0, 0] for side in by_side]
    if paired:
        samples = {name: [np.subtract.reduce(by_side)] for name, by_side in samples.items()}
    return {
        name: summary(np.concatenate(parts, 1), units, samples[name], change=len(sides) > 1)
        for name, parts in drawn.items()
    }


def statistic(name: str, groups: ClassGroups) -> Callable[[Floats], Floats]:
    """Return a function of random signs of units (T, U, R) to the measure (5, R): of the sample;
    with noise; with this noise and a second, and with this and a third; of a model without
    preference.
    """
    c_N = {"eta": np.sign(groups.c_N), "mu_normalised": groups.c_normalised_N}.get(name, groups.c_N)
    row_E, other_E = np.concatenate([groups.subject_NS, groups.subject_NS[:, ::-1]]).T
    if name == "theta":
        row_E = row_E * (row_E.max() + 1) + other_E  # every pair twice, once from either side
    c_E = np.concatenate([c_N, -c_N])
    unit_E = np.tile(groups.unit_N, 2)
    attributes = int(groups.attribute_N.max()) + 1
    cell_C, cell_E = np.unique(
        row_E * attributes + np.tile(groups.attribute_N, 2), return_inverse=True
    )
    start_X, size_X = np.unique(cell_C // attributes, return_index=True, return_counts=True)[1:]
    size_E = np.bincount(cell_E)[cell_E]
    score_CU, share_CU = (
        csr_array((value_E, (cell_E, unit_E))) for value_E in (c_E / size_E, 1 / size_E)
    )
    mean_C1 = score_CU.sum(axis=1)[:, None]
    units_C1 = np.diff(share_CU.indptr)[:, None]

    def over_cells(mean_CR: Floats) -> Floats:
        if name == "eta":
            return np.asarray((np.add.reduceat(np.abs(mean_CR), start_X).T / size_X).mean(1))
        return np.asarray(np.maximum.reduceat(np.abs(mean_CR), start_X).mean(0))

    def noise(sign_UR: Floats) -> Floats:
        score_CR = score_CU @ sign_UR
        deviation_CR = score_CR - mean_C1 * (share_CU @ sign_UR)
        # Deviations from the sample's mean are too small. A single unit has none: all may be noise.
        wider_CR = deviation_CR * np.sqrt(units_C1 / np.maximum(units_C1 - 1, 1))
        return np.where(units_C1 > 1, wider_CR, score_CR)

    def measure(sign_TUR: Floats) -> Floats:
        once_CR, *others = (mean_C1 + noise(sign_UR) for sign_UR in sign_TUR)
        twice = (once_CR + other_CR - mean_C1 for other_CR in others)
        sample_CR = np.repeat(mean_C1, sign_TUR.shape[2], axis=1)
        return np.stack([*map(over_cells, (sample_CR, once_CR, *twice, score_CU @ sign_TUR[0]))])

    return measure


def extrapolated(once: Any, twice: Any) -> Any:
    """The value without noise, from values with noise of a variance and of twice this variance."""
    return once - (twice - once) / (math.sqrt(2) - 1)


def summary(
    drawn_5R: Floats, units: int, samples: Sequence[Floats], *, change: bool
) -> tuple[Number, Number]:
    """Return the value or change with its interval, and by chance. `samples` has the values of
    each seed: of both sides, or their differences.
    """
    (value, *_), once_R, *twice_2R, chance_R = drawn_5R
    chance = float(np.quantile(chance_R, CHANCE))
    error = once_R.std()
    if units < LEAST or error < TINY:
        low = high = math.nan
    else:
        below, above = (quantile(units, 1 - share) for share in (BELOW, BELOW if change else ABOVE))
        without = extrapolated(value, once_R.mean())
        # The two have the same first noise and independent second ones, which a covariance leaves
        # out.
        spread = math.sqrt(max(np.cov(extrapolated(once_R, np.array(twice_2R)))[0, 1], 0))
        low = max(min(without - below * spread, value - below * error), -1)
        high = min(max(without + above * spread, value + above * error), 1)
        if not change:
            # A value is at most the truth plus the value of the noise.
            low = max(low, value - chance) if value > chance else 0
    several = [sample_S for sample_S in samples if len(sample_S) > 1]
    deviation = math.nan
    seeds = 1
    if several:
        deviations, counts = np.array([(values.std(ddof=1), len(values)) for values in several]).T
        deviation = math.hypot(*deviations)
        seeds = int(counts.max())
        beyond = quantile(counts) * deviations / np.sqrt(counts)
        low = max(value - math.hypot(value - low, *beyond), -1 if change else 0)
        high = min(value + math.hypot(high - value, *beyond), 1)
    number = float(value), float(low), float(high), seeds, deviation
    return number, (float(chance_R.mean()), 0.0, chance, seeds, math.nan)
