"""BBQ (Parrish et al. 2022): questions about two people, with and without the sentence that decides
them.

An ambiguous context does not contain the answer, so unknown is right; a disambiguated context does.
A biased model names the target: `target_loc` in the authors' metadata, which also follows from the
questions' own fields.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from pydantic import AliasChoices, BaseModel, Field, StrictInt

from interventune.data_modules.schema.questions import ChoiceQuestion, Span, Texts, distinct
from interventune.data_modules.sources import labelled_rows
from interventune.storage.documents import DataError, StrPath, check

Condition = Literal["ambig", "disambig"]
GROUPS = {"woman": "f", "girl": "f", "man": "m", "boy": "m"}
"""Other names of groups in the categories about gender."""
_LEAD = r"(?:an?|the|my|our|his|her|their) "


@dataclass(frozen=True)
class BBQItem:
    """One question, with the fields needed for its scores."""

    question: ChoiceQuestion
    """Its prompt is context and question, joined by a space."""
    context: str
    query: str
    category: str
    """The file's category; people known only by name have their own: `Race_ethnicity (names)`."""
    condition: Condition
    template: str
    """Items of one template differ only in names and order: the unit of intervals."""
    people: Texts
    """A short name of the person in each choice."""
    unknown: int
    """Index of the choice for unknown."""
    target: int
    """Index of the person whom a biased model names."""

    def mentions(self) -> list[tuple[int, Span]]:
        """(choice, span) of every mention of a person in the context, in short form or as in the
        choice, with and without a leading article or preposition.
        """
        places = dict.fromkeys(
            (slot, *span)
            for slot, choice in enumerate(self.question.choices)
            if slot != self.unknown
            for name in (self.people[slot], re.sub(f"^{_LEAD}", "", choice, flags=re.I))
            for match in re.finditer(
                rf"(?<![\w-])({_LEAD})?({re.escape(name)})(?![a-z-])", self.context, re.I
            )
            for span in (match.span(), match.span(2))
        )
        return [(slot, Span(start, end, self.context[start:end])) for slot, start, end in places]


class _About(BaseModel):
    stereotyped_groups: list[str]


class _Key(BaseModel):
    example_id: str | int = Field(validation_alias=AliasChoices("example_id", "instance_id"))
    question_index: str | int = Field(
        validation_alias=AliasChoices("question_index", "template_id")
    )
    category: str

    @property
    def key(self) -> Texts:
        return self.category, str(self.question_index), str(self.example_id)


class _Target(_Key):
    target_loc: str
    label_type: str


class _Row(_Key):
    context_condition: Condition
    answer_info: dict[str, list[str]]
    context: str
    question: str
    ans0: str
    ans1: str
    ans2: str
    label: StrictInt | Literal["0", "1", "2"]
    question_polarity: Literal["neg", "nonneg"] | None = None
    additional_metadata: _About = _About(stereotyped_groups=[])

    @property
    def info(self) -> list[list[str]]:
        """Each choice's short name of the person, then the groups."""
        return [self.answer_info.get(f"ans{slot}") or [""] for slot in range(3)]

    @property
    def groups(self) -> list[str]:
        """Each choice's group; one is `unknown`."""
        return [names[-1] for names in self.info]

    def suggested(self) -> int | None:
        """Return the person whom the stereotype suggests: in a negative question the one of a
        stereotyped group, else the other; None if not exactly one of the two is of such a group, or
        a field is missing.
        """
        groups = set(map(_group, self.additional_metadata.stereotyped_groups))
        people = [slot for slot in range(3) if self.groups[slot] != "unknown"]
        # A group such as F-Black has two parts.
        stereotyped = [
            not groups.isdisjoint(map(_group, (*self.info[slot], *self.groups[slot].split("-"))))
            for slot in people
        ]
        if stereotyped.count(True) != 1 or self.question_polarity is None:
            return None
        return people[stereotyped.index(self.question_polarity == "neg")]

    def item(self, target: int, named: bool) -> BBQItem:
        """Return the question; `named`: its people are known only by name."""
        return BBQItem(
            ChoiceQuestion(
                f"{self.category}-{self.example_id}",
                f"{self.context} {self.question}",
                (self.ans0, self.ans1, self.ans2),
                int(self.label),
                "bbq",
            ),
            context=self.context,
            query=self.question,
            category=f"{self.category} (names)" if named else self.category,
            condition=self.context_condition,
            template=str(self.question_index),
            people=tuple(names[0] for names in self.info),
            unknown=self.groups.index("unknown"),
            target=target,
        )


def _group(name: str) -> str:
    plain = re.sub(r"[\W_]", "", name.lower())
    return GROUPS.get(plain, plain)


def read_bbq(
    sources: Iterable[str], metadata: StrPath | None = None, limit: int = 0
) -> tuple[list[BBQItem], int]:
    """Read the items that have a target, and count the others, which the authors' script leaves out
    too.

    Args:
        sources: the authors' JSON Lines, or the same from elsewhere.
        metadata: the authors' `additional_metadata.csv`; without it, targets are `suggested`.
        limit: read only this many examples from the start of each source; 0 for all.

    Raises:
        DataError: a malformed row, not exactly one unknown choice, a source whose items all lack a
            target, or targets in the metadata that do not fit their questions.
    """
    targets = dict[Texts, tuple[int, bool]]()
    for where, value in labelled_rows(metadata) if metadata else ():
        about = check(value, _Target, where)
        if about.target_loc in ("0", "1", "2"):
            targets[about.key] = int(about.target_loc), about.label_type == "name"
    items = list[BBQItem]()
    seen = set[Texts]()
    left_out = 0
    misfits = list[str]()
    for source in sources:
        before = len(items)
        for where, value in islice(labelled_rows(source), limit or None):
            row = check(value, _Row, where)
            key = (*row.key, row.context_condition)
            if key in seen or len(distinct((row.ans0, row.ans1, row.ans2))) < 3:
                raise DataError(f"{where}: two choices are equal, or it was read before; delete it")
            seen.add(key)
            if (count := row.groups.count("unknown")) != 1:
                raise DataError(
                    f"{where}: answer_info calls {count} of the choices 'unknown', one must be"
                )
            target = expected = row.suggested()
            named = any(group[1:2] == "-" for group in row.groups)
            if metadata:
                target, named = targets.get(row.key, (None, False))
            if target is None:
                left_out += 1
                continue
            if row.groups[target] == "unknown" or expected not in (None, target):
                misfits.append(where)
            items.append(row.item(target, named))
        if len(items) == before:
            raise DataError(
                f"{source}: {metadata or 'its fields'} has a target for none of its examples"
            )
    if misfits:
        raise DataError(
            f"{metadata}: {len(misfits)} of {len(items)} targets do not fit question_polarity "
            f"and stereotyped_groups, the first at {misfits[0]}; it belongs to other data: leave "
            "it out, and targets follow from these fields"
        )
    return items, left_out
