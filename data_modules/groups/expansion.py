"""Templates with two slots, filled with every pair of subjects: underspecified questions (Li et al.
2020; Zhao et al. 2021, section 2.2).

UnQover's gender domain has 2.7 million records; they are computed from a few lists and never
stored.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from interventune.data_modules.schema.groups import Group, UnderspecifiedQuestion
from interventune.data_modules.schema.spans import Span

from .advice import Advice, with_advice

SLOT = re.compile(r"\[subj([12])(:[^\]]*)?\]")
# The article before a vowel letter, whatever the pronunciation ("an European"), between single
# spaces only: a tab separates contexts from questions.
_ARTICLE = re.compile(r"(?<![^ ])[aA](?= [aeiouAEIOU])")


@dataclass(frozen=True)
class Subject:
    """One subject: its plain form first, then any others (`:dem`, the demonym), by the head's
    suffix.
    """

    cluster: str
    forms: dict[str, str]

    @property
    def name(self) -> str:
        """The plain form, which identifies the subject in ids and keys."""
        return self.forms[""]


SubjectPair = tuple[Subject, Subject]


@dataclass(frozen=True)
class Cell:
    """A template with one attribute filled in, to be combined with every pair of subjects."""

    template: int
    """Index among the kept lines of the file, from 0."""
    category: str
    attribute: str
    """Its name in ids and keys."""
    line: str

    def fill(self, pair: Sequence[Subject]) -> tuple[list[str], list[Span]]:
        """Return [context, question, negated question], with articles repaired, and the spans of
        the subjects (counted, because a search could find one inside another word).
        """
        line, *rest = SLOT.split(self.line)
        spans: dict[str, Span] = {}
        for side, form, text in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
            name = pair[int(side) - 1].forms[form or ""]
            start = len(repair_articles(line + name[0])) - 1
            spans.setdefault(side, Span(start, start + len(name), name))
            line += name + text
        return repair_articles(line).split("\t"), [spans["1"], spans["2"]]


def repair_articles(line: str) -> str:
    """`a European` -> `an European`: every separate article before a vowel letter, as UnQover's
    authors do.
    """
    return _ARTICLE.sub(r"\g<0>n", line)


class Expansion(Sequence[Group]):
    """The groups of some lists, created on access: every pair of subjects with every cell, without
    advice, or with every `advice` of the cell's category.
    """

    def __init__(
        self,
        pairs: Sequence[SubjectPair],
        cells: Sequence[Cell],
        advice: Sequence[Advice | None] = (None,),
    ) -> None:
        self.pairs, self.cells = pairs, cells
        self._advised = [
            (cell, item)
            for cell in cells
            for item in advice
            if item is None or item.category == cell.category.lower()
        ]

    def __len__(self) -> int:
        return len(self.pairs) * len(self._advised)

    def __getitem__(self, index: int) -> Group:  # type: ignore[override]  # no slices
        pair_index, rest = divmod(range(len(self))[index], len(self._advised))
        cell, advice = self._advised[rest]
        pair = sorted(self.pairs[pair_index], key=lambda subject: subject.name.lower())
        variants: Any = []
        for step in (1, -1):
            (context, *questions), spans = cell.fill(pair[::step])
            first, second = spans[::step]
            variants += [
                UnderspecifiedQuestion(context, text, (first, second)) for text in questions
            ]
        names: Any = tuple(subject.name.lower() for subject in pair)
        category, attribute = cell.category.lower(), cell.attribute.lower()
        group = Group(names, str(cell.template), category, attribute, "none", "", tuple(variants))
        return with_advice(group, advice.text, advice.advice_class, advice.id) if advice else group
