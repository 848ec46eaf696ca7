"""Groups and their scores from any source as a table: a row of examples.jsonl for each group.

Shape letters: N groups, V the four variants, S the two subjects, E the two boundaries (0 start, 1
end).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from interventune.data_modules.sources import read_scored
from interventune.evaluation.results import Row
from interventune.metrics.bias.group_scores import score_groups, span_score
from interventune.storage.errors import DataError

if TYPE_CHECKING:
    from pandas import DataFrame

    from interventune.data_modules.schema.groups import Group


def group_row(group: Group, data: str = "") -> dict[str, Any]:
    """Convert a group to a row of examples.jsonl, without scores and answers; `domain` is the
    subjects', `advice` has both sentences if two orders differ, `references` the subject named by
    contexts that decide.
    """
    (first, negated, *_), gold = group.variants, group.gold
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
        "clusters": None,
        "answers": None,
        "accuracy": np.nan,
        "unknown": np.nan,
        "failure": "",
    }


def with_scores(frame: DataFrame, score_NVS: Tensor) -> DataFrame:
    """Add `prediction` (the subject with the higher score in each variant), `scores` (4, 2), and
    measures from these: c (positive if the model assigns the attribute to the first subject),
    c_normalised, delta, eps, mass.

    Args:
        frame: the N groups.
        score_NVS: S(x) = sqrt(p_start p_end) by subject, in [0, 1].
    """
    second_NV = (score_NVS[:, :, 1] > score_NVS[:, :, 0]).tolist()
    prediction = [
        [pair[i] for i in row] for pair, row in zip(frame["subjects"], second_NV, strict=True)
    ]
    measured = score_groups(score_NVS)._asdict().items()
    columns = {name.removesuffix("_N"): value_N.numpy() for name, value_N in measured}
    return frame.assign(prediction=prediction, scores=score_NVS.tolist(), **columns)


def share_right(group: Group, answers: Sequence[str]) -> float:
    """Share of the two orders in which the answer contains the name of the subject named by the
    contexts, ignoring white space and case (LEI, Figure 6; the authors' get_acc.py); NaN if they do
    not decide.
    """
    gold = group.gold
    if gold is None:
        return np.nan
    names = [variant.candidates[gold].text for variant in group.variants[::2]]
    other = group.subjects[1 - gold]
    return (
        sum(names_subject(text, name, other) for text, name in zip(answers, names, strict=True)) / 2
    )


def names_subject(text: str, name: str, other: str) -> bool:
    """Whether a text contains a name, ignoring white space and case, and not only inside the other
    name.

    >>> [names_subject(text, "Asian", "Caucasian") for text in ("the Asian man", "a Caucasian")]
    [True, False]
    """
    text, name, other = ("".join(words.lower().split()) for words in (text, name, other))
    return name in (text.replace(other, "|") if name in other else text)


def read_predictions(path: Path) -> DataFrame:
    """Read the scored groups of a file in UnQover's or LEI's layout, with `clusters` of the
    subjects and `answers` if it has them.

    Raises:
        DataError: another format, a group without scores, a score that is no probability, or no
            group; it names the file and the key.
    """
    rows, probability_NVSE = list[dict[str, Any]](), list[Any]()
    for record in read_scored(path):
        probability_VSE = np.array(record.base_scores or np.nan)
        if not (
            (probability_VSE >= 0) & (probability_VSE <= 1.001)
        ).all():  # just above 1 is rounding
            raise DataError(
                f"{path}: group {record.group.key!r}: needs a model's probabilities (`start` and "
                "`end` of every ans0 and ans1 in UnQover's layout, `start-end-score` of every "
                f"answer in LEI's); found {record.base_scores}"
            )
        probability_NVSE.append(probability_VSE)
        accuracy = share_right(record.group, record.answers)
        given = {"clusters": record.clusters, "answers": record.answers, "accuracy": accuracy}
        rows.append({**group_row(record.group), **given})
    frame = pd.DataFrame(rows).set_index("key", drop=False)
    if not any(map(any, frame["answers"])):  # only scores: empty answers are none
        frame["accuracy"] = np.nan
    frame["answers"] = frame["answers"].where(frame["accuracy"].notna(), None)
    return with_scores(frame, span_score(torch.from_numpy(np.stack(probability_NVSE))))


def example_rows(groups: DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the rows of examples.jsonl, without empty fields."""
    for row in groups.to_dict("records"):
        yield {
            name: value for name, value in row.items() if value not in ("", None) and value == value
        }


def table(rows: Sequence[Row]) -> DataFrame:
    """Return the groups of such rows, by key."""
    frame = pd.DataFrame(rows)
    for name in ("data", "domain", "advice_domain", "clusters"):
        if name not in frame:
            frame[name] = np.nan
    places = ["data", "domain", "advice_domain"]
    return frame.fillna(dict.fromkeys(places, "")).set_index("key", drop=False)
