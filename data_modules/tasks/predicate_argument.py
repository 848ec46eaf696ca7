"""Which colour belongs to which thing: the stories and questions of the predicate-argument probe.

A story names two things of two colours. Half of the questions ask for the colour that the thing has (yes),
half for the colour of the other thing (no); a model that only looks for the words says the same to all.
Faithfulness spec 5.1: five schemas, 26 colour pairs, 130 stories, and 520 questions in three wordings.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import Literal, NamedTuple, get_args

from data_modules.schema import QAExample

Wording = Literal["org", "mod", "new"]
"""`Was the car red?`, `Was there a red car?`, and the ungrammatical `Was the a red car?`."""

WORDINGS: tuple[Wording, ...] = get_args(Wording)
YesNo = Literal["yes", "no"]


class Schema(NamedTuple):
    """A kind of story."""

    story: str
    """With {col1} and {col2}."""
    first: str
    """The thing of colour {col1}."""
    second: str


SCHEMAS: tuple[Schema, ...] = (
    Schema("The {col1} car was standing in front of a {col2} house.", "car", "house"),
    Schema("They played with a {col1} ball and {col2} bat.", "ball", "bat"),
    Schema("The man was wearing a {col1} shirt and a {col2} jacket.", "shirt", "jacket"),
    Schema("The house had a {col1} window and a {col2} door.", "window", "door"),
    Schema("A {col1} glass was placed on a {col2} table.", "glass", "table"),
)

COLOURS = ("red", "blue", "green", "yellow", "black", "white")

_UNUSED = ({"black", "white"}, {"yellow", "white"})
"""The paper has 26 pairs, of which two are known. All but these of six colours are as many, and closed under
swap, so that every thing has every colour as often as it lacks it."""

COLOUR_PAIRS = tuple((a, b) for a, b in permutations(COLOURS, 2) if {a, b} not in _UNUSED)


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """One question about one story, in three wordings."""

    schema: int
    """From 1 on."""
    col1: str
    col2: str
    story: str
    answer: YesNo
    org: str
    mod: str
    new: str

    def example(self, wording: Wording, name: str) -> QAExample:
        """The question as asked in `wording`; `name` becomes its id."""
        asked, answer = (f"{name} {wording}", self.story, getattr(self, wording)), self.answer
        return QAExample(*asked, answer_type=answer, references=(answer,), dataset="predicate-argument")


def predicate_argument_rows() -> list[ProbeRow]:
    """Every schema with every pair of colours: four questions a story, two of them yes."""

    def questions(schema: Schema, first: str, second: str) -> list[tuple[str, str, YesNo]]:
        right: list[tuple[str, str, YesNo]] = [(schema.first, first, "yes"), (schema.second, second, "yes")]
        return [*right, (schema.first, second, "no"), (schema.second, first, "no")]

    return [
        ProbeRow(
            schema=number,
            col1=first,
            col2=second,
            story=schema.story.format(col1=first, col2=second),
            answer=answer,
            org=f"Was the {thing} {colour}?",
            mod=f"Was there a {colour} {thing}?",
            new=f"Was the a {colour} {thing}?",
        )
        for number, schema in enumerate(SCHEMAS, 1)
        for first, second in COLOUR_PAIRS
        for thing, colour, answer in questions(schema, first, second)
    ]
