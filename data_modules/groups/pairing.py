"""Two records, one per context order, -> one Group of four variants (LEI spec 1.2, 2.2).

LEI's files and UnQover's source files both store a group as two records that may lie anywhere in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from data_modules.schema import ADVICE_CLASSES, AdviceClass, Group, UnderspecifiedQuestion
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


class Asked(NamedTuple):
    """A question of one record; candidates, scores and target in the order of its context."""

    question: UnderspecifiedQuestion
    scores: Sequence[Pair | None] = (None, None)
    target: int | None = None


class Half(NamedTuple):
    """One record: one context order with its question and negated question."""

    key: GroupKey
    swapped: bool
    asked: tuple[Asked, Asked]
    where: str


def make_group(key: GroupKey, forward: Sequence[Asked], swapped: Sequence[Asked], where: str) -> ScoredGroup:
    """The group of two records: `forward` names the subjects in the order of the key, `swapped` in the other.

    DataError, which begins with `where`, unless all or none of the answers have scores, and all or none of
    the questions targets.
    """
    ordered = [*forward, *(_reversed(asked) for asked in swapped)]
    one, two, three, four = (asked.question for asked in ordered)
    group = Group(
        subjects=key.subjects,
        template=key.template,
        category=key.category,
        attribute=key.attribute,
        advice_class=advice_class(key.advice_id, where),
        advice_id=key.advice_id,
        variants=(one, two, three, four),
    )
    scores = tuple(tuple(asked.scores) for asked in ordered)
    targets = tuple(asked.target for asked in ordered)
    for name, values in (("start-end-score", [s for pair in scores for s in pair]), ("tomax", list(targets))):
        if None in values and values != [None] * len(values):
            raise DataError(f"{where}: only some of the group's records have a {name}; give all of them one")
    return ScoredGroup(
        group,
        None if None in scores[0] else scores,  # type: ignore[arg-type]
        None if None in targets else targets,  # type: ignore[arg-type]
    )


def _reversed(asked: Asked) -> Asked:
    question = asked.question
    one, two = question.candidates
    turned = UnderspecifiedQuestion(question.context, question.question, (two, one), question.advice)
    return Asked(turned, asked.scores[::-1], None if asked.target is None else 1 - asked.target)


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
    where = f"{forward.where} and {swapped.where}"
    for (one, *_), (two, *_) in zip(forward.asked, swapped.asked, strict=True):
        if one.question != two.question:
            raise DataError(
                f"{where}: the two context orders of one key must ask the same question, found "
                f"{one.question!r} and {two.question!r}"
            )
    return make_group(forward.key, forward.asked, swapped.asked, where)


def parse_key(parts: Sequence[str], where: str) -> tuple[GroupKey, bool]:
    """(x1, x2, template, category, attribute, attribute, advice id) -> the key, and whether the subjects are
    in the other order. An empty or `none` advice id means no advice."""
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
    subjects = (min(one, two), max(one, two))
    return GroupKey(subjects, template, category.lower(), attribute.lower(), advice_id), one > two


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
