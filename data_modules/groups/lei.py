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
from typing import Any

from data_modules.groups.pairing import (
    BaseScores,
    GroupKey,
    Half,
    Pair,
    ScoredGroup,
    advice_class,
    pair_halves,
    split_advice,
)
from data_modules.questions.squad import is_true, paragraphs
from data_modules.schema import Group, Span, UnderspecifiedQuestion
from storage.errors import DataError
from storage.json_files import BadRecords, atomic_text, field, load_json

NO_TARGET = -1
"""`tomax` of the classes that have no adversarial loss."""


def read_lei(path: str | Path, *, skip_bad: bool = False) -> Iterator[tuple[Group, BaseScores | None]]:
    """(group, base_scores) per key; base_scores is [4][2][2] = variants, subjects in the group's order,
    (start, end) probability, or None when the file has no `start-end-score`.

    Raises DataError naming the file, the place and the key or question id; `skip_bad=True` leaves out the
    records that are inconsistent and logs how many.
    """
    for record in read_lei_records(path, skip_bad=skip_bad):
        yield record.group, record.base_scores


def read_lei_records(path: str | Path, *, skip_bad: bool = False) -> Iterator[ScoredGroup]:
    """The same with `targets`, the file's `tomax` as indices into `group.subjects` (LEI spec 3.5)."""
    yield from lei_records(load_json(path), path, skip_bad=skip_bad)


def lei_records(document: Any, source: str | Path, *, skip_bad: bool = False) -> Iterator[ScoredGroup]:
    """The same for a document that is already parsed; `source` names it in errors."""
    bad = BadRecords(source, skip_bad=skip_bad)
    yield from pair_halves(_halves(document, source, bad), bad)
    bad.report()


def _halves(document: Any, source: str | Path, bad: BadRecords) -> Iterator[Half]:
    for where, paragraph in paragraphs(document, source):
        try:
            yield _half(paragraph, where)
        except DataError as error:
            bad.reject(error)


def _half(paragraph: Any, where: str) -> Half:
    key = parse_key(field(paragraph, "key", str, where), where)
    where = f"{where} (key {paragraph['key']})"
    stated = field(paragraph, "intervention", str, where)
    if stated != advice_class(key.advice_id, where):
        raise DataError(
            f"{where}: the field 'intervention' is {stated!r} but the key's advice is {key.advice_id!r}"
        )
    context = field(paragraph, "context", str, where)
    qas = field(paragraph, "qas", list, where)
    if len(qas) != 2:
        raise DataError(f"{where}: expected 2 questions (one and its negation), found {len(qas)}")
    order = _context_order(paragraph, qas[0], key, where)
    swapped = order != key.subjects
    parsed = [_question(qa, context, order, key, f"{where}.qas[{i}]") for i, qa in enumerate(qas)]
    if swapped:
        parsed = [_reversed(*item) for item in parsed]
    (one, scores_one, target_one), (two, scores_two, target_two) = parsed
    if (scores_one is None) != (scores_two is None) or (target_one is None) != (target_two is None):
        raise DataError(f"{where}: only one of the two questions has a start-end-score or a tomax")
    scores = (scores_one, scores_two) if scores_one and scores_two else None
    targets = (target_one, target_two) if target_one is not None and target_two is not None else None
    return Half(key, swapped, (one, two), where, scores, targets)


def parse_key(text: str, where: str) -> GroupKey:
    """`x1|x2|template|category|attribute|attribute|advice_id`, x1 < x2; an empty or `none` last field means
    no advice."""
    parts = [part.strip() for part in text.split("|")]
    if len(parts) != 7:
        raise DataError(f"{where}: the key {text!r} has {len(parts)} fields instead of 7")
    one, two, template, category, attribute, again, advice_id = parts
    if attribute != again or not all(parts[:6]):
        raise DataError(
            f"{where}: the key {text!r} needs x1|x2|template|category|attribute|same attribute|advice"
        )
    if not one.lower() < two.lower():
        raise DataError(f"{where}: the key {text!r} must name two different subjects in alphabetical order")
    advice_id = "" if advice_id == "none" else advice_id
    return GroupKey((one.lower(), two.lower()), template, category.lower(), attribute.lower(), advice_id)


