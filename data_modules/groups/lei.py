"""LEI's SQuAD-style files of underspecified questions with advice: reader and writer (LEI spec 3.3).

A paragraph holds one context order of a group: its question and its negated question, each with the two
subjects as "answers" in context order, and optionally a base model's probabilities (`start-end-score`) and
the answer that an adversarial loss raises (`tomax`). UnQover's files (unqover_source.py) store a group as two
records too, one per context order, which may lie anywhere in the file: both are paired here.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NotRequired, TypeVar

from pydantic import Field, StrictFloat, StrictInt
from typing_extensions import TypedDict

from data_modules.schema import (
    ADVICE_CLASSES,
    AdviceClass,
    Group,
    Span,
    TruthValue,
    UnderspecifiedQuestion,
)
from storage.errors import DataError
from storage.files import atomic_text
from storage.json_files import BadRecords, check, load_json

logger = logging.getLogger(__name__)

NO_TARGET = -1
"""`tomax` of the classes that have no adversarial loss."""

Record = TypeVar("Record")
Pair = tuple[float, float]
"""(start, end) boundary probability of one candidate."""
BaseScores = tuple[tuple[Pair, Pair], tuple[Pair, Pair], tuple[Pair, Pair], tuple[Pair, Pair]]
"""[4 variants][2 subjects in the group's order][start, end]: a base model's probabilities."""
Targets = tuple[int, int, int, int]
"""Per variant, the index into `group.subjects` of the subject that an adversarial loss should raise."""
GroupKey = tuple[tuple[str, str], str, str, str, AdviceClass, str]
"""The fields of a Group but its variants, in their order: what its two records share."""


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """A group with what its file says about a base model and its subjects; each may be absent."""

    group: Group
    base_scores: BaseScores | None = None
    targets: Targets | None = None
    clusters: tuple[str, str] | None = None
    """Of the group's subjects, where UnQover's ids name some (female, male)."""
    answers: tuple[str, str] = ("", "")
    """To the question in both orders (`pred`); empty where there was none, or where the file does not say."""


class Half(NamedTuple):
    """One record: a question and its negation in one context order; `swapped`: not that of the key.

    Candidates, scores and targets stand in the order of the context.
    """

    key: GroupKey
    swapped: bool
    questions: Sequence[UnderspecifiedQuestion]
    scores: Sequence[Sequence[Pair | None]] = ((None, None), (None, None))
    targets: Sequence[int | None] = (None, None)
    clusters: tuple[str, str] | None = None
    """In the order of the key."""
    answer: str = ""
    """To the question."""
    domains: tuple[str, str] = ("", "")
    """Of the subjects, and of the advice."""


Probability = Annotated[StrictFloat, Field(ge=0, le=1.001)]
"""Just above 1 is rounding."""

_Answer = TypedDict(
    "_Answer",
    {"text": str, "answer_start": StrictInt, "start-end-score": NotRequired[tuple[Probability, Probability]]},
)


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
    domain: NotRequired[str]
    advice_domain: NotRequired[str]


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
    articles = load_json(path, _Document)["data"]
    paragraphs = (
        (f"{path}: data[{i}].paragraphs[{j}]", paragraph)
        for i, article in enumerate(articles)
        for j, paragraph in enumerate(article["paragraphs"])
    )
    return pair_halves(paragraphs, _half, path, skip_bad=skip_bad)


def pair_halves(
    records: Iterable[tuple[str, Record]],
    half_of: Callable[[str, Record], Half],
    source: str | Path,
    *,
    skip_bad: bool,
) -> Iterator[ScoredGroup]:
    """Yield each group when its second half arrives; holds only the halves that still wait for a partner.

    The two orders of a group may carry different advice of one class: LEI draws it for each record, or mends
    a sentence in one order alone (spec 3.2, 3.6). Such groups are kept, and a warning counts them.

    Args:
        records: (place, record).
        half_of: reads one of them.
        source: for the warning about skipped records.
        skip_bad: leave out bad records.

    Raises:
        DataError: of `half_of`; a repeated key and order, a half without partner, two halves that ask
            different questions, scores or targets of some of a group's questions only.
    """
    waiting: dict[GroupKey, tuple[str, Half]] = {}
    done: set[int] = set()  # hashes: a set of the keys themselves would double the memory of a large file
    differing, first_differing = 0, ""
    with BadRecords(source, skip_bad=skip_bad) as bad:
        for where, record in records:
            try:
                half = half_of(where, record)
                other_where, other = waiting.get(half.key, ("", None))
                if hash(half.key) in done or (other and other.swapped == half.swapped):
                    raise DataError(f"{where}: the same key and context order occur a second time")
                if other is None:
                    waiting[half.key] = where, half
                    continue
                done.add(hash(half.key))
                del waiting[half.key]
                both = f"{other_where} and {where}"
                forward, swapped = (other, half) if half.swapped else (half, other)
                for ours, theirs in zip(forward.questions, swapped.questions, strict=True):
                    if ours.question != theirs.question:
                        raise DataError(
                            f"{both}: the two context orders of one key must ask the same question, found "
                            f"{ours.question!r} and {theirs.question!r}"
                        )
                one, two = forward.questions
                three, four = (replace(q, candidates=q.candidates[::-1]) for q in swapped.questions)
                scores: Any = (*map(tuple, forward.scores), *(tuple(pair[::-1]) for pair in swapped.scores))
                targets: Any = (*forward.targets, *(t if t is None else 1 - t for t in swapped.targets))
                for name, values in (("start-end-score", sum(scores, ())), ("tomax", targets)):
                    if None in values and any(value is not None for value in values):
                        raise DataError(
                            f"{both}: only some of the group's records have a {name}; give all of them one"
                        )
                if forward.domains != swapped.domains:
                    raise DataError(
                        f"{both}: the two context orders of one key must name the same domain and "
                        f"advice_domain, found {forward.domains} and {swapped.domains}"
                    )
                group = Group(*half.key, (one, two, three, four), *half.domains)
                if len({variant.advice for variant in group.variants}) > 1:
                    differing, first_differing = differing + 1, first_differing or group.key
                yield ScoredGroup(
                    group,
                    None if None in scores[0] else scores,
                    None if None in targets else targets,
                    half.clusters,
                    (forward.answer, swapped.answer),
                )
            except DataError as error:
                bad.reject(error)
        for where, half in waiting.values():
            first, second = half.key[0] if half.swapped else half.key[0][::-1]
            bad.reject(
                DataError(f"{where}: no record with the subjects in the other order, {first} {second}")
            )
    if differing:
        logger.warning(
            "%s: %d of %d groups carry different advice (of one class) in their two orders, the first %r; "
            "their scores are averaged over both",
            *(source, differing, len(done), first_differing),
        )


def parse_key(parts: Sequence[str], where: str) -> tuple[GroupKey, bool]:
    """(x1, x2, template, category, attribute, attribute, advice id) -> the key, and whether the subjects are
    in the other order. An advice id as `adversarial_poverty-1` tells the class; "" or `none`: no advice."""
    if len(parts) != 7:
        raise DataError(f"{where}: the key {'|'.join(parts)!r} has {len(parts)} parts instead of 7")
    one, two, template, category, attribute, again, advice_id = (part.strip() for part in parts)
    if attribute != again or not all((one, two, template, category, attribute)):
        raise DataError(
            f"{where}: the key needs x1|x2|template|category|attribute|same attribute|advice, "
            f"found {'|'.join(parts)!r}"
        )
    one, two = one.lower(), two.lower()
    if one == two:
        raise DataError(f"{where}: both subjects are {one!r}")
    advice_id = "" if advice_id == "none" else advice_id
    named = (name for name in ADVICE_CLASSES if re.fullmatch(rf"{name}_.+-\d+", advice_id))
    advice_class = next(named, None) if advice_id else "none"
    if advice_class is None:
        raise DataError(
            f"{where}: the advice id {advice_id!r} is not CLASS_CATEGORY-NUMBER with CLASS one of "
            f"{', '.join(ADVICE_CLASSES)}"
        )
    subjects = (min(one, two), max(one, two))
    return (subjects, template, category.lower(), attribute.lower(), advice_class, advice_id), one > two


def split_advice(question: str, where: str) -> tuple[str, str]:
    """`Note that, ... . Who ...?` -> (advice with its full stop, question), cut at the first full stop.

    Blanks around either part go: some shipped files carry two before the question (LEI spec 3.2).
    """
    advice, stop, rest = question.partition(".")
    if not stop or not advice.strip() or not rest.strip():
        raise DataError(
            f"{where}: no advice sentence that ends in a full stop before the question {question!r}"
        )
    return advice.lstrip() + stop, rest.strip()


def _half(place: str, record: Any) -> Half:
    paragraph = check(record, _Paragraph, place)
    where = f"{place} (key {paragraph['key']})"
    key, swapped = parse_key(paragraph["key"].split("|"), where)
    if swapped:
        raise DataError(f"{where}: the key {paragraph['key']!r} must name its subjects in alphabetical order")
    subjects, *_, advice_class, advice_id = key
    stated = paragraph["intervention"]
    if stated != advice_class:
        raise DataError(
            f"{where}: the field 'intervention' is {stated!r} but the key's advice is {advice_id!r}"
        )
    # A surface form may differ from the key's name (French for France); then our field says who is who.
    names = paragraph.get("subjects") or [answer["text"] for answer in paragraph["qas"][0]["answers"]]
    order = tuple(name.lower() for name in names)
    if order not in (subjects, subjects[::-1]):
        raise DataError(f"{where}: the answers {order} are not the key's subjects {subjects}")
    context, questions = paragraph["context"], []
    for i, qa in enumerate(paragraph["qas"]):
        where = f"{place} (key {paragraph['key']}).qas[{i}] (id {qa['id']})"
        if str(qa.get("is_impossible")).lower() == "true":
            raise DataError(
                f"{where}: is_impossible is true, but an underspecified question has two candidates"
            )
        spans = []
        for j, answer in enumerate(qa["answers"]):
            start, text = answer["answer_start"], answer["text"]
            end = start + len(text)
            if start < 0 or not text or context[start:end] != text:
                raise DataError(f"{where}.answers[{j}]: {text!r} does not stand at {start} in {context!r}")
            spans.append(Span(start, end, text))
        first, second = spans
        if first.start < second.end and second.start < first.end:
            raise DataError(f"{where}: the two answers overlap in the context {context!r}")
        advice, question = "", qa["question"].strip()
        if advice_id and "advice" in qa:
            advice = qa["advice"]
            if not advice or not qa["question"].startswith(advice):
                raise DataError(f"{where}: the question does not begin with its advice {advice!r}")
            question = qa["question"][len(advice) :].strip()
        elif advice_id:
            advice, question = split_advice(qa["question"], where)
        questions.append(UnderspecifiedQuestion(context, question, (first, second), advice))
    scores = [[answer.get("start-end-score") for answer in qa["answers"]] for qa in paragraph["qas"]]
    targets = [qa.get("tomax", NO_TARGET) for qa in paragraph["qas"]]
    return Half(
        key,
        order != subjects,
        questions,
        scores,
        [None if t == NO_TARGET else t for t in targets],
        domains=(paragraph.get("domain", ""), paragraph.get("advice_domain", "")),
    )


def write_lei(records: Iterable[ScoredGroup | Group], path: str | Path) -> Counter[str]:
    """Write LEI's layout, one paragraph per line, two per group; returns the groups of each class. Atomic.

    Fields of our own appear only where the layout alone would lose something: `subjects` in a paragraph whose
    surface forms differ from the key's, `domain` and `advice_domain` in one that knows them, `advice` in a
    question whose advice is not one sentence.

    Raises:
        DataError: a group could not be read back: a `|` in its key, or its advice denies its class.
    """
    counts: Counter[str] = Counter()
    with atomic_text(path) as file:
        file.write('{"version": "squad, iid", "data": [')
        for record in records:
            scored = record if isinstance(record, ScoredGroup) else ScoredGroup(record)
            key = scored.group.key
            parse_key(key.split("|"), f"group {key!r}")  # a `|` inside a part would make the file unreadable
            if any(bool(variant.advice) != bool(scored.group.advice_id) for variant in scored.group.variants):
                raise DataError(
                    f"group {key!r}: class {scored.group.advice_class} with the advice "
                    f"{scored.group.variants[0].advice!r} could not be read back; class none has no advice, "
                    "any other has some"
                )
            for line in (2 * counts.total(), 2 * counts.total() + 1):
                file.write(",\n" if line else "\n")
                file.write(json.dumps(_article(scored, line % 2, line)))
            counts[scored.group.advice_class] += 1
        file.write("\n]}\n")
    return counts


def _article(record: ScoredGroup, order: int, line: int) -> dict[str, Any]:
    """The questions of one context order; `line` numbers it in the file."""
    group = record.group
    qas: list[dict[str, Any]] = []
    context_order = (1, 0) if order else (0, 1)
    for i in (0, 1):
        variant = 2 * order + i
        question = group.variants[variant]
        answers: list[dict[str, Any]] = []
        for subject in context_order:
            span = question.candidates[subject]
            answers.append({"text": span.text, "answer_start": span.start})
            if record.base_scores is not None:
                answers[-1]["start-end-score"] = list(record.base_scores[variant][subject])
        text = f"{question.advice} {question.question}" if question.advice else question.question
        target = NO_TARGET if record.targets is None else context_order[record.targets[variant]]
        qas.append({"id": f"{line}{i}", "question": text, "answers": answers, "tomax": target})
        qas[i]["is_impossible"] = "false"
        if question.advice and not re.fullmatch(r"[^.\s][^.]*\.", question.advice):
            qas[i]["advice"] = question.advice
    paragraph: dict[str, Any] = {"qas": qas, "key": group.key, "context": group.variants[2 * order].context}
    paragraph["intervention"] = group.advice_class
    names = [group.subjects[subject] for subject in context_order]
    if [answer["text"].lower() for answer in qas[0]["answers"]] != names:
        paragraph["subjects"] = names
    if group.domain:
        paragraph["domain"] = group.domain
    if group.advice_domain:
        paragraph["advice_domain"] = group.advice_domain
    return {"title": "-".join(group.subjects), "paragraphs": [paragraph]}
