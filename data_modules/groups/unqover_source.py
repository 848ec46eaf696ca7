"""UnQover's `source.json`, read: one object keyed by id, two records (context orders) per group.

Ids have 8 fields, `cluster1|cluster2|x1|x2|template|category|attribute|attribute` with the subjects in
context order, or 9 with the advice's id (LEI spec 1.2, 2.4). Prediction files have the same layout with
numbers in `start` and `end`; these become base scores. Output of LEI's fine-tuning is also accepted: an id
with sorted subjects, mapped to four records of one question each, two per context order (spec 4.5).
"""

from __future__ import annotations

import logging
import re
from collections import ChainMap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import BeforeValidator
from typing_extensions import TypedDict

from data_modules.groups.lei import Half, pair_halves, parse_key, split_advice
from data_modules.schema.groups import LEAD_IN, NO_CLUSTER, ScoredGroup, UnderspecifiedQuestion
from data_modules.schema.spans import Span
from storage.errors import DataError
from storage.json_files import check, stream_object

logger = logging.getLogger(__name__)

UNNAMED = "ethical_unnamed-0"
"""The advice id of groups whose ids name none although their questions begin with `Note that,`, as in LEI's
specified set (spec 3.6)."""


_Probability = Annotated[float | None, BeforeValidator(lambda x: None if isinstance(x, str) else x)]
"""None for the placeholders "" and "[TODO]" of a source file."""


class _Answer(TypedDict):
    text: str
    start: NotRequired[_Probability]
    end: NotRequired[_Probability]


class _Question(TypedDict):
    question: str
    pred: NotRequired[str]
    ans0: _Answer
    ans1: _Answer


class _Record(TypedDict):
    context: str
    q0: _Question
    q1: _Question


def read_scored(path: str | Path) -> Iterator[ScoredGroup]:
    """Yield the groups, with their base scores if every `start` and `end` of a group is a number. DataError
    names the file and the id."""
    unnamed = 0
    records = (
        (f"{path}: id {key!r}", (key, order))
        for key, value in stream_object(path)
        for order in ((value[:2], value[2:]) if isinstance(value, list) else (value,))
    )
    for record in pair_halves(records, _half):
        unnamed += record.group.advice_id == UNNAMED
        yield record
    if unnamed:
        begin = f"{path}: {unnamed} groups have no advice in their ids, but their questions begin with"
        logger.warning("%s %r: it counts as ethical, as in LEI's specified set", begin, LEAD_IN.strip())


def _half(record: tuple[str, Any]) -> Half:
    named, content = record
    one, two, *parts = (*named.split("|"), "")[:9]
    key, swapped = parse_key("|".join(parts))
    clusters = None if NO_CLUSTER in (one, two) else (two, one) if swapped else (one, two)
    if apart := isinstance(content, list):  # one id for both orders; question and negation separate
        content = dict(ChainMap(*check(content, list[dict[str, Any]], "its list")))
    value = check(content, _Record, "its record")
    context, both = value["context"], (value["q0"], value["q1"])
    texts = both[0]["ans0"]["text"], both[0]["ans1"]["text"]
    if apart:
        swapped = tuple(text.lower() for text in texts) != key[0]
    if not key[-1] and all(entry["question"].startswith(LEAD_IN) for entry in both):
        key = (*key[:4], "ethical", UNNAMED)
    step = -1 if swapped else 1
    first, second = locate_pair(context, *texts)[::step]
    split = [split_advice(entry["question"], key) for entry in both]
    questions = [UnderspecifiedQuestion(context, text, (first, second), advice) for text, advice in split]
    answers = [(entry["ans0"], entry["ans1"])[::step] for entry in both]
    scores = [[(one.get("start"), one.get("end")) for one in pair] for pair in answers]
    return Half(key, swapped, questions, scores, clusters=clusters, answer=both[0].get("pred", ""))


def locate_pair(context: str, first: str, second: str) -> tuple[Span, Span]:
    """Find the spans of the two subjects when the file gives only their texts; they never overlap.

    `first` is found at its first occurrence and `second` after it, or the other way round if that fails;
    whole words take precedence over parts of words (Niger is not found inside Nigeria).
    """
    for one, two, flip in ((first, second, False), (second, first, True)):
        for pattern in (r"(?<!\w){}(?!\w)", r"{}"):
            both = (f"({pattern.format(re.escape(name))})" for name in (one, two))
            if found := re.search(".*?".join(both), context, re.DOTALL):
                spans = (Span(*found.span(1), one), Span(*found.span(2), two))
                return spans[::-1] if flip else spans
    raise DataError(f"{first!r} and {second!r} do not both occur in the context {context!r}")
