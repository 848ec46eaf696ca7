"""Abstention: does a model answer "unknown" exactly where nothing supports an answer?

    measures(sums_RC)["abstention_f1"]

All measures but `recall_at` are functions of sums over questions, so that leaving out some only
needs their sums.
Recall, precision and F1 of abstaining: AbstentionBench (Kirichenko et al. 2025, arXiv 2506.09038);
`grounded_f1` is Trust-Align's F1_GR (Song et al. 2025, arXiv 2409.11242).

Shape letters: N questions, R sets of questions, C columns of sums.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .intervals import Floats

COLUMNS = ("unanswerable", "abstained", "refused", "right")
"""The sums besides the number of questions: unanswerable questions (the answer is unknown); those
answered with unknown; those that are both; and exact matches among answers to answerable questions.
"""


def measures(sums_RC: Floats) -> dict[str, Floats]:
    """All seven measures, (R,), from the number of questions and the sums of COLUMNS; NaN where
    undefined.

    `answered_f1` is F1 of giving an answer, right or wrong; `grounded_f1` is the mean of the two F1
    scores. `reliability` is (right - wrong) / all: unknown counts 0, an answer to an unanswerable
    question is wrong.
    """
    all_R, unanswerable_R, abstained_R, refused_R, right_R = sums_RC.T
    answerable_R = all_R - unanswerable_R
    answered_R = all_R - abstained_R
    over_R = abstained_R - refused_R
    with np.errstate(invalid="ignore", divide="ignore"):
        abstention_f1_R = 2 * refused_R / (unanswerable_R + abstained_R)
        answered_f1_R = 2 * (answerable_R - over_R) / (answerable_R + answered_R)
        return {
            "abstention_recall": refused_R / unanswerable_R,
            "abstention_precision": refused_R / abstained_R,
            "abstention_f1": abstention_f1_R,
            "over_abstention": over_R / answerable_R,
            "answered_f1": answered_f1_R,
            "grounded_f1": (abstention_f1_R + answered_f1_R) / 2,
            "reliability": (2 * right_R - answered_R) / all_R,
        }


def recall_at(over: float, unanswerable_N: NDArray[Any], score_N: NDArray[Any]) -> float:
    """Return the recall of abstaining at the threshold where the share `over` of the answerable
    questions is refused, a point of the ROC curve; NaN without either kind of question.

    Args:
        over: over-abstention at this threshold.
        unanswerable_N: whether the answer is unknown.
        score_N: score of unknown.
    """
    unanswerable_N = unanswerable_N.astype(bool)
    if unanswerable_N.all() or not unanswerable_N.any():
        return np.nan
    threshold = np.quantile(score_N[~unanswerable_N], 1 - over)
    return float((score_N[unanswerable_N] > threshold).mean())
