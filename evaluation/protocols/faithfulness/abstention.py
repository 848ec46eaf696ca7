"""Answers counted for abstention: in pairs of an original and its variant without the evidence, and
for data that contain unanswerable questions.

Shape letters: N rows, R sets of rows, C columns of sums.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from interventune.data_modules.schema.questions import DELETED
from interventune.evaluation.protocol import (
    Lines,
    Number,
    Protocol,
    Row,
    Said,
    Statistic,
    View,
    mean,
)
from interventune.metrics.abstention import COLUMNS, columns, measures

COVERAGES = range(100, 0, -10)
"""Percentages of a cell's rows that are answered as the threshold of unknown varies."""
SHARES = ("abstention_recall", "abstention_precision", "over_abstention")
OTHERS = ("abstention_f1", "answered_f1", "grounded_f1", "reliability")
OFFICIAL = ("exact", "HasAns_exact", "HasAns_f1", "NoAns_exact", "NoAns_f1")
"""Scores of SQuAD 2's official script, whose totals are their n; its f1 is that of `os`."""
HEADINGS = {name: name.replace("_", " ").replace("f1", "F1") for name in (*SHARES, *OTHERS)}
HEADINGS |= {name: name for name in OFFICIAL}
TRIVIAL = {"always unknown": True, "never unknown": False}
"""Models to compare with; the second answers each question that has an answer rightly."""
CURVE = {"selective_f1": "F1 of what is answered"} | {name: HEADINGS[name] for name in SHARES}


def _ratio(name: str, part: str, whole: str) -> Statistic:
    """The ratio of the sums of two fields; its n is the sum of `whole`."""
    return Statistic(
        CURVE[name],
        (whole, part),
        lambda sums_RC: sums_RC[:, 2] / sums_RC[:, 1],
        lambda sum_C: sum_C[1],
        limits=(0, 1),
    )


ABSTENTION = Protocol(
    title="Abstention",
    unit="passage",
    units="texts",
    item=("id", "variant", "coverage"),
    by=("variant", "answer_type", "domain", "coverage"),
    cells=[("variant", "coverage")],
    measures={
        **HEADINGS,  # shares of rows, except these:
        **{
            name: Statistic(
                HEADINGS[name],
                COLUMNS,
                lambda sums_RC, name=name: measures(sums_RC)[name],
                limits=(-1 if name == "reliability" else 0, 1),
            )
            for name in OTHERS
        },
        "abstention_precision": _ratio("abstention_precision", "refused", "abstained"),
        "selective_f1": _ratio("selective_f1", "earned", "answered"),
        "threshold": mean("threshold of unknown", "threshold"),
    },
    failures="",
)
SAID = Said(
    "abstention_f1", "F1 of unknown", variant={"os", *(f"os+{variant}" for variant in DELETED)}
)
VIEW = View(
    "Abstention",
    ("variant",),
    HEADINGS,
    where={"variant": SAID.at["variant"]},
    percent=(),
    caption="In os+ts_r each question that has the variant counts twice: with its original "
    "story, where it has an answer, and without the evidence, where unknown is right. "
    "os: data with unanswerable questions. Recall: share of unknown where it is right; "
    "precision: share of right unknowns; over abstention: unknown among answerable "
    "questions; answered F1: the same for answering, right or wrong; grounded F1: their "
    "mean; reliability: (right - wrong) / all, where unknown counts 0, so at most the "
    "share of answerable questions. exact, HasAns, NoAns: SQuAD 2's official scores; F1 "
    "over all is that of os. never unknown: right wherever there is an answer.",
)
FIGURE = Lines(
    "coverage",
    CURVE,
    panels="variant",
    x_label="questions answered (%), likeliest unknown left out",
)


def numbers(rows: Sequence[Row], names: Sequence[str]) -> Iterator[Number]:
    """Yield the numbers of ABSTENTION (no `coverage`: the model's own decisions), also of trivial
    models.
    """
    answered = {(row["variant"], row["id"]): row for row in rows if "unanswerable" in row}
    trivial = [
        trivial_answer(row, name, unknown)
        for name, unknown in TRIVIAL.items()
        for row in answered.values()
    ]
    for part, compared in ((rows, names), (trivial, [""])):
        if counted := list(counted_rows(part)):
            yield from ABSTENTION.numbers(counted, compared)


def trivial_answer(row: Row, checkpoint: str, unknown: bool) -> Row:
    """Return the row of a model that always says unknown, or else answers rightly if it can."""
    right = unknown == row["unanswerable"]
    answer = {"checkpoint": checkpoint, "unknown": unknown, "em": right, "f1": right}
    return {key: value for key, value in row.items() if key != "unknown_score"} | answer


def counted_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield a row of ABSTENTION for each answer in each of its cells: with the model's own decision
    and, if all answers of a cell have a score of unknown, at each coverage.
    """
    parts: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if "failure" not in row:
            parts.setdefault((row["checkpoint"], row["variant"]), []).append(row)
    for (checkpoint, variant), part in parts.items():
        place = {"checkpoint": checkpoint, "variant": "os", "coverage": ""}
        if variant in DELETED:
            own = {row["id"]: row for row in parts.get((checkpoint, "os"), ())}
            part = [one for row in part if row["id"] in own for one in (own[row["id"]], row)]
            place["variant"] = f"os+{variant}"
        elif variant != "os" or not any(row["unanswerable"] for row in part):
            continue
        yield from decided(part, "f1", np.array([row["unknown"] for row in part], bool), place)
        if part and all("unknown_score" in row for row in part):
            score_N = np.array([row["unknown_score"] for row in part])
            for coverage in COVERAGES:
                threshold = np.sort(score_N)[math.ceil(len(part) * coverage / 100) - 1]
                at = {"coverage": coverage, "threshold": threshold}
                yield from decided(part, "guess_f1", score_N > threshold, place | at)


def decided(part: Sequence[Row], f1: str, abstained_N: Any, place: Row) -> Iterator[Row]:
    """Yield rows of a cell, given the unknown answers, and the field with the F1 of the
    alternative.
    """
    own = not place["coverage"]
    columns_NC = columns(
        abstained_N, [row["unanswerable"] for row in part], [row["em"] for row in part]
    )
    for row, values_C in zip(part, columns_NC.tolist(), strict=True):
        sums = dict(zip(COLUMNS, values_C, strict=True))
        answered = not sums["abstained"]
        measure = "abstention_recall" if row["unanswerable"] else "over_abstention"
        earned = row[f1] if answered and not row["unanswerable"] else 0.0
        if not own:
            del sums["right"]  # whether the alternative is an exact match is not known
        elif place["variant"] == "os":
            side = "NoAns" if row["unanswerable"] else "HasAns"
            sums |= {"exact": row["em"], f"{side}_exact": row["em"], f"{side}_f1": row["f1"]}
        yield {
            "id": row["id"],
            "passage": row["passage"],
            measure: not answered,
            "answered": answered,
            "earned": earned,
            **sums,
            **place,
        }
