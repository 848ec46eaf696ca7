"""BBQ (Parrish et al. 2022): questions about two people, with and without the sentence that decides
them.

An ambiguous context does not contain the answer, so unknown is right; a disambiguated context does.
A biased model names the target: `target_loc` in the authors' metadata, which also follows from the
questions' own fields.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal, NotRequired

from pydantic import AliasChoices, Field
from typing_extensions import TypedDict

from interventune.data_modules.schema.questions import ChoiceQuestion
from interventune.data_modules.schema.spans import Span
from interventune.data_modules.sources import labelled_rows
from interventune.storage.errors import DataError
from interventune.storage.json_files import check

Condition = Literal["ambig", "disambig"]
GROUPS = {"woman": "f", "girl": "f", "man": "m", "boy": "m"}
"""Other names of groups in the categories about gender."""
_LEAD = r"(?:an?|the|my|our|his|her|their) "


@dataclass(frozen=True, slots=True)
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
    people: tuple[str, ...]
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


_Item = Annotated[str | int, Field(validation_alias=AliasChoices("example_id", "instance_id"))]
_Template = Annotated[
    str | int, Field(validation_alias=AliasChoices("question_index", "template_id"))
]


class _About(TypedDict):
    stereotyped_groups: list[str]


class _Row(TypedDict):
    example_id: _Item
    question_index: _Template
    context_condition: Condition
    category: str
    answer_info: dict[str, list[str]]
    context: str
    question: str
    ans0: str
    ans1: str
    ans2: str
    label: int
    question_polarity: NotRequired[Literal["neg", "nonneg"]]
    additional_metadata: NotRequired[_About]


class _Target(TypedDict):
    category: str
    question_index: _Template
    example_id: _Item
    target_loc: str
    label_type: str


def read_bbq(
    sources: Iterable[str], metadata: str | Path | None = None, limit: int = 0
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

    targets = dict[tuple[str, ...], tuple[int, bool]]()
    for where, value in labelled_rows(str(metadata)) if metadata else ():
        about = check(value, _Target, where)
        if about["target_loc"] in ("0", "1", "2"):
            targets[_key(about)] = int(about["target_loc"]), about["label_type"] == "name"
    items, left_out, misfits = list[BBQItem](), 0, list[str]()
    for source in sources:
        before = len(items)
        for where, value in islice(labelled_rows(source), limit or None):
            row = check(value, _Row, where)
            info = [row["answer_info"].get(f"ans{slot}") or [""] for slot in range(3)]
            groups = [names[-1] for names in info]
            if (count := groups.count("unknown")) != 1:
                raise DataError(
                    f"{where}: answer_info calls {count} of the choices 'unknown', one must be"
                )
            unknown = groups.index("unknown")
            target = expected = suggested(row, info, unknown)
            named = any(group[1:2] == "-" for group in groups)
            if metadata:
                target, named = targets.get(_key(row), (None, False))
            if target is None:
                left_out += 1
                continue
            if target == unknown or expected not in (None, target):
                misfits.append(where)
            items.append(_item(row, info, unknown, target, named))
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


def _key(row: _Row | _Target) -> tuple[str, ...]:
    return row["category"], str(row["question_index"]), str(row["example_id"])


def suggested(row: _Row, info: Sequence[Sequence[str]], unknown: int) -> int | None:
    """Return the person whom the stereotype suggests: in a negative question the one of a
    stereotyped group, else the other; None if not exactly one of the two is of such a group, or a
    field is missing.
    """
    groups = {
        _group(name) for name in row.get("additional_metadata", {}).get("stereotyped_groups", ())
    }
    people = [slot for slot in range(3) if slot != unknown]
    # A group such as F-Black has two parts.
    stereotyped = [
        not groups.isdisjoint(map(_group, (*info[slot], *info[slot][-1].split("-"))))
        for slot in people
    ]
    if stereotyped.count(True) != 1 or "question_polarity" not in row:
        return None
    return people[stereotyped.index(row["question_polarity"] == "neg")]


def _group(name: str) -> str:
    plain = re.sub(r"[\W_]", "", name.lower())
    return GROUPS.get(plain, plain)


def _item(
    row: _Row, info: Sequence[Sequence[str]], unknown: int, target: int, named: bool
) -> BBQItem:
    name, prompt = f"{row['category']}-{row['example_id']}", f"{row['context']} {row['question']}"
    choices = (row["ans0"], row["ans1"], row["ans2"])
    return BBQItem(
        ChoiceQuestion(name, prompt, choices, row["label"], "bbq"),
        context=row["context"],
        query=row["question"],
        category=f"{row['category']} (names)" if named else row["category"],
        condition=row["context_condition"],
        template=str(row["question_index"]),
        people=tuple(names[0] for names in info),
        unknown=unknown,
        target=target,
    )
