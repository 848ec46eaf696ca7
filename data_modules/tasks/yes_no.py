"""Two probes of yes/no questions: pairs of stories that answer one question in opposite ways, and
which colour belongs to which thing (Chaturvedi et al. 2023, sections 6 and 7).

Pairs are a file of pairs, or CondaQA:

    {"id": ..., "dataset": "coqa", "turn_id": 3, "history": [["question", "answer"], ...],
     "question": ..., "story_org": ..., "story_mod": ..., "answer_org": "yes", "answer_mod": "no",
     "edit": "scope"}
dataset, turn_id, history and edit may be absent. In the pairs of `stories:colours`, which are of
the stories below, two colours change places.

The other probe has stories that name two things of two colours. Half of the questions ask about the
colour that the thing has (yes), half about the colour of the other thing (no); a model that only
matches words answers all in the same way: five schemas, 26 colour pairs, 130 stories, and 520
questions in three wordings.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, permutations, product
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, BeforeValidator, Field, StrictInt

from interventune.data_modules.schema.questions import QAExample, TextPair, Texts, Turn
from interventune.data_modules.sources import labelled_rows
from interventune.storage.documents import DataError, StrPath, Values, check, own_yaml

YesNo = Literal["yes", "no"]
EDITS = {2: "scope", 3: "affirmative"}
"""CondaQA's PassageEditID; 0 is the original, 1 a paraphrase. A scope edit changes what the
negation applies to, an affirmative edit removes it; either may change an answer.
"""
Text = Annotated[str, Field(pattern=r"\S")]
_Id = Annotated[str, BeforeValidator(lambda name: str(name) if type(name) is int else name)]
_Answer = BeforeValidator(lambda text: str(text).strip().rstrip(".").lower())


@dataclass(frozen=True, kw_only=True)
class ContrastPair:
    """One question and two stories with opposite answers: a line of a file of pairs."""

    id: _Id
    dataset: str = ""
    turn_id: StrictInt | None = None
    history: tuple[TextPair, ...] = ()
    question: Text
    story_org: Text
    story_mod: Text
    answer_org: Annotated[YesNo, _Answer]
    answer_mod: Annotated[YesNo, _Answer]
    edit: str = ""
    """The kind of change, if known."""

    def __post_init__(self) -> None:
        if self.answer_org == self.answer_mod or self.story_org == self.story_mod:
            raise DataError("the two answers must differ, and so must the two stories")

    def examples(self) -> list[QAExample]:
        """Return the question about the original and about the modified story."""
        name = self.id if self.turn_id is None else f"{self.id} {self.turn_id}"
        history = tuple(Turn(*turn) for turn in self.history)
        original = "org", self.story_org, self.answer_org
        modified = "mod", self.story_mod, self.answer_mod
        return [
            QAExample(
                f"{name} {side}",
                story,
                self.question,
                answer_type=answer,
                history=history,
                references=(answer,),
                dataset=self.dataset,
            )
            for side, story, answer in (original, modified)
        ]


class _EditRow(BaseModel):
    """What is used of a CondaQA record."""

    PassageID: _Id
    QuestionID: _Id
    PassageEditID: Annotated[StrictInt, Field(ge=0, le=3)]
    sentence1: Text
    sentence2: Text
    label: Annotated[str, _Answer]

    @property
    def key(self) -> Texts:
        """What an edit shares with its original."""
        return self.PassageID, self.QuestionID, self.sentence2


def read_pairs(path: StrPath) -> tuple[list[ContrastPair], int]:
    """Read the pairs of a file of pairs, of CondaQA's file or of `stories:colours`, with the number
    of CondaQA's edited passages without a pair. DataError names line and field, or says that there
    is no pair at all.
    """
    if str(path) == "stories:colours":
        return [*colour_pairs()], 0
    rows = list(labelled_rows(path))
    if "PassageEditID" in rows[0][1]:
        return condaqa_pairs([check(row, _EditRow, where) for where, row in rows], path)
    pairs: dict[tuple[str, str, int | None], ContrastPair] = {}
    for where, row in rows:
        pair = check(row, ContrastPair, where)
        key = (pair.dataset, pair.id, pair.turn_id)  # CoQA's ids identify stories
        if pairs.setdefault(key, pair) is not pair:
            raise DataError(f"{where}: a second pair {pair.id} with the turn_id {pair.turn_id}")
    return [*pairs.values()], 0


def condaqa_pairs(rows: Sequence[_EditRow], path: StrPath) -> tuple[list[ContrastPair], int]:
    """Pair CondaQA's original passages with their edits: a scope or an affirmative edit makes a
    pair if the original has the same question, and one label is yes and the other no.
    """
    row_of = {(row.key, row.PassageEditID): row for row in rows}
    edits = [row for row in row_of.values() if row.PassageEditID > 0]
    pairs = []
    for row in edits:
        original = row_of.get((row.key, 0), row)  # itself, with the same answer
        edit = EDITS.get(row.PassageEditID)
        if edit and {original.label, row.label} == {"yes", "no"}:
            pair = {
                "id": f"{row.PassageID}-{row.QuestionID}-{edit}",
                "dataset": "condaqa",
                "edit": edit,
                "question": row.sentence2,
                "story_org": original.sentence1,
                "story_mod": row.sentence1,
                "answer_org": original.label,
                "answer_mod": row.label,
            }
            pairs.append(check(pair, ContrastPair, f"{path}, PassageID {row.PassageID}"))
    if not pairs:
        raise DataError(f"{path}: none of {len(edits)} edited passages makes a pair")
    return pairs, len(edits) - len(pairs)


_PROBE = own_yaml(__file__, Values)
WORDINGS = _PROBE["wordings"]
NEGATED = "negated"
"""Questions worded as `org` about stories that deny the second colour."""

SCHEMAS = _PROBE["schemas"]
"""Kinds of stories, each with the things of colour {col1} and of {col2}."""

COLOURS = _PROBE["colours"]

_UNUSED = ({"black", "white"}, {"yellow", "white"})
"""The paper has 26 pairs, of which two are known. These are all pairs of six colours but four, also
26, and closed under swap, so that every thing has every colour as often as it lacks it.
"""

COLOUR_PAIRS = tuple((a, b) for a, b in permutations(COLOURS, 2) if {a, b} not in _UNUSED)


def predicate_argument_questions() -> Iterator[tuple[int, str, QAExample]]:
    """Yield (schema number from 1, wording, question) for every schema with every pair of colours:
    four questions per story, two of them yes, in every wording, and two about the negated story.
    Ids: number (from 1) and wording.
    """
    numbers = count(1)
    answers = get_args(YesNo)
    for (schema_number, (story, *things)), pair in product(enumerate(SCHEMAS, 1), COLOUR_PAIRS):
        text = story.format(col1=pair[0], col2=pair[1])
        noun = things[1]
        negated = text.replace(f"{pair[1]} {noun}", f"{noun} that was not {pair[1]}")
        for answer, colours in zip(answers, (pair, pair[::-1]), strict=True):
            for thing, colour in zip(things, colours, strict=True):
                number = next(numbers)
                asked = [(wording, text, form, answer) for wording, form in WORDINGS.items()]
                if answer == "yes":
                    asked.append((NEGATED, negated, WORDINGS["org"], answers[thing == noun]))
                for wording, context, form, right in asked:
                    question = QAExample(
                        f"{number} {wording}",
                        context,
                        form.format(thing=thing, colour=colour),
                        answer_type=right,
                        references=(right,),
                        dataset="predicate-argument",
                    )
                    yield schema_number, wording, question


def colour_pairs() -> Iterator[ContrastPair]:
    """Yield a pair for every schema with every pair of colours, which change places."""
    for number, ((story, thing, _), (a, b)) in enumerate(product(SCHEMAS, COLOUR_PAIRS), 1):
        yield ContrastPair(
            id=str(number),
            dataset="predicate-argument",
            question=WORDINGS["org"].format(thing=thing, colour=a),
            story_org=story.format(col1=a, col2=b),
            story_mod=story.format(col1=b, col2=a),
            answer_org="yes",
            answer_mod="no",
            edit="exchange",
        )
