"""Groups with the scores and answers of checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import pandas as pd
import torch

from interventune.data_modules.groups.advice import spread, with_unadvised
from interventune.data_modules.schema.groups import Group
from interventune.data_modules.sources import read_groups
from interventune.evaluation.answering.interface import Answerer

from .groups import group_row, share_right, with_scores

if TYPE_CHECKING:
    from pandas import DataFrame


def read_sets(sources: Mapping[str, str], limit: int) -> tuple[dict[str, list[Group]], DataFrame]:
    """Read groups by data set, with their questions without advice, at most `limit` of a class (0:
    all); and the table of all.
    """
    sets = {}
    for name, source in sources.items():
        groups = list(read_groups(source))
        sets[name] = with_unadvised(spread(groups, limit) if limit else groups)
    rows = [group_row(group, name) for name in sets for group in sets[name]]
    return sets, pd.DataFrame(rows).set_index("key", drop=False)


def scored(frame: DataFrame, sets: Mapping[str, Sequence[Group]], answerer: Answerer) -> DataFrame:
    """Return all groups with an answerer's scores and answers."""
    scores = [answerer.subject_scores(groups, f"scoring {name}") for name, groups in sets.items()]
    frame = with_scores(frame, torch.cat(scores))
    if answerer.offers_unknown:
        frame["unknown"] = 1 - frame["mass"]
    return with_answers(frame, [*chain(*sets.values())], answerer)


def with_answers(frame: DataFrame, groups: Sequence[Group], answerer: Answerer) -> DataFrame:
    """Return the groups; those whose contexts decide have the `answers` to their question in both
    orders and their `accuracy`, or the reason of a `failure`.
    """
    golds = {i: gold for i, group in enumerate(groups) if (gold := group.gold) is not None}
    if not golds:
        return frame
    from interventune.data_modules.groups.sets import gold_examples

    answers = sorted(answerer.answers(list(gold_examples(groups)), "answering"))
    columns = {name: frame[name].tolist() for name in ("answers", "accuracy", "failure")}
    for i, one, two in zip(golds, answers[::2], answers[1::2], strict=True):
        if failure := one.failure or two.failure:
            columns["failure"][i] = failure
        else:
            columns["answers"][i] = [one.text, two.text]
            columns["accuracy"][i] = share_right(groups[i], (one.text, two.text))
    return frame.assign(**columns)
