"""BBQ (Parrish et al. 2022): questions about two people, with and without the sentence that decides them.

    found = read_bbq([("Age.jsonl", labelled_rows("Age.jsonl"))], "additional_metadata.csv")
    found.items, found.left_out

An ambiguous context does not tell the answer, which then is the unknown one; a disambiguated context does.
Which of the two people a biased model names (`target_loc`) stands in the authors' metadata alone.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StrictInt
from typing_extensions import TypedDict

from data_modules.schema import ChoiceQuestion, Span
from storage.errors import DataError
from storage.files import open_file
from storage.json_files import check

Condition = Literal["ambig", "disambig"]
CHOICES = ("ans0", "ans1", "ans2")


@dataclass(frozen=True, slots=True)
class BBQItem:
    """One question, and what its scores need."""

    question: ChoiceQuestion
    """Its prompt is context and question, joined by a space."""
    context: str
    query: str
    category: str
    """The file's; people known by their names alone are a category of their own: `Race_ethnicity (names)`."""
    condition: Condition
    template: str
    """Items of one template differ in names and order only: the unit of intervals."""
    people: tuple[str, str, str]
    """What each choice calls its person, in short."""
    unknown: int
    """Slot of the choice that says that the text does not tell."""
    target: int
    """Slot of the person whom a biased model names."""

    def mentions(self) -> list[tuple[int, Span]]:
        """(slot, span) wherever the context names a person, in short or as the choice does, with and without
        the word that leads it in."""
        found: dict[tuple[int, int, int], None] = {}
        for slot, (short, choice) in enumerate(zip(self.people, self.question.choices, strict=True)):
            for name in {short, _LEAD.sub("", choice)} if slot != self.unknown else ():
                whole = rf"(?<![\w-])({_LEAD.pattern[1:]})?({re.escape(name)})(?![a-z-])"
                for match in re.finditer(whole, self.context, re.I):
                    found |= {(slot, *match.span()): None, (slot, *match.span(2)): None}
        return [(slot, Span(at, end, self.context[at:end])) for slot, at, end in found]


class _Row(TypedDict):
    example_id: int
    question_index: str | int
    context_condition: Condition
    category: str
    answer_info: dict[str, list[str]]
    context: str
    question: str
    ans0: str
    ans1: str
    ans2: str
    label: Annotated[StrictInt, Field(ge=0, le=2)]


class _Target(TypedDict):
    target_loc: str
    label_type: str


Rows = Iterable[tuple[str, Any]]
"""(place, row) of a source (`sources.labelled_rows`)."""


@dataclass(frozen=True)
class BBQData:
    """The items of all sources."""

    items: list[BBQItem]
    left_out: int
    """Examples without a target, which the authors' script leaves out too."""


def read_bbq(sources: Iterable[tuple[str, Rows]], metadata: str | Path, limit: int = 0) -> BBQData:
    """The items that the metadata has a target for.

    Args:
        sources: name and rows of each: the authors' JSON Lines, or the same from elsewhere.
        metadata: the authors' `additional_metadata.csv`.
        limit: read the first examples of each source only, so many; 0 for all.

    Raises:
        DataError: a row of another shape, a choice that is unknown in none or several slots, two equal
            choices, two rows of one example, or a source whose items all lack a target.
    """
    targets, items, left_out = dict(_targets(metadata)), list[BBQItem](), 0
    for source, rows in sources:
        found = list(_items(islice(rows, limit or None), targets))
        some = [item for item in found if item is not None]
        if not some:
            raise DataError(f"{source}: {metadata} has a target for none of its examples")
        items += some
        left_out += len(found) - len(some)
    return BBQData(items, left_out)


_LEAD = re.compile(r"^(?:an?|the|my|our|his|her|their) ", re.I)


def _items(rows: Rows, targets: Mapping[Any, _Target]) -> Iterator[BBQItem | None]:
    """The item of each row; None without a target."""
    ids = set()
    for where, value in rows:
        row = check(value, _Row, where)
        kinds = [row["answer_info"].get(choice) or [""] for choice in CHOICES]
        unknown = [slot for slot, kind in enumerate(kinds) if kind[-1] == "unknown"]
        if len(unknown) != 1:
            raise DataError(
                f"{where}: answer_info calls {len(unknown)} of the choices 'unknown', one must be"
            )
        choices = (row["ans0"], row["ans1"], row["ans2"])
        if len({*choices}) < len(choices):
            raise DataError(f"{where}: two of the choices {choices} are the same")
        if row["example_id"] in ids:
            raise DataError(f"{where}: a second example {row['example_id']}; name each category's file once")
        ids.add(row["example_id"])
        found = targets.get((row["category"], str(row["question_index"]), row["example_id"]))
        if found is None or found["target_loc"] not in ("0", "1", "2"):
            yield None
            continue
        yield BBQItem(
            question=ChoiceQuestion(
                f"{row['category']}-{row['example_id']}",
                f"{row['context']} {row['question']}",
                choices,
                row["label"],
                "bbq",
            ),
            context=row["context"],
            query=row["question"],
            category=row["category"] + (" (names)" if found["label_type"] == "name" else ""),
            condition=row["context_condition"],
            template=str(row["question_index"]),
            people=(kinds[0][0], kinds[1][0], kinds[2][0]),
            unknown=unknown[0],
            target=int(found["target_loc"]),
        )


def _targets(path: str | Path) -> Iterator[tuple[tuple[str, str, int], _Target]]:
    """(category, template, example) -> its target."""
    try:
        with open_file(path) as raw, TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
            for number, row in enumerate(csv.DictReader(file), 2):
                where = f"{path}, line {number}"
                if not {"category", "question_index", "example_id", "target_loc", "label_type"} <= row.keys():
                    raise DataError(f"{where}: no metadata of BBQ; name its additional_metadata.csv")
                if not str(row["example_id"]).strip().isdecimal():
                    raise DataError(f"{where}: example_id must be a whole number, is {row['example_id']!r}")
                target = str(row["target_loc"]).strip().removesuffix(".0")
                key = (row["category"], row["question_index"], int(row["example_id"]))
                yield key, _Target(target_loc=target, label_type=row["label_type"])
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
