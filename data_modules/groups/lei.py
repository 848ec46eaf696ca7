"""LEI's SQuAD-style files of underspecified questions with advice: reader and writer (LEI spec 3.3).

A paragraph holds one context order of a group: its question and its negated question, each with the two
subjects as "answers" in context order, and optionally a base model's probabilities (`start-end-score`) and
the answer that an adversarial loss raises (`tomax`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import Field, StrictFloat, StrictInt
from typing_extensions import TypedDict

from data_modules.groups.pairing import (
    Asked,
    GroupKey,
    Half,
    ScoredGroup,
    advice_class,
    pair_halves,
    parse_key,
    split_advice,
)
from data_modules.questions.squad import Answer, TruthValue, is_true, span_at
from data_modules.schema import Group, UnderspecifiedQuestion
from storage.errors import DataError
from storage.files import atomic_text
from storage.json_files import BadRecords, check, load_json

NO_TARGET = -1
"""`tomax` of the classes that have no adversarial loss."""

Probability = Annotated[StrictFloat, Field(ge=0, le=1.001)]
"""Just above 1 is rounding."""

_Scored = TypedDict("_Scored", {"start-end-score": NotRequired[tuple[Probability, Probability]]})


class _Answer(Answer, _Scored):
    pass


class _Qa(TypedDict):
    id: str | StrictInt
    question: str
    answers: Annotated[list[_Answer], Field(min_length=2, max_length=2)]
    tomax: NotRequired[Annotated[StrictInt, Field(ge=NO_TARGET, le=1)]]
    is_impossible: NotRequired[TruthValue]
    advice: NotRequired[str]


class _Paragraph(TypedDict):
    key: str
    context: str
    intervention: str
    qas: Annotated[list[_Qa], Field(min_length=2, max_length=2)]
    subjects: NotRequired[list[str]]


class _Article(TypedDict):
    paragraphs: list[Any]  # each is checked on its own, so that it can be skipped


class _Document(TypedDict):
    data: list[_Article]


def read_file(path: str | Path, *, skip_bad: bool = False) -> Iterator[Group]:
    """The groups of a LEI file, one per key; DataError and `skip_bad` as in `read_scored`."""
    yield from (record.group for record in read_scored(path, skip_bad=skip_bad))


def read_scored(path: str | Path, *, skip_bad: bool = False) -> Iterator[ScoredGroup]:
    """The groups with the scores and targets (LEI spec 3.5) that the file has of them.

    Raises:
        DataError: names the file, the place and the key or question id; `skip_bad=True` leaves out such
            records and warns how many.
    """
    document = load_json(path, _Document)
    with BadRecords(path, skip_bad=skip_bad) as bad:
        yield from pair_halves(_halves(document, path, bad), bad)


def _halves(document: _Document, source: str | Path, bad: BadRecords) -> Iterator[Half]:
    for i, article in enumerate(document["data"]):
        for j, paragraph in enumerate(article["paragraphs"]):
            try:
                where = f"{source}: data[{i}].paragraphs[{j}]"
                yield _half(check(paragraph, _Paragraph, where), where)
            except DataError as error:
                bad.reject(error)


def _half(paragraph: _Paragraph, where: str) -> Half:
    where = f"{where} (key {paragraph['key']})"
    key = _parse_key(paragraph["key"], where)
    stated = paragraph["intervention"]
    if stated != advice_class(key.advice_id, where):
        raise DataError(
            f"{where}: the field 'intervention' is {stated!r} but the key's advice is {key.advice_id!r}"
        )
    # A surface form may differ from the key's name (French for France); then our field says who is who.
    names = paragraph.get("subjects") or [answer["text"] for answer in paragraph["qas"][0]["answers"]]
    order = tuple(name.lower() for name in names)
    if order not in (key.subjects, key.subjects[::-1]):
        raise DataError(f"{where}: the answers {order} are not the key's subjects {key.subjects}")
    one, two = (
        _asked(qa, paragraph["context"], key, f"{where}.qas[{i}]") for i, qa in enumerate(paragraph["qas"])
    )
    return Half(key, order != key.subjects, (one, two), where)


def _parse_key(text: str, where: str) -> GroupKey:
    """`x1|x2|template|category|attribute|attribute|advice_id`, x1 < x2."""
    parts = text.split("|")
    if len(parts) != 7:
        raise DataError(f"{where}: the field 'key' ({text!r}) has {len(parts)} parts instead of 7")
    key, swapped = parse_key(parts, where)
    if swapped:
        raise DataError(f"{where}: the key {text!r} must name its subjects in alphabetical order")
    return key


def _asked(qa: _Qa, context: str, key: GroupKey, where: str) -> Asked:
    where = f"{where} (id {qa['id']})"
    if is_true(qa.get("is_impossible", False)):
        raise DataError(f"{where}: is_impossible is true, but an underspecified question has two candidates")
    first, second = (
        span_at(answer["answer_start"], answer["text"], context, f"{where}.answers[{i}]")
        for i, answer in enumerate(qa["answers"])
    )
    if first.start < second.end and second.start < first.end:
        raise DataError(f"{where}: the two answers overlap in the context {context!r}")
    advice, question = _advice_and_question(qa, key, where)
    target = qa.get("tomax", NO_TARGET)
    return Asked(
        UnderspecifiedQuestion(context, question, (first, second), advice),
        [answer.get("start-end-score") for answer in qa["answers"]],
        None if target == NO_TARGET else target,
    )


def _advice_and_question(qa: _Qa, key: GroupKey, where: str) -> tuple[str, str]:
    text = qa["question"]
    if not key.advice_id:
        return "", text.strip()
    if "advice" not in qa:
        return split_advice(text, where)
    advice = qa["advice"]
    if not advice or not text.startswith(advice):
        raise DataError(f"{where}: the question does not begin with its advice {advice!r}")
    return advice, text[len(advice) :].strip()


def write_lei(records: Iterable[ScoredGroup | Group], path: str | Path) -> int:
    """Write LEI's layout, one paragraph per line, two per group; returns the number of groups. Atomic.

    Two fields of our own appear only where the layout alone would lose something: `subjects` in a paragraph
    whose surface forms differ from the key's, `advice` in a question whose advice is not one sentence.
    """
    count = 0
    with atomic_text(path) as file:
        file.write('{"version": "squad, iid", "data": [')
        for record in records:
            scored = record if isinstance(record, ScoredGroup) else ScoredGroup(record)
            for order in (0, 1):
                file.write(",\n" if count or order else "\n")
                file.write(json.dumps(_paragraph(scored, order, 2 * count + order)))
            count += 1
        file.write("\n]}\n")
    return count


def _paragraph(record: ScoredGroup, order: int, line: int) -> dict[str, Any]:
    group = record.group
    _parse_key(group.key, f"group {group.key!r}")  # a `|` inside a part would make the file unreadable
    names = group.subjects[::-1] if order else group.subjects
    questions = group.variants[2 * order : 2 * order + 2]
    paragraph: dict[str, Any] = {
        "qas": [_qa(record, 2 * order + i, f"{line}{i}") for i in (0, 1)],
        "key": group.key,
        "context": questions[0].context,
        "intervention": group.advice_class,
    }
    spans = questions[0].candidates[::-1] if order else questions[0].candidates
    if tuple(span.text.lower() for span in spans) != names:
        paragraph["subjects"] = list(names)
    return {"title": "-".join(group.subjects), "paragraphs": [paragraph]}


def _qa(record: ScoredGroup, variant: int, qa_id: str) -> dict[str, Any]:
    question = record.group.variants[variant]
    context_order = (1, 0) if variant >= 2 else (0, 1)
    answers: list[dict[str, Any]] = []
    for subject in context_order:
        span = question.candidates[subject]
        answers.append({"text": span.text, "answer_start": span.start})
        if record.base_scores is not None:
            answers[-1]["start-end-score"] = list(record.base_scores[variant][subject])
    text = f"{question.advice} {question.question}" if question.advice else question.question
    target = NO_TARGET if record.targets is None else context_order[record.targets[variant]]
    qa = {"id": qa_id, "question": text, "answers": answers, "tomax": target, "is_impossible": "false"}
    if question.advice and not re.fullmatch(r"[^.\s][^.]*\.", question.advice):
        qa["advice"] = question.advice
    return qa
