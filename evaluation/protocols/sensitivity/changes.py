"""Which word of a sentence is followed, and which other word is removed or exchanged.

A file of stimuli is JSON Lines, a row a change:

    {"sentence": "The red car was behind a blue house.", "target": "car", "changed": "red",
     "replacement": "black", "relation": "modifier", "template": "1",
     "questions": [["Was the car red?", "yes"]]}

Without `replacement` the word is removed. `relation` is what the changed word is to the target, in any words.
`template` tells sentences of one make, and `questions` ask which thing has what; those of one row of a
sentence count for the sentence. Both may be absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from data_modules.interventions.deletion import delete_rationale
from data_modules.schema import QAExample, Rejected, Span
from data_modules.tasks.predicate_argument import (
    COLOUR_PAIRS,
    COLOURS,
    SCHEMAS,
    WORDINGS,
    Text,
    YesNo,
    predicate_argument_rows,
    yes_no_question,
)
from storage.errors import DataError
from storage.json_files import json_lines

MODIFIER, OTHER_MODIFIER = "modifier", "other modifier"
"""Relations of the embedded stories: the adjective of the noun that is followed, and that of the other noun.
The others: `argument`, the other noun; `verb`; and `head`, the noun of an adjective that is followed."""

EXCHANGED = {
    "car": "bus",
    "house": "shop",
    "ball": "doll",
    "bat": "net",
    "shirt": "coat",
    "jacket": "scarf",
    "window": "gate",
    "door": "roof",
    "glass": "cup",
    "table": "shelf",
    "standing": "parked",
    "played": "left",
    "wearing": "holding",
    "had": "needed",
    "placed": "left",
}
"""A thing or verb of the stories, and what takes its place."""
VERBS = ("standing", "played", "wearing", "had", "placed")
"""Of the schemas, in their order."""

NOT_ONCE = "a word that does not stand in its sentence exactly once"
SAME = "the words that are followed and changed are the same"
LOST = "the word that is followed is not in the changed sentence exactly once"


@dataclass(frozen=True, slots=True, kw_only=True)
class WordChange:
    """One change of one sentence; the row of a file of stimuli."""

    sentence: Text
    target: Text
    """The word whose embedding is followed."""
    changed: Text
    """The word that is removed, or exchanged for `replacement`."""
    replacement: str = ""
    relation: Text
    template: str = ""
    questions: tuple[tuple[Text, YesNo], ...] = ()

    @property
    def change(self) -> str:
        """What is done to the word."""
        return "exchanged" if self.replacement else "removed"


class Followed(NamedTuple):
    """Two sentences, and where the followed word stands in each."""

    sentence: str
    changed: str
    before: Span
    after: Span


def follow(row: WordChange) -> Followed | Rejected:
    """The sentence before and after the change, or why there is none.

    >>> row = WordChange(sentence="A red car stood.", target="car", changed="red", relation="modifier")
    >>> follow(row).changed, follow(row).after
    ('A car stood.', Span(start=2, end=5, text='car'))
    """
    before, place = (_only(word, row.sentence) for word in (row.target, row.changed))
    if before is None or place is None:
        return Rejected(row.sentence, NOT_ONCE)
    if before.start < place.end and place.start < before.end:
        return Rejected(row.sentence, SAME)
    if row.replacement:
        text = row.sentence[: place.start] + row.replacement + row.sentence[place.end :]
    else:
        text = "".join(row.sentence[start:end] for start, end in delete_rationale(row.sentence, [place]))
    after = _only(row.target, text)
    return Rejected(row.sentence, LOST) if after is None else Followed(row.sentence, text, before, after)


def _only(word: str, text: str) -> Span | None:
    """Where a word stands, if it does once."""
    found = list(re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", text))
    return Span(*found[0].span(), word) if len(found) == 1 else None


def colour_changes() -> Iterator[WordChange]:
    """Fourteen changes of each of the 130 stories of the predicate-argument probe."""
    by_story: dict[str, list[tuple[str, YesNo]]] = {}
    for row in predicate_argument_rows():
        questions = by_story.setdefault(row.story, [])
        questions += [(getattr(row, wording), row.answer) for wording in WORDINGS]
    for number, (schema, verb) in enumerate(zip(SCHEMAS, VERBS, strict=True), 1):
        for col1, col2 in COLOUR_PAIRS:
            story = schema.story.format(col1=col1, col2=col2)
            things = (schema.first, col1), (schema.second, col2)
            for (thing, colour), (other, other_colour) in (things, things[::-1]):
                changes = [
                    (thing, word, replacement, relation)
                    for word, relation in ((colour, MODIFIER), (other_colour, OTHER_MODIFIER))
                    for replacement in ("", third_colour(word, (col1, col2)))
                ]
                changes += [
                    (thing, other, EXCHANGED[other], "argument"),
                    (thing, verb, EXCHANGED[verb], "verb"),
                    (colour, thing, EXCHANGED[thing], "head"),
                ]
                for target, changed, replacement, relation in changes:
                    yield WordChange(
                        sentence=story,
                        target=target,
                        changed=changed,
                        replacement=replacement,
                        relation=relation,
                        template=str(number),
                        questions=tuple(by_story[story]),
                    )


def third_colour(colour: str, taken: tuple[str, str]) -> str:
    """The next of the colours that the story does not hold.

    >>> third_colour("red", ("red", "blue"))
    'green'
    """
    place = COLOURS.index(colour)
    return next(c for c in COLOURS[place:] + COLOURS if c not in taken)


def read_changes(path: Path) -> list[WordChange]:
    """The rows of a file of stimuli.

    Raises:
        DataError: a row of another shape, one that stands there twice, or none at all.
    """
    rows: dict[WordChange, str] = {}
    for where, row in json_lines(path, WordChange, expected="sentence, target, changed and relation"):
        if row in rows:
            raise DataError(f"{where}: the same change as in {rows[row].rpartition(', ')[2]}; remove one")
        rows[row] = where
    return list(rows)


def questions_of(rows: Iterable[WordChange]) -> list[QAExample]:
    """All questions about the sentences, each once."""
    found: dict[tuple[str, str], YesNo] = {}
    for row in rows:
        for question, answer in row.questions:
            if found.setdefault((row.sentence, question), answer) != answer:
                raise DataError(f"{row.sentence!r}: {question!r} is answered by yes and by no")
    return [
        yes_no_question(str(number), sentence, question, answer, "predicate-argument")
        for number, ((sentence, question), answer) in enumerate(found.items())
    ]
