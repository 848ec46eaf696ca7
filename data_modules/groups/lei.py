"""LEI's SQuAD-style files of underspecified questions with advice, as released (LEI spec 3.3).

A paragraph has one context order of a group: its question and its negated question, each with the two
subjects as "answers" in context order. UnQover's files (unqover_source.py) also store a group as two records,
anywhere in the file; this module pairs both kinds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NotRequired

from typing_extensions import TypedDict

from data_modules.schema.groups import ADVICE_CLASSES, AdviceClass, Group, ScoredGroup, UnderspecifiedQuestion
from data_modules.schema.spans import Span
from storage.errors import DataError
from storage.json_files import load_json

GroupKey = tuple[tuple[str, str], str, str, str, AdviceClass, str]
"""The fields of a Group before its variants, in order: those that its two records share."""


class Half(NamedTuple):
    """One record: a question and its negation in one context order. `swapped`: this order differs from the
    key's, which candidates, scores, targets and clusters follow."""

    key: GroupKey
    swapped: bool
    questions: Sequence[UnderspecifiedQuestion]
    scores: Sequence[Sequence[tuple[float | None, float | None]]]
    targets: Sequence[int | None] = (None, None)
    clusters: tuple[str, str] | None = None
    answer: str = ""
    """Answer to the question."""


_Score = tuple[float, float]
_Answer = TypedDict("_Answer", {"text": str, "answer_start": int, "start-end-score": NotRequired[_Score]})


class _Qa(TypedDict):
    question: str
    answers: tuple[_Answer, _Answer]
    tomax: NotRequired[int]  # the answer that an adversarial loss raises; -1: none


class _Paragraph(TypedDict):
    key: str
    context: str
    qas: tuple[_Qa, _Qa]


class _Article(TypedDict):
    paragraphs: list[_Paragraph]


class _Document(TypedDict):
    data: list[_Article]


def read_scored(path: str | Path) -> Iterator[ScoredGroup]:
    """Yield the groups with the scores and targets (LEI spec 3.5) that all their questions have. DataError
    names the file and the place."""
    paragraphs = (
        (f"{path}: data[{i}].paragraphs[{j}]", paragraph)
        for i, article in enumerate(load_json(path, _Document)["data"])
        for j, paragraph in enumerate(article["paragraphs"])
    )
    return pair_halves(paragraphs, _half)


def pair_halves(records: Iterable[tuple[str, Any]], half_of: Callable[[Any], Half]) -> Iterator[ScoredGroup]:
    """(place, record) -> each group when its second half arrives; only unpaired halves are in memory. The two
    may have different advice of one class: LEI draws it per record, or corrects a sentence in one order only
    (spec 3.2, 3.6). DataError, as in `read_scored`, also for records that do not pair."""
    waiting: dict[GroupKey, tuple[str, Half]] = {}
    done: set[int] = set()  # hashes: the keys themselves would double the memory for a large file
    for where, record in records:
        try:
            half = half_of(record)
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
        other_where, other = waiting.pop(half.key, ("", None))
        if hash(half.key) in done or (other and other.swapped == half.swapped):
            raise DataError(f"{where}: the same key and context order occur a second time")
        if other is None:
            waiting[half.key] = where, half
            continue
        done.add(hash(half.key))
        if [q.question for q in other.questions] != [q.question for q in half.questions]:
            raise DataError(f"{other_where} and {where}: one key, but not the same question")
        forward, swapped = (other, half) if half.swapped else (half, other)
        variants: Any = (*forward.questions, *swapped.questions)
        scores: Any = tuple(tuple(pair) for pair in (*forward.scores, *swapped.scores))
        targets: Any = (*forward.targets, *swapped.targets)
        yield ScoredGroup(
            Group(*forward.key, variants),
            None if None in sum(sum(scores, ()), ()) else scores,
            None if None in targets else targets,
            forward.clusters,
            (forward.answer, swapped.answer),
        )
    for where, half in waiting.values():
        first, second = half.key[0] if half.swapped else half.key[0][::-1]
        raise DataError(f"{where}: no record with the subjects in the order {first}, {second}")


def parse_key(key: str) -> tuple[GroupKey, bool]:
    """x1|x2|template|category|attribute|attribute|advice id -> the key, and whether the subjects are swapped.
    An advice id such as `adversarial_poverty-1` contains the class; "" or `none`: no advice."""
    parts = [part.strip() for part in key.split("|")]
    advice_id = "" if parts[-1] == "none" else parts[-1]
    named = [name for name in ADVICE_CLASSES if re.fullmatch(rf"{name}_.+-\d+", advice_id)]
    if len(parts) != 7 or parts[4] != parts[5] or not all(parts[:6]) or (advice_id and not named):
        raise DataError(
            "the key needs x1|x2|template|category|attribute|same attribute|CLASS_CATEGORY-NUMBER of the "
            f"advice, with CLASS one of {', '.join(ADVICE_CLASSES)}; found {key}"
        )
    one, two, template, category, attribute = parts[0].lower(), parts[1].lower(), *parts[2:5]
    subjects = (min(one, two), max(one, two))
    advice_class = named[0] if named else "none"
    return (subjects, template, category.lower(), attribute.lower(), advice_class, advice_id), one > two


def split_advice(text: str, key: GroupKey) -> tuple[str, str]:
    """`Note that, ... . Who ...?` -> (question, advice with its full stop), cut at the first full stop; no
    advice if the key names none. Some published files have two spaces before the question (LEI spec 3.2)."""
    advice, stop, question = text.partition(".") if key[-1] else ("", "", text)
    if key[-1] and not (advice.strip() and question.strip()):
        raise DataError(f"no advice with a full stop before the question {text!r}")
    return question.strip(), advice.lstrip() + stop


def _half(paragraph: _Paragraph) -> Half:
    key, _ = parse_key(paragraph["key"])
    order = tuple(answer["text"].lower() for answer in paragraph["qas"][0]["answers"])
    if order not in (key[0], key[0][::-1]):
        raise DataError(f"the answers {order} are not the subjects of the key {paragraph['key']}")
    swapped, questions, scores, targets = order != key[0], [], [], list[int | None]()
    for qa in paragraph["qas"]:
        answers = qa["answers"][:: -1 if swapped else 1]
        starts = [(answer["answer_start"], answer["text"]) for answer in answers]
        first, second = (Span(start, start + len(text), text) for start, text in starts)
        question, advice = split_advice(qa["question"], key)
        questions.append(UnderspecifiedQuestion(paragraph["context"], question, (first, second), advice))
        scores.append([answer.get("start-end-score", (None, None)) for answer in answers])
        target = qa.get("tomax", -1)
        targets.append(None if target < 0 else abs(target - swapped))
    return Half(key, swapped, questions, scores, targets)
