"""Which colour belongs to which thing: the stories and questions of the predicate-argument probe.

A story names two things of two colours. Half of the questions ask about the colour that the thing
has (yes), half about the colour of the other thing (no); a model that only matches words answers
all in the same way. Chaturvedi et al. 2023, section 7: five schemas, 26 colour pairs, 130
stories, and 520 questions in three wordings.
"""

from collections.abc import Iterator
from itertools import count, permutations, product
from typing import Literal, get_args

from interventune.data_modules.schema.questions import QAExample

WORDINGS = {
    "org": "Was the {thing} {colour}?",
    "mod": "Was there a {colour} {thing}?",
    "new": "Was the a {colour} {thing}?",
}
"""The last one is not grammatical."""

YesNo = Literal["yes", "no"]

SCHEMAS = (
    ("The {col1} car was standing in front of a {col2} house.", "car", "house"),
    ("They played with a {col1} ball and {col2} bat.", "ball", "bat"),
    ("The man was wearing a {col1} shirt and a {col2} jacket.", "shirt", "jacket"),
    ("The house had a {col1} window and a {col2} door.", "window", "door"),
    ("A {col1} glass was placed on a {col2} table.", "glass", "table"),
)
"""Kinds of stories, each with the things of colour {col1} and of {col2}."""

COLOURS = ("red", "blue", "green", "yellow", "black", "white")

_UNUSED = ({"black", "white"}, {"yellow", "white"})
"""The paper has 26 pairs, of which two are known. These are all pairs of six colours but four, also
26, and closed under swap, so that every thing has every colour as often as it lacks it.
"""

COLOUR_PAIRS = tuple((a, b) for a, b in permutations(COLOURS, 2) if {a, b} not in _UNUSED)


def predicate_argument_questions() -> Iterator[tuple[int, str, QAExample]]:
    """Yield (schema number from 1, wording, question) for every schema with every pair of colours:
    four questions per story, two of them yes, in every wording. Ids: number (from 1) and wording.
    """
    numbers, answers = count(1), get_args(YesNo)
    for (schema_number, (story, *things)), pair in product(enumerate(SCHEMAS, 1), COLOUR_PAIRS):
        text = story.format(col1=pair[0], col2=pair[1])
        for answer, colours in zip(answers, (pair, pair[::-1]), strict=True):
            for thing, colour in zip(things, colours, strict=True):
                number = next(numbers)
                for wording, form in WORDINGS.items():
                    question = QAExample(
                        f"{number} {wording}",
                        text,
                        form.format(thing=thing, colour=colour),
                        answer_type=answer,
                        references=(answer,),
                        dataset="predicate-argument",
                    )
                    yield schema_number, wording, question
