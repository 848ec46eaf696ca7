"""Answers counted for abstention: in pairs of an original and its variant without the evidence, and
for data that contain unanswerable questions.

Shape letters: R sets of rows, C columns of sums.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, product

from interventune.data_modules.schema.questions import DELETED
from interventune.evaluation.protocol import (
    Number,
    OfRows,
    Protocol,
    Row,
    Statistic,
    declared,
    mean,
)
from interventune.metrics.abstention import COLUMNS, measures, recall_at

COVERAGES = range(100, 0, -10)
"""Percentages of a cell's rows that are answered as the threshold of unknown varies."""
OTHERS = ("abstention_f1", "answered_f1", "grounded_f1", "reliability")
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
    "threshold": mean("threshold of unknown", "threshold"),
}
ABSTENTION = Protocol(**DECLARED)
VIEW = DECLARED["views"][0]
FIGURE = DECLARED["figures"]["coverage.png"]


def numbers(rows: Sequence[Row], names: Sequence[str]) -> Iterator[Number]:
    """Yield the numbers of ABSTENTION (no `coverage`: the model's own decisions), also of trivial
    models.
    """
    answered = {(row["variant"], row["id"]): row for row in rows if "unanswerable" in row}
    trivial = list[Row]()
    for (name, unknown), row in product(TRIVIAL.items(), answered.values()):
        right = unknown == row["unanswerable"]
        question = {key: row[key] for key in ("variant", "id", "passage", "unanswerable")}
        answer = {"checkpoint": name, "unknown": unknown, "em": right, "f1": right}
        trivial.append(question | answer)
    for part, compared in ((rows, names), (trivial, [""])):
        if counted := list(counted_rows(part)):
            yield from ABSTENTION.numbers(counted, compared)


def counted_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield a row of ABSTENTION for each answer in each of its cells: with the model's own decision
    and, if all answers of a cell have a score of unknown, at each coverage.
    """
    parts: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if "failure" not in row:
            key = row["checkpoint"], row.get("run", ""), row["variant"]
            parts.setdefault(key, []).append(row)
    for (checkpoint, run, variant), part in parts.items():
        place: Row = {"checkpoint": checkpoint, "variant": "os"}
        place |= {"run": run} if run else {}
        if variant in DELETED:
            originals = {row["id"]: row for row in parts.get((checkpoint, run, "os"), ())}
            pairs = [(originals[row["id"]], row) for row in part if row["id"] in originals]
            part = [*chain.from_iterable(pairs)]
            place["variant"] = f"os+{variant}"
        elif variant != "os" or not any(row["unanswerable"] for row in part):
            continue
        scored = part and all("unknown_score" in row for row in part)
        for row in part:
            own = decided(row, row["unknown"], row["f1"])
            own |= {"unknown_score": row["unknown_score"]} if scored else {}
            yield own | of_exact_match(row, official=variant == "os") | place
        if scored:
            scores = sorted(row["unknown_score"] for row in part)
            for coverage in COVERAGES:
                threshold = scores[math.ceil(len(part) * coverage / 100) - 1]
                at = place | {"coverage": coverage, "threshold": threshold}
                for row in part:
                    abstained = row["unknown_score"] > threshold
                    yield decided(row, abstained, row["guess_f1"]) | at


def decided(row: Row, abstained: bool, f1: float) -> Row:
    """Return what the decision about a question counts for; `f1` is that of the alternative to
    unknown.
    """
    unanswerable = row["unanswerable"]
    return {
        "id": row["id"],
        "passage": row["passage"],
        "abstention_recall" if unanswerable else "over_abstention": abstained,
        "unanswerable": unanswerable,
        "abstained": abstained,
        "refused": abstained and unanswerable,
        "answered": not abstained,
        "earned": 0.0 if abstained or unanswerable else f1,
    }


def of_exact_match(row: Row, *, official: bool) -> Row:
    """Return what the model's own answer counts for; it alone is known to be an exact match or
    not.
    """
    em = row["em"]
    unanswerable = row["unanswerable"]
    right = {"right": 0.0 if row["unknown"] or unanswerable else em}
    side = "NoAns" if unanswerable else "HasAns"
    scores = {"exact": em, f"{side}_exact": em, f"{side}_f1": row["f1"]}
    return right | scores if official else right
