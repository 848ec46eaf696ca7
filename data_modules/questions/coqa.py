"""CoQA: the official JSON file, or rows in the Hub's layout -> QAExample (faithfulness spec 1.1).

One example per turn. Offsets are trusted; `span_text`, which often differs in white space, and `bad_turn`
are not read. The span of an answer is where `answer_spans.answer_span` locates it. The Hub's layout lacks
the additional answers, so each question has one reference, where the official dev file has four.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AliasChoices, BeforeValidator, Field, StrictInt
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

from data_modules.questions.answer_spans import answer_span, answer_type
from data_modules.questions.squad import Listed
from data_modules.schema import QAExample, Span, Turn
from storage.errors import DataError
from storage.json_files import check, load_json

logger = logging.getLogger(__name__)


def _spoken(question: Any) -> Any:
    return {"input_text": question} if isinstance(question, str) else question


@dataclass(frozen=True, kw_only=True)
class _Said:
    input_text: str
    turn_id: StrictInt | None = None  # of the Hub's rows, their order


@dataclass(frozen=True, kw_only=True)
class _Answer(_Said):
    start: Annotated[StrictInt, Field(validation_alias=AliasChoices("span_start", "answer_start"))]
    end: Annotated[StrictInt, Field(validation_alias=AliasChoices("span_end", "answer_end"))]


@dataclass(frozen=True, kw_only=True)
class _Story:
    id: str | StrictInt = ""
    source: str
    story: str
    questions: list[Annotated[_Said, BeforeValidator(_spoken)]]
    answers: Listed[_Answer]
    additional_answers: dict[str, list[_Said]] = field(default_factory=dict)


S = TypeVar("S", bound=_Said)


class _Document(TypedDict):
    data: list[_Story]


def read_file(path: str | Path) -> Iterator[QAExample]:
    """One example per turn of an official CoQA file, in the order of stories and turns.

    Its id is "STORY TURN", its domain the story's source, its history every earlier turn with the primary
    answer. The rationale is the primary answer's span without white space around it; none for -1, -1.
    References are the primary answer and those of `additional_answers`, in the file's order.

    Raises:
        DataError: names file, story and turn for a rationale outside its story or reversed, a question
            without answer or the reverse.
    """
    for index, story in enumerate(load_json(path, _Document)["data"]):
        yield from _examples(story, story.id, f"{path}: data[{index}] (story {story.id})")


def read_rows(rows: Iterable[tuple[str, Any]], source: str) -> Iterator[QAExample]:
    """(place, row) in the Hub's layout (source, story, questions [Q], answers {input_text [Q], answer_start
    [Q], answer_end [Q]}) -> examples. A story's id is the number of its row.
    """
    logger.warning("%s: CoQA from the Hub has one reference a question; scores are lower than usual", source)
    for index, (where, row) in enumerate(rows):
        yield from _examples(check(row, _Story, where), index, where)


def _by_turn(said: Sequence[S]) -> dict[int, S]:
    return {n if one.turn_id is None else one.turn_id: one for n, one in enumerate(said, 1)}


def _examples(told: _Story, name: str | int, where: str) -> Iterator[QAExample]:
    """The turns of one story."""
    text, questions, answers = told.story, _by_turn(told.questions), _by_turn(told.answers)
    others = [_by_turn(turns) for turns in told.additional_answers.values()]
    history: tuple[Turn, ...] = ()
    for number in sorted(questions.keys() | answers.keys()):
        place = f"{where}: turn {number}"
        if number not in questions or number not in answers:
            lacks = "answer" if number in questions else "question"
            raise DataError(f"{place} has no {lacks}; each needs both")
        question, answer = questions[number].input_text, answers[number].input_text
        earlier, history = history, (*history, Turn(question, answer))
        start, end = answers[number].start, answers[number].end
        if (start, end) == (-1, -1):
            start = end = 0
        if not 0 <= start <= end <= len(text):
            raise DataError(f"{place}: the rationale {start} to {end} is no part of its story")
        why = text[start:end].strip()
        start = text.find(why, start)
        rationale = (Span(start, start + len(why), why),) if why else ()
        kind = answer_type(answer, question)
        yield QAExample(
            f"{name} {number}",
            text,
            question,
            answer_span(answer, kind, text, rationale),
            answer_type=kind,
            history=earlier,
            rationale=rationale,
            references=(answer, *(other[number].input_text for other in others if number in other)),
            dataset="coqa",
            domain=told.source,
        )
