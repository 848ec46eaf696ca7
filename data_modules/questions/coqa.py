"""CoQA: stories of the official file or of the Hub -> QAExample.

One example per turn. Offsets are trusted; `span_text`, which often differs in white space, and
`bad_turn` are not read. The span of an answer is found by `answer_spans.answer_span`. The Hub's
layout lacks the additional answers, so each question has one reference instead of the official dev
file's four.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, NotRequired

from pydantic import AliasChoices, BeforeValidator, Field, StrictInt
from typing_extensions import TypedDict

from interventune.data_modules.schema.questions import QAExample, Turn
from interventune.data_modules.schema.spans import Span
from interventune.storage.errors import DataError
from interventune.storage.json_files import check

from .answer_spans import answered
from .squad import Listed

logger = logging.getLogger(__name__)


class _Text(TypedDict):
    turn_id: NotRequired[int]  # the Hub's turns have none, and are in order
    input_text: str


class _Answer(_Text):
    span_start: Annotated[
        StrictInt, Field(validation_alias=AliasChoices("span_start", "answer_start"))
    ]
    span_end: Annotated[StrictInt, Field(validation_alias=AliasChoices("span_end", "answer_end"))]


def _as_turn(question: Any) -> Any:
    return {"input_text": question} if isinstance(question, str) else question


class _Story(TypedDict):
    id: str | int
    source: str
    story: str
    questions: list[Annotated[_Text, BeforeValidator(_as_turn)]]
    answers: Listed[_Answer]
    additional_answers: NotRequired[dict[str, list[_Text]]]


def read_rows(rows: Iterable[tuple[str, Any]], source: str) -> Iterator[QAExample]:
    """(place, story) -> one example per turn, in the order of stories and turns.

    Its id is "STORY TURN", its domain the story's source, its history every earlier turn with the
    primary answer. The rationale is the primary answer's span without white space around it; none
    for -1, -1. References are the primary answer and those of `additional_answers`, in the file's
    order. A story of the Hub, without an id, has the number of its row.

    Raises:
        DataError: names place, story and turn for a rationale outside its story or reversed, a
            question without answer or the reverse.
    """
    from_hub = False
    for index, (place, value) in enumerate(rows):
        from_hub = from_hub or "id" not in value
        story = check({"id": index, **value}, _Story, place)
        yield from _examples(story, f"{place} (story {story['id']})")
    if from_hub:
        logger.warning(
            "%s: CoQA from the Hub has one reference per question, which lowers scores", source
        )


def _numbered(turns: Iterable[Any], where: str) -> dict[int, Any]:
    """The turns by number: `turn_id`, else their place. DataError for a number that
    occurs twice.
    """
    by_number = dict[int, Any]()
    for place, turn in enumerate(turns, 1):
        number = turn.get("turn_id", place)
        if number in by_number:
            raise DataError(f"{where}: two turns have the turn_id {number}; number each once")
        by_number[number] = turn
    return by_number


def _examples(story: _Story, where: str) -> Iterator[QAExample]:
    """The turns of one story."""
    text, history = story["story"], list[Turn]()
    questions = _numbered(story["questions"], where)
    answers = _numbered(story["answers"], where)
    others = [_numbered(turns, where) for turns in story.get("additional_answers", {}).values()]
    for number in sorted(questions.keys() | answers.keys()):
        place = f"{where}: turn {number}"
        if number not in questions or number not in answers:
            missing = "answer" if number in questions else "question"
            raise DataError(f"{place} has no {missing}; each needs both")
        question, answer = questions[number]["input_text"], answers[number]
        start, end = answer["span_start"], answer["span_end"]
        if (start, end) == (-1, -1):
            start = end = 0
        if not 0 <= start <= end <= len(text):
            raise DataError(f"{place}: the rationale {start} to {end} is no part of its story")
        evidence = text[start:end].strip()
        start = text.find(evidence, start)
        texts = [turns[number]["input_text"] for turns in (answers, *others) if number in turns]
        yield answered(
            f"{story['id']} {number}",
            text,
            question,
            answer["input_text"],
            (Span(start, start + len(evidence), evidence),) if evidence else (),
            history=tuple(history),
            references=tuple(texts),
            dataset="coqa",
            domain=story["source"],
        )
        history.append(Turn(question, answer["input_text"]))
