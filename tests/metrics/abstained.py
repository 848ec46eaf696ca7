"""The measures of abstention of some questions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from metrics.abstention import columns, measures


def abstention(abstained_N: ArrayLike, unanswerable_N: ArrayLike, right_N: ArrayLike) -> dict[str, float]:
    columns_NC = columns(abstained_N, unanswerable_N, right_N)
    sums_1C = np.array([[len(columns_NC), *columns_NC.sum(0)]])
    return {name: float(value_R[0]) for name, value_R in measures(sums_1C).items()}