def _context_order(paragraph: Any, qa: Any, key: GroupKey, where: str) -> tuple[str, str]:
    """The key's subjects as the context has them: from the answers' texts, or from our field `subjects`
    where a surface form differs from the key's (French for France)."""
    if "subjects" in paragraph:
        order = tuple(str(name).lower() for name in field(paragraph, "subjects", list, where))
    else:
        answers = field(qa, "answers", list, f"{where}.qas[0]")
        order = tuple(field(a, "text", str, f"{where}.qas[0].answers").lower() for a in answers)
    if order not in (key.subjects, key.subjects[::-1]):
        raise DataError(f"{where}: the answers {order} are not the key's subjects {key.subjects}")
    return (order[0], order[1])


_Parsed = tuple[UnderspecifiedQuestion, tuple[Pair, Pair] | None, int | None]


def _question(qa: Any, context: str, order: tuple[str, str], key: GroupKey, where: str) -> _Parsed:
    where = f"{where} (id {field(qa, 'id', (str, int), where)})"
    if is_true(qa.get("is_impossible", False), where):
        raise DataError(f"{where}: is_impossible is true, but an underspecified question has two candidates")
    answers = field(qa, "answers", list, where)
    if len(answers) != 2:
        raise DataError(f"{where}: expected 2 answers (the two subjects), found {len(answers)}")
    first, second = (_candidate(a, context, f"{where}.answers[{i}]") for i, a in enumerate(answers))
    if first.start < second.end and second.start < first.end:
        raise DataError(f"{where}: the two answers overlap in the context {context!r}")
    advice, question = _advice_and_question(qa, key, where)
    scores = [_score(a, f"{where}.answers[{i}]") for i, a in enumerate(answers)]
    if (scores[0] is None) != (scores[1] is None):
        raise DataError(f"{where}: only one of the two answers has a start-end-score")
    pair = (scores[0], scores[1]) if scores[0] and scores[1] else None
    tomax = field(qa, "tomax", int, where) if "tomax" in qa else NO_TARGET
    if tomax not in (NO_TARGET, 0, 1):
        raise DataError(f"{where}: tomax is {tomax}; it must be 0, 1, or -1 for none")
    target = None if tomax == NO_TARGET else tomax
    return UnderspecifiedQuestion(context, question, (first, second), advice), pair, target


def _candidate(answer: Any, context: str, where: str) -> Span:
    text, start = field(answer, "text", str, where), field(answer, "answer_start", int, where)
    if start < 0 or not text:
        raise DataError(f"{where}: answer {text!r} at offset {start} is empty or lies before the context")
    span = Span(start, start + len(text), text)
    span.check(context, where)
    return span


def _advice_and_question(qa: Any, key: GroupKey, where: str) -> tuple[str, str]:
    text = field(qa, "question", str, where)
    if not key.advice_id:
        return "", text.strip()
    if "advice" not in qa:
        return split_advice(text, where)
    advice = field(qa, "advice", str, where)
    if not advice or not text.startswith(advice):
        raise DataError(f"{where}: the question does not begin with its advice {advice!r}")
    return advice, text[len(advice) :].strip()


def _score(answer: Any, where: str) -> Pair | None:
    if "start-end-score" not in answer:
        return None
    values = field(answer, "start-end-score", list, where)
    numeric = all(isinstance(v, (int, float)) and not isinstance(v, bool) and 0 <= v <= 1.001 for v in values)
    if len(values) != 2 or not numeric:
        raise DataError(f"{where}: start-end-score must be two probabilities, found {values!r}")
    return (float(values[0]), float(values[1]))


def _reversed(
    question: UnderspecifiedQuestion, scores: tuple[Pair, Pair] | None, target: int | None
) -> _Parsed:
    first, second = question.candidates
    turned = UnderspecifiedQuestion(question.context, question.question, (second, first), question.advice)
    return turned, scores and (scores[1], scores[0]), None if target is None else 1 - target


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
    parse_key(group.key, f"group {group.key!r}")  # a `|` inside a part would make the file unreadable
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
