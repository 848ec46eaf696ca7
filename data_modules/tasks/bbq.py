"""BBQ (Parrish et al. 2022): questions about two people, with and without the sentence that decides them.

An ambiguous context does not contain the answer, so unknown is right; a disambiguated context does. Which of
the two people a biased model names (`target_loc`) is only in the authors' metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, Field
from typing_extensions import TypedDict

from data_modules.schema.questions import ChoiceQuestion
from data_modules.schema.spans import Span
from data_modules.sources import labelled_rows
from storage.errors import DataError
from storage.json_files import check

Condition = Literal["ambig", "disambig"]
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
        """(choice, span) of every mention of a person in the context, in short form or as in the choice, with
        and without a leading article or preposition."""
        found: dict[tuple[int, int, int], None] = {}
        for slot, (short, choice) in enumerate(zip(self.people, self.question.choices, strict=True)):
            for name in (short, re.sub(f"^{_LEAD}", "", choice, flags=re.I)) if slot != self.unknown else ():
                whole = rf"(?<![\w-])({_LEAD})?({re.escape(name)})(?![a-z-])"
                for match in re.finditer(whole, self.context, re.I):
                    found |= {(slot, *match.span()): None, (slot, *match.span(2)): None}
        return [(slot, Span(at, end, self.context[at:end])) for slot, at, end in found]


_Item = Annotated[str | int, Field(validation_alias=AliasChoices("example_id", "instance_id"))]
_Template = Annotated[str | int, Field(validation_alias=AliasChoices("question_index", "template_id"))]


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


class _Target(TypedDict):
    category: str
    question_index: _Template
    example_id: _Item
    target_loc: str
    label_type: str


def read_bbq(sources: Iterable[str], metadata: str | Path, limit: int = 0) -> tuple[list[BBQItem], int]:
    """Read the items with a target in the metadata, and count the examples without one; the authors' script
    leaves these out too.

    Args:
        sources: the authors' JSON Lines, or the same from elsewhere.
        metadata: the authors' `additional_metadata.csv`.
        limit: read only this many examples from the start of each source; 0 for all.

    Raises:
        DataError: a malformed row, not exactly one unknown choice, or a source whose items all lack a target.
    """

    def key_of(row: _Row | _Target) -> tuple[str, str, str]:
        return row["category"], str(row["question_index"]), str(row["example_id"])

    listed = (check(value, _Target, where) for where, value in labelled_rows(str(metadata)))
    targets = {key_of(row): row for row in listed if row["target_loc"] in ("0", "1", "2")}
    items, left_out = list[BBQItem](), 0
    for source in sources:
        begun = islice(labelled_rows(source), limit or None)
        rows = [(where, check(row, _Row, where)) for where, row in begun]
        found = [_item(row, targets[key_of(row)], where) for where, row in rows if key_of(row) in targets]
        if not found:
            raise DataError(f"{source}: {metadata} has a target for none of its examples")
        items += found
        left_out += len(rows) - len(found)
    return items, left_out


def _item(row: _Row, metadata: _Target, where: str) -> BBQItem:
    info = [row["answer_info"].get(name) or [""] for name in ("ans0", "ans1", "ans2")]
    unknown = [slot for slot, said in enumerate(info) if said[-1] == "unknown"]
    if len(unknown) != 1:
        raise DataError(f"{where}: answer_info calls {len(unknown)} of the choices 'unknown', one must be")
    name, prompt = f"{row['category']}-{row['example_id']}", f"{row['context']} {row['question']}"
    choices = (row["ans0"], row["ans1"], row["ans2"])
    return BBQItem(
        ChoiceQuestion(name, prompt, choices, row["label"], "bbq"),
        context=row["context"],
        query=row["question"],
        category=row["category"] + (" (names)" if metadata["label_type"] == "name" else ""),
        condition=row["context_condition"],
        template=str(row["question_index"]),
        people=tuple(said[0] for said in info),
        unknown=unknown[0],
        target=int(metadata["target_loc"]),
    )
