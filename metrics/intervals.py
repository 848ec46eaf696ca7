"""95 % intervals over independent units, such as the texts that questions are about, and over
seeds: several trainings of one model.

Standard errors are those of the jackknife, which leaves out one unit with all its rows at a time.
Quantiles are Student's t, with one degree of freedom less than there are units.

Shape letters: U units, S seeds.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
TINY = 1e-9
"""Standard errors below this are rounding: all units agree."""

Floats = NDArray[np.float64]


def quantile(units: Any, level: float = (1 + LEVEL) / 2) -> Any:
    """A quantile of Student's t for so many units; NaN for one."""
    from scipy.special import stdtrit  # slow to import

    return stdtrit(units - 1.0, level)


def jackknife_error(value: Any, without_U: Floats) -> Any:
    """The standard error of a statistic, from its values without each of the units, along the first
    axis; NaN if it is undefined without one of them.
    """
    square = (1 - 1 / max(len(without_U), 1)) * np.square(without_U - value).sum(0)
    return np.sqrt(np.where(np.isfinite(square), square, math.nan))


def error_of_seeds(value_S: Floats, without_SU: Floats) -> float:
    """The standard error of a mean over seeds that comes from them alone.

    That of the seeds' values also holds a part of the units: how far they differ by seed. It is in
    the mean's error over units already, and is taken off here, but for a tenth: with few seeds
    it is itself uncertain.

    Args:
        value_S: the statistic of each seed.
        without_SU: the same without each of the units.
    """
    seeds = len(value_S)
    square = value_S.var(ddof=1) / seeds
    own = jackknife_error(value_S - value_S.mean(), (without_SU - without_SU.mean(0)).T)
    shared = np.square(own).sum() / (seeds * (seeds - 1))
    return math.sqrt(max(square - shared, square / 10))


def combined(units: tuple[float, float], *seeds: tuple[float, float]) -> tuple[float, float]:
    """The standard error of a value with several independent errors, and the quantile for it: each
    counts with Student's t of its own degrees of freedom, as in Zou and Donner (2008).

    Args:
        units: the error over units, and their number.
        seeds: the errors over the seeds of each side, and their numbers.
    """
    errors, counts = np.array([units, *seeds]).T
    error = math.hypot(*errors)
    t = quantile(counts)
    return error, math.hypot(*(t * errors)) / error if error > TINY else t[0]


def interval(
    value: Any, error: Any, units: Any, limits: tuple[float, float] | None = None, t: Any = None
) -> tuple[Any, Any]:
    """The ends of the interval of a statistic: numbers, or arrays of one shape; NaN for one unit.

    Within limits it is Wilson's, with the number of independent answers that has this standard
    error. If all units agree, each counts as one answer; without limits there is no interval then.

    Args:
        value: the statistic.
        error: its standard error.
        units: U, the units that it is computed from.
        limits: the least and the largest possible value; the interval of a value without a largest
            one is only cut off at the least.
        t: the quantile (default: of Student's t for the units).

    >>> [round(float(end), 3) for end in interval(0.0, 0.0, 21, (0, 1))]
    [0.0, 0.172]
    """
    t = quantile(units) if t is None else t
    agree = np.less(error, TINY)
    least, most = limits or (-math.inf, math.inf)
    if most == math.inf:
        half = np.where(agree, math.nan, t * error)
        return np.maximum(value - half, least), value + half
    width = most - least
    p = (value - least) / width
    n = p * (1 - p) / np.where(agree, np.inf, error / width) ** 2
    n = np.where(n == 0, units, n)
    middle = p + t**2 / (2 * n)
    half = t * np.sqrt(p * (1 - p) / n + (t / (2 * n)) ** 2)
    low, high = (least + width * (middle + sign * half) / (1 + t**2 / n) for sign in (-1, 1))
    return np.minimum(low, value), np.maximum(high, value)  # they are equal at the limits


def interval_of_change(
    change: Any, error: Any, square: Any, units: Any, t: Any = None
) -> tuple[Any, Any]:
    """The interval of a mean of paired differences in [-1, 1]: Bonett and Price's (2012), which
    adds two pairs, with differences 1 and -1, to the number of independent pairs that has this
    standard error. If all units agree, each counts as one pair. Numbers, or arrays of one shape.

    Args:
        change: the mean of the differences.
        error: its standard error.
        square: the mean of their squares.
        units: U, the units that they belong to.
        t: the quantile (default: of Student's t for the units).
    """
    agree = np.less(error, TINY)
    n = np.where(agree, units, (square - change**2) / np.where(agree, 1, error) ** 2)
    middle = n * change / (n + 2)
    spread = np.maximum((n * square + 2) / (n + 2) - middle**2, 0)
    half = (quantile(units) if t is None else t) * np.sqrt(spread / (n + 2))
    return np.maximum(middle - half, -1), np.minimum(middle + half, 1)
