"""Two records, one per context order, -> one Group of four variants (LEI spec 1.2, 2.2).

LEI's files and UnQover's source files both store a group as two records that may lie anywhere in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from data_modules.schema import ADVICE_CLASSES, AdviceClass, Group, Span, UnderspecifiedQuestion
from storage.errors import DataError
from storage.json_files import BadRecords

Pair = tuple[float, float]
"""(start, end) boundary probability of one candidate."""
BaseScores = tuple[tuple[Pair, Pair], tuple[Pair, Pair], tuple[Pair, Pair], tuple[Pair, Pair]]
"""[4 variants][2 subjects in the group's order][start, end]: a base model's probabilities."""
Targets = tuple[int, int, int, int]
"""Per variant, the index into `group.subjects` of the subject that an adversarial loss should raise."""


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """A group with what its file says about a base model; either may be absent."""

    group: Group
    base_scores: BaseScores | None = None
    targets: Targets | None = None


class GroupKey(NamedTuple):
    """What the two records of a group share; all lower-case but the template's id."""

    subjects: tuple[str, str]
    template: str
    category: str
    attribute: str
    advice_id: str


@dataclass(frozen=True, slots=True)
class Half:
    """One record: one context order, its question and negated question, candidates in subject order."""

    key: GroupKey
    swapped: bool
    questions: tuple[UnderspecifiedQuestion, UnderspecifiedQuestion]
    where: str
    scores: tuple[tuple[Pair, Pair], tuple[Pair, Pair]] | None = None
    targets: tuple[int, int] | None = None


def pair_halves(halves: Iterable[Half], bad: BadRecords) -> Iterator[ScoredGroup]:
    """Yield each group when its second half arrives; holds only the halves that still wait for a partner.

    DataError (through `bad`) for a repeated key and order, a half without partner, and two halves that
    ask different questions.
    """
    waiting: dict[GroupKey, Half] = {}
    done: set[int] = set()  # hashes: a set of the keys themselves would double the memory of a large file
    for half in halves:
        try:
            other = waiting.get(half.key)
            if hash(half.key) in done or (other and other.swapped == half.swapped):
                raise DataError(f"{half.where}: the same key and context order occur a second time")
            if other is None:
                waiting[half.key] = half
                continue
            done.add(hash(half.key))
            del waiting[half.key]
            yield _join(other, half) if half.swapped else _join(half, other)
        except DataError as error:
            bad.reject(error)
    for half in waiting.values():
        first, second = half.key.subjects if half.swapped else half.key.subjects[::-1]
        bad.reject(
            DataError(f"{half.where}: no record with the subjects in the other order, {first} {second}")
        )


def _join(forward: Half, swapped: Half) -> ScoredGroup:
    for one, two in zip(forward.questions, swapped.questions, strict=True):
        if one.question != two.question:
            raise DataError(
                f"{forward.where} and {swapped.where}: the two context orders of one key must ask the same "
                f"question, found {one.question!r} and {two.question!r}"
            )
    if (forward.scores is None) != (swapped.scores is None):
        raise DataError(f"{forward.where} and {swapped.where}: only one of the two context orders has scores")
    if (forward.targets is None) != (swapped.targets is None):
        raise DataError(
            f"{forward.where} and {swapped.where}: only one of the two context orders has a tomax"
        )
    key = forward.key
    group = Group(
        subjects=key.subjects,
        template=key.template,
        category=key.category,
        attribute=key.attribute,
        advice_class=advice_class(key.advice_id, forward.where),
        advice_id=key.advice_id,
        variants=(*forward.questions, *swapped.questions),
    )
    scores = (*forward.scores, *swapped.scores) if forward.scores and swapped.scores else None
    targets = (*forward.targets, *swapped.targets) if forward.targets and swapped.targets else None
    return ScoredGroup(group, scores, targets)


def advice_class(advice_id: str, where: str) -> AdviceClass:
    """`adversarial_poverty-1` -> `adversarial`; empty -> `none`."""
    if not advice_id:
        return "none"
    for name in ADVICE_CLASSES:
        if re.fullmatch(rf"{name}_.+-\d+", advice_id):
            return name
    raise DataError(
        f"{where}: the advice id {advice_id!r} is not CLASS_CATEGORY-NUMBER with CLASS one of "
        f"{', '.join(ADVICE_CLASSES)}"
    )


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


def locate_pair(context: str, first: str, second: str, where: str) -> tuple[Span, Span]:
    """The spans of the two subjects when the file gives only their texts; they never overlap.

    `first` is taken at its first occurrence and `second` after it, or the other way round if that fails;
    whole words win over parts of words (Niger is not looked for inside Nigeria).
    """
    for one, two, flip in ((first, second, False), (second, first, True)):
        for pattern in (r"(?<!\w){}(?!\w)", r"{}"):
            head = re.search(pattern.format(re.escape(one)), context)
            tail = head and re.compile(pattern.format(re.escape(two))).search(context, head.end())
            if head and tail:
                spans = (Span(*head.span(), one), Span(*tail.span(), two))
                return spans[::-1] if flip else spans
    raise DataError(f"{where}: {first!r} and {second!r} do not both occur in the context {context!r}")
