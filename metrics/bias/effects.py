"""What advice does to |C|: ratios of means, with intervals whose unit is the question.

A question counts once without advice and once with each piece of advice. A resample draws questions, each
with all that was measured of it, so that both sides of a ratio are of one draw.

    carry     = |C| under advice about the subjects' domain / |C| without advice
    kept      = |C| under advice about another domain, or none / |C| without advice
    scope gap = kept - carry, of ethical advice

Source: this project (LEI asks whether irrelevant advice is ignored; these say by how much it is not).

Shape letters: E measured values, K cells that have a mean each, J statistics, Q questions, R resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from metrics.bias.intervals import num_resamples
from metrics.intervals import percentiles_of_each, resamples

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST = 1e-6
"""|C| without advice below it is rounding: ratios to it would tell nothing."""


class Statistics(NamedTuple):
    """Statistics (J,) with the ends of their intervals; NaN where there is none."""

    value_J: Floats
    low_J: Floats
    high_J: Floats


def of_means(
    value_E: Floats,
    cell_E: Ints,
    question_E: Ints,
    cells: int,
    statistic: Callable[[Floats], Floats] = lambda mean_RK: mean_RK,
) -> Statistics:
    """Statistics of the means of cells, with 95 % bootstrap intervals over questions.

    Args:
        value_E: what was measured; a value that counts in several cells stands here as often.
        cell_E: 0 to `cells` - 1.
        question_E: ids, any whole numbers.
        cells: K.
        statistic: means (R, K), NaN for a cell that a resample does not hit, to statistics (R, J), which do
            not count where they are not finite. Default: the means themselves.
    """
    names_Q, number_E = np.unique(question_E, return_inverse=True)
    shape = (cells, len(names_Q))
    total_KQ, count_KQ = (
        csr_array((value, (cell_E, number_E)), shape=shape) for value in (value_E, np.ones_like(value_E))
    )

    def drawn(weight_RQ: Floats) -> Floats:
        weight_QR = np.ascontiguousarray(weight_RQ.T)
        with np.errstate(invalid="ignore", divide="ignore"):
            return statistic(((total_KQ @ weight_QR) / (count_KQ @ weight_QR)).T)

    value_J = drawn(np.ones((1, shape[1])))[0]
    if shape[1] < 2:
        return Statistics(value_J, np.full_like(value_J, np.nan), np.full_like(value_J, np.nan))
    blocks = resamples(shape[1], num_resamples(len(value_E), cells), width=4 * cells)
    return Statistics(value_J, *percentiles_of_each(np.concatenate([drawn(block) for block in blocks])))


def advice_effects(
    value_E: Floats,
    cell_E: Ints,
    question_E: Ints,
    advised_J: Sequence[int],
    unadvised_J: Sequence[int],
    gaps: Sequence[tuple[int, int]] = (),
) -> Statistics:
    """What advice leaves of a measure, as carry and kept, and the gaps between these.

    Args:
        value_E, cell_E, question_E: |C| of groups, as in `of_means`.
        advised_J, unadvised_J: the cells above and below the line of each ratio; NaN where the lower is below
            `LEAST`.
        gaps: pairs (kept, carry) of ratios: the first less the second.

    Returns:
        The J ratios, then the gaps.
    """
    above_J, below_J = np.asarray(advised_J, dtype=int), np.asarray(unadvised_J, dtype=int)
    kept, carried = np.asarray(gaps, dtype=int).reshape(-1, 2).T

    def statistic(mean_RK: Floats) -> Floats:
        below_RJ = mean_RK[:, below_J]
        ratio_RJ = mean_RK[:, above_J] / np.where(below_RJ > LEAST, below_RJ, np.nan)
        return np.concatenate([ratio_RJ, ratio_RJ[:, kept] - ratio_RJ[:, carried]], axis=1)

    cells = int(np.concatenate([cell_E, above_J, below_J]).max()) + 1
    return of_means(value_E, cell_E, question_E, cells, statistic)
