"""Groups from any source with scores and answers: a row of examples.jsonl for each.

Shape letters: N groups, V the four variants, S the two subjects, E the two boundaries (0 start, 1
end).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interventune.data_modules.groups.sets import gold_examples
from interventune.data_modules.schema.groups import Group, spread, with_unadvised
from interventune.data_modules.sources import read_groups, read_scored
from interventune.evaluation.answering.interface import Answerer
from interventune.evaluation.results import Row
from interventune.metrics.bias.group_scores import score_groups, span_score
from interventune.storage.documents import DataError

Rows = list[Row]


def read_sets(
    sources: Mapping[str, str], limit: int, cluster_of: Mapping[str, str] | None = None
) -> tuple[dict[str, list[Group]], Rows]:
    """Read groups by data set, with their questions without advice, at most `limit` of a class (0:
    all); and the rows of all.
    """
    sets = dict[str, list[Group]]()
    rows = Rows()
    for name, source in sources.items():
        groups = list(read_groups(source))
        sets[name] = with_unadvised(spread(groups, limit) if limit else groups)
        rows += [group_row(group, name, cluster_of) for group in sets[name]]
    return sets, rows


def group_row(group: Group, data: str = "", cluster_of: Mapping[str, str] | None = None) -> Row:
    """Convert a group to a row without scores and answers; `domain` is the subjects', `advice` has
    both sentences if two orders differ, `references` the subject named by contexts that decide.
    """
    (first, negated, *_) = group.variants
    gold = group.gold
    fields = ("key", "category", "attribute", "domain", "advice_domain", "subjects")
    return {
        "data": data,
        "class": group.advice_class,
        **{name: getattr(group, name) for name in fields},
        "question": first.question,
        "negated": negated.question,
        "advice": " / ".join(dict.fromkeys(variant.advice for variant in group.variants)),
        "story": first.context,
        "references": [] if gold is None else [group.subjects[gold]],
        "clusters": tuple(map(cluster_of.get, group.subjects)) if cluster_of else None,
        "answers": None,
        "accuracy": np.nan,
        "unknown": np.nan,
        "failure": "",
    }


def scored_rows(
    sets: Mapping[str, Sequence[Group]], rows: Rows, answerer: Answerer
) -> Iterator[Any]:
    """Yield the rows of all groups with an answerer's scores and, of those whose contexts decide,
    its answers or the reason of a `failure`.
    """
    scores = [answerer.subject_scores(groups, f"scoring {name}") for name, groups in sets.items()]
    groups = [*chain(*sets.values())]
    rows = [*rows]
    if decided := [i for i, row in enumerate(rows) if row["references"]]:
        answers = sorted(answerer.answers(list(gold_examples(groups)), "answering"))
        for i, first, second in zip(decided, answers[::2], answers[1::2], strict=True):
            failure = first.failure or second.failure
            texts = (first.text, second.text)
            rows[i] = rows[i] | ({"failure": failure} if failure else judged(groups[i], texts))
    for row in with_scores(rows, torch.cat(scores)):
        unknown = 1 - row["mass"] if answerer.offers_unknown else None
        yield without_empty({**row, "unknown": unknown})


def with_scores(rows: Rows, score_NVS: Tensor) -> Iterator[Row]:
    """Yield the rows with `prediction` (the subject with the higher score in each variant),
    `scores` (4, 2), and measures from these: c (positive if the model assigns the attribute to the
    first subject), c_normalised, delta, eps, mass.

    Args:
        rows: the N groups.
        score_NVS: S(x) = sqrt(p_start p_end) by subject, in [0, 1].
    """
    measured = score_groups(score_NVS)._asdict()
    names = [name.removesuffix("_N") for name in measured]
    columns = (value_N.tolist() for value_N in measured.values())
    for row, score_VS, *values in zip(rows, score_NVS.tolist(), *columns, strict=True):
        prediction = [row["subjects"][second > first] for first, second in score_VS]
        measures = dict(zip(names, values, strict=True))
        yield {**row, "prediction": prediction, "scores": score_VS, **measures}


def without_empty(row: Row) -> Row:
    """Return a row without empty fields."""
    return {
        name: value for name, value in row.items() if value not in ("", None) and value == value
    }


def judged(group: Group, answers: Sequence[str]) -> Row:
    """Return the `answers` to the question in both orders and their `accuracy`, the share that
    contains the name of the subject named by the contexts (LEI, Figure 6; the authors' get_acc.py);
    nothing if they do not decide.
    """
    gold = group.gold
    if gold is None:
        return {}
    other = group.subjects[1 - gold]
    right = [
        names_subject(text, variant.candidates[gold].text, other)
        for text, variant in zip(answers, group.variants[::2], strict=True)
    ]
    return {"answers": answers, "accuracy": sum(right) / 2}


def names_subject(text: str, name: str, other: str) -> bool:
    """Whether a text contains a name, ignoring white space and case, and not only inside the other
    name.

    >>> [names_subject(text, "Asian", "Caucasian") for text in ("the Asian man", "a Caucasian")]
    [True, False]
    """
    text, name, other = ("".join(words.lower().split()) for words in (text, name, other))
    return name in (text.replace(other, "|") if name in other else text)


def read_predictions(path: Path, cluster_of: Mapping[str, str] | None) -> Rows:
    """Read the scored groups of a file in UnQover's or LEI's layout, with `answers` if it has them.

    Raises:
        DataError: another format, a group without scores, a score that is no probability, or no
            group; it names the file and the key.
    """
    records = list(read_scored(path))
    answered = any(any(record.answers) for record in records)  # only scores: empty answers are none
    rows = Rows()
    probability_NVSE = list[Any]()
    for record in records:
        probability_VSE = np.array(record.base_scores or np.nan)
        rounded_one = 1.001
        if not ((probability_VSE >= 0) & (probability_VSE <= rounded_one)).all():
            raise DataError(
                f"{path}: group {record.group.key!r}: needs a model's probabilities (`start` and "
                "`end` of every ans0 and ans1 in UnQover's layout, `start-end-score` of every "
                f"answer in LEI's); found {record.base_scores}"
            )
        probability_NVSE.append(probability_VSE)
        outcome = judged(record.group, record.answers) if answered else {}
        row = group_row(record.group, "", cluster_of) | outcome
        rows.append({**row, "clusters": row["clusters"] or record.clusters})
    return [*with_scores(rows, span_score(torch.from_numpy(np.stack(probability_NVSE))))]
