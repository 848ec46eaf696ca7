"""Groups and their scores as a table, whoever made the scores: a row of examples.jsonl for each group.

Shape letters: N groups, V the four variants, S the two subjects, E the two boundaries (0 start, 1 end).
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike

from data_modules.groups.specified import SpecifiedGroup, gold_examples, gold_of
from data_modules.schema import Group
from data_modules.sources import format_of
from metrics.bias.group_scores import GroupScores, score_groups, span_score
from storage.errors import DataError

if TYPE_CHECKING:
    from pandas import DataFrame

    from evaluation.answering.interface import Answerer

log = logging.getLogger(__name__)

Frames = Mapping[str, "DataFrame"]
"""Scored groups by checkpoint; the first is what the others are compared with."""
COLUMNS = (
    *("key", "class", "category", "attribute", "domain", "advice_domain", "subjects"),
    *("question", "negated", "advice", "story", "references"),
)
IF_ANY = ("data", "domain", "advice_domain", "answers", "accuracy", "unknown", "failure")
"""Fields that a row of examples.jsonl lacks where there is nothing to say."""
LARGEST = 1.001
"""A probability above this is a mistake; just above 1 is rounding."""
CHUNK = 4096
"""Rows that are written at a time."""


def group_frame(groups: Iterable[Group], score_NVS: ArrayLike | None = None) -> DataFrame:
    """A row for each group, with its key as index.

    Args:
        groups: the N groups.
        score_NVS: S(x) = sqrt(p_start p_end) by subject, in [0, 1].

    Returns:
        The columns key, class, category, attribute, domain (of the subjects), advice_domain, subjects,
        question, negated (the question), advice (of two orders with different advice, both), story, and
        references (the subject that the contexts name, if they decide); with scores those of `with_scores`.
    """
    rows = []
    for group in groups:
        (first, negated, *_), gold = group.variants, gold_of(group)
        advice = " / ".join(dict.fromkeys(variant.advice for variant in group.variants))
        names = (group.category, group.attribute, group.domain, group.advice_domain, group.subjects)
        texts = (first.question, negated.question, advice, first.context)
        references = [] if gold is None else [group.subjects[gold]]
        rows.append((group.key, group.advice_class, *names, *texts, references))
    frame = pd.DataFrame(rows, columns=COLUMNS, dtype=object).set_index("key", drop=False)
    return frame if score_NVS is None else with_scores(frame, score_NVS)


def with_scores(frame: DataFrame, score_NVS: ArrayLike) -> DataFrame:
    """The groups with `prediction` (the subject of the higher score in each variant), `scores` (4, 2), and
    what these say: c (positive where the attribute goes to the first subject), c_normalised, delta, eps,
    mass."""
    scores = np.asarray(score_NVS, dtype=np.float64)
    measured = score_groups(torch.from_numpy(scores))._asdict().items()
    second = (scores[:, :, 1] > scores[:, :, 0]).tolist()
    prediction = [[pair[i] for i in which] for pair, which in zip(frame["subjects"], second, strict=True)]
    columns = {name.removesuffix("_N"): value.numpy() for name, value in measured}
    nothing = {"accuracy": np.nan, "unknown": np.nan, "failure": ""}
    return frame.assign(prediction=prediction, scores=list(scores), **columns, **nothing)


def scores_of(rows: DataFrame) -> GroupScores:
    """What the scores of some groups say, as metrics take it."""
    names = (name.removesuffix("_N") for name in GroupScores._fields)
    return GroupScores(*(torch.from_numpy(rows[name].to_numpy(np.float64, copy=True)) for name in names))


def questions_of(rows: DataFrame) -> pd.Index:
    """What each group asks, the same for groups that differ in their advice alone."""
    return pd.Index([key.rpartition("|")[0] for key in rows["key"]], dtype=object)


def with_answers(frame: DataFrame, groups: Sequence[Group], answerer: Answerer, what: str) -> DataFrame:
    """The groups; those whose contexts decide with the `answers` to their question in both orders and their
    `accuracy`, or with the reason of a `failure`."""
    golds = {i: gold for i, group in enumerate(groups) if (gold := gold_of(group)) is not None}
    examples = list(gold_examples(SpecifiedGroup(groups[i], gold) for i, gold in golds.items()))
    if not examples:
        return frame
    found = sorted(answerer.answers(examples, what))
    failure, answers = [""] * len(groups), list[Any]([None] * len(groups))
    accuracy = np.full(len(groups), np.nan)
    for i, one, two in zip(golds, found[::2], found[1::2], strict=True):
        failure[i] = one.failure or two.failure
        if not failure[i]:
            answers[i] = [one.text, two.text]
            accuracy[i] = share_right(groups[i], answers[i])
    return frame.assign(answers=answers, accuracy=accuracy, failure=failure)


def share_right(group: Group, answers: Sequence[str]) -> float:
    """In which share of the two orders the answer holds the name of the subject whom the contexts name, white
    space and case aside (LEI, Figure 6; the authors' get_acc.py); NaN where they do not decide."""
    gold = gold_of(group)
    if gold is None:
        return np.nan
    names = [variant.candidates[gold].text for variant in group.variants[::2]]
    other = group.subjects[1 - gold]
    return sum(names_subject(text, name, other) for text, name in zip(answers, names, strict=True)) / 2


def names_subject(text: str, name: str, other: str) -> bool:
    """Whether a text holds a name, white space and case aside, and not in the other name alone.

    >>> [names_subject(text, "Asian", "Caucasian") for text in ("the Asian man", "a Caucasian")]
    [True, False]
    """
    text, name, other = ("".join(words.lower().split()) for words in (text, name, other))
    return name in (text.replace(other, "|") if name in other else text)


def read_predictions(path: Path, *, skip_bad: bool = False) -> DataFrame:
    """The scored groups of a file in UnQover's or LEI's layout; with `clusters` of the subjects and `answers`
    where it has some.

    Raises:
        DataError: another format, a group without scores, a score that is no probability, or no group; it
            names the file and the key.
    """
    name = format_of(path).name
    if name == "lei":
        from data_modules.groups.lei import read_scored
    elif name == "unqover":
        from data_modules.groups.unqover_source import read_scored
    else:
        raise DataError(f"{path}: looks like {name}; needed are predictions in UnQover's or LEI's layout")
    probabilities, accuracy, clusters, answers = array("d"), array("d"), list[Any](), list[Any]()

    def groups() -> Iterator[Group]:
        for record in read_scored(path, skip_bad=skip_bad):
            scores = record.base_scores or ()
            flat = [p for variant in scores for subject in variant for p in subject]
            if not flat or not all(0 <= p <= LARGEST for p in flat):
                raise DataError(
                    f"{path}: group {record.group.key!r}: needs a model's probabilities (`start` and `end` "
                    "of every ans0 and ans1 in UnQover's layout, `start-end-score` of every answer in "
                    f"LEI's); found {flat or 'none'}"
                )
            probabilities.extend(flat)
            accuracy.append(share_right(record.group, record.answers))
            clusters.append(record.clusters)
            answers.append(record.answers)
            yield record.group

    frame = group_frame(groups())
    if not len(frame):
        raise DataError(f"{path}: holds no groups")
    probability_NVSE = torch.from_numpy(np.frombuffer(probabilities).reshape(-1, 4, 2, 2).copy())
    frame = with_scores(frame, span_score(probability_NVSE)).assign(clusters=clusters)
    if any(map(any, answers)):  # else it holds scores alone, and an empty answer is none
        decides = frame["references"].map(bool)
        given = pd.Series(answers, frame.index, dtype=object).where(decides, None)
        frame = frame.assign(answers=given, accuracy=np.array(accuracy))
    return frame


def with_clusters(frames: Frames, files: Sequence[str]) -> dict[str, DataFrame]:
    """The groups with the `clusters` of their subjects, by lists; ValueError where no group compares two."""
    from data_modules.groups.word_lists import read_clusters

    cluster_of, found = read_clusters(files), dict[str, "DataFrame"]()
    for name, frame in frames.items():
        pairs = [tuple(map(cluster_of.get, pair)) for pair in frame["subjects"]]
        found[name] = frame.assign(clusters=pairs)
    if all(between_clusters(frame).empty for frame in found.values()):
        raise ValueError("--clusters: no group compares subjects of two of these clusters")
    subjects = {subject for frame in frames.values() for pair in frame["subjects"] for subject in pair}
    if missing := sorted(cluster_of.keys() - subjects):
        log.warning("--clusters: %d names are in no group, as %s", len(missing), missing[0])
    return found


def between_clusters(rows: DataFrame) -> DataFrame:
    """The groups that compare subjects of two clusters, with these as subjects."""
    if "clusters" not in rows:
        return rows.iloc[:0]
    across = [bool(pair and None not in pair and pair[0] != pair[1]) for pair in rows["clusters"]]
    return rows.assign(subjects=rows["clusters"])[np.array(across, dtype=bool)]


def example_rows(scored: Mapping[str, Frames], *, failed: bool = False) -> Iterator[dict[str, Any]]:
    """The rows of examples.jsonl, by data set; or those alone of groups without an answer."""
    for data, frames in scored.items():
        for checkpoint, frame in frames.items():
            rows = (
                frame[frame["failure"] != ""] if failed else frame.drop(columns="clusters", errors="ignore")
            )
            for start in range(0, len(rows), CHUNK):
                for row in rows.iloc[start : start + CHUNK].to_dict("records"):
                    row = {"checkpoint": checkpoint, "data": data, **row, "scores": row["scores"].tolist()}
                    empty = {name for name in IF_ANY if row.get(name) in ("", None) or row[name] != row[name]}
                    yield {name: value for name, value in row.items() if name not in empty}
