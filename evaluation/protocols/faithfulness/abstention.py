"""Answers counted for abstention: in pairs of an original and its variant without the evidence, and
for data that contain unanswerable questions.

Shape letters: R sets of rows, C columns of sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from interventune.data_modules.schema.questions import DELETED
from interventune.evaluation.protocol import Number, OfRows, Protocol, Statistic, declared
from interventune.metrics.abstention import COLUMNS, measures, recall_at

if TYPE_CHECKING:
    from pandas import DataFrame, Series

CELL = ["checkpoint", "run", "variant"]
PLACE = [*CELL, "id", "passage"]
SCORES = ["unanswerable", "unknown", "em", "f1", "unknown_score", "guess_f1"]
"""Fields of rows: those of a cell, all that identify an answer, and what it counts for."""
COVERAGES = range(100, 0, -10)
"""Percentages of a cell's rows that are answered as the threshold of unknown varies."""
OTHERS = ("abstention_f1", "answered_f1", "grounded_f1", "reliability")
COUNTED = {"abstention_f1": (0, 1, 1, -1, 0), "answered_f1": (1, 0, 0, -1, 0)}
"""Weights of the sums that give n, the number of questions on which a measure depends; others
depend on all.
"""
DECLARED = declared(__file__)
HEADINGS = DECLARED["measures"]
TRIVIAL = {"always unknown": True, "never unknown": False}
"""Models to compare with; the second answers each question that has an answer rightly."""
RECALLS = {"recall_over_05": 0.05, "recall_over_10": 0.1}
"""Recalls to the over-abstention of their thresholds."""
RATIOS = {"abstention_precision": ("abstained", "refused"), "selective_f1": ("answered", "earned")}
"""Ratios of the sums of two fields; their n is the sum of the first."""
DECLARED["measures"] = {
    **HEADINGS,  # shares of rows, except these:
    **{
        name: Statistic(
            HEADINGS[name],
            COLUMNS,
            lambda sums_RC, name=name: measures(sums_RC)[name],
            partial(np.dot, COUNTED.get(name, (1, 0, 0, 0, 0))),
            limits=(-1 if name == "reliability" else 0, 1),
        )
        for name in OTHERS
    },
    **{
        name: Statistic(
            HEADINGS[name],
            fields,
            lambda sums_RC: sums_RC[:, 2] / sums_RC[:, 1],
            lambda sum_C: sum_C[1],
            limits=(0, 1),
        )
        for name, fields in RATIOS.items()
    },
    **{
        name: OfRows(
            HEADINGS[name],
            ("unanswerable", "unknown_score"),
            lambda rows, over=over: recall_at(over, *rows.to_numpy().T),
            limits=(0, 1),
        )
        for name, over in RECALLS.items()
    },
}
ABSTENTION = Protocol(**DECLARED)
CONSTANT = replace(
    ABSTENTION,
    measures={
        name: replace(statistic, continuous=True)
        for name, statistic in ABSTENTION.statistics.items()
    },
)
"""For trivial models: where all texts agree, they do by construction, and there is no interval."""
VIEW = DECLARED["views"][0]
FIGURE = DECLARED["figures"]["coverage.png"]


def numbers(rows: DataFrame, names: Sequence[str]) -> Iterator[Number]:
    """Yield the numbers of ABSTENTION (no `coverage`: the model's own decisions), also of trivial
    models.
    """
    import pandas as pd

    answered = rows.dropna(subset="unanswerable").drop_duplicates(["variant", "id"])
    question = answered[["variant", "id", "passage", "unanswerable"]]
    trivial = [
        question.assign(checkpoint=name, unknown=unknown, em=right, f1=right)
        for name, unknown in TRIVIAL.items()
        for right in [(question["unanswerable"] == unknown).astype(float)]
    ]
    for protocol, part, compared in (
        (ABSTENTION, rows, names),
        (CONSTANT, pd.concat(trivial), [""]),
    ):
        for counted in counted_rows(part):
            yield from protocol.numbers(counted, compared)


def counted_rows(rows: DataFrame) -> Iterator[DataFrame]:
    """Yield tables with a row of ABSTENTION for each answer in each of its cells: with the models'
    own decisions, then at each coverage, for cells whose answers all have a score of unknown.
    """
    import pandas as pd

    rows = rows.reindex(columns=[*PLACE, *SCORES, "failure"]).astype({"run": object})
    rows = rows[rows["failure"].isna()].fillna({"run": ""}).infer_objects()
    parts = dict(iter(rows.groupby(CELL, sort=False)))
    cells = []
    for (checkpoint, run, variant), part in parts.items():
        place = "os"
        if variant in DELETED:
            originals = parts.get((checkpoint, run, "os"), part[:0]).set_index("id", drop=False)
            part = part[part["id"].isin(originals.index)]
            part = pd.concat([originals.loc[part["id"]], part])
            place = f"os+{variant}"
        elif variant != "os" or not part["unanswerable"].any():
            continue
        cells.append(part.assign(variant=place))
    if not cells:
        return
    whole = pd.concat(cells, ignore_index=True)
    own = decided(whole, whole["unknown"], whole["f1"])
    own["right"] = whole["em"].mask(whole["unknown"] | whole["unanswerable"], 0.0)
    official = whole[["em", "f1"]].where(whole["variant"] == "os")
    own["exact"] = official["em"]
    for side, unanswerable in {"NoAns": True, "HasAns": False}.items():
        at = whole["unanswerable"] == unanswerable
        own[[f"{side}_exact", f"{side}_f1"]] = official.where(at)
    guesses = whole.groupby(CELL)["guess_f1"]
    scored = whole[guesses.transform("count") == guesses.transform("size")]
    own["unknown_score"] = scored["unknown_score"]  # of the others NaN
    yield own
    for coverage in COVERAGES if len(scored) else ():
        threshold = scored.groupby(CELL)["unknown_score"].transform(
            lambda score, n=coverage: sorted(score)[math.ceil(len(score) * n / 100) - 1]
        )
        at = decided(scored, scored["unknown_score"] > threshold, scored["guess_f1"])
        yield at.assign(coverage=coverage, threshold=threshold)


def decided(rows: DataFrame, abstained: Series, f1: Series) -> DataFrame:
    """Return what decisions about questions count for; `f1` is that of the alternative to
    unknown.
    """
    unanswerable = rows["unanswerable"]
    return rows[[*PLACE, "unanswerable"]].assign(
        abstention_recall=abstained.where(unanswerable),
        over_abstention=abstained.mask(unanswerable),
        abstained=abstained,
        refused=abstained & unanswerable,
        answered=~abstained,
        earned=f1.mask(abstained | unanswerable, 0.0),
    )
