"""CoQA: the official JSON file, or rows in the Hub's layout -> QAExample (faithfulness spec 1.1).

One example per turn. Offsets are trusted; `span_text`, which often differs in white space, and `bad_turn`
are not read. The span of an answer is where `answer_spans.answer_span` locates it. The Hub's layout lacks
the additional answers, so each question has one reference, where the official dev file has four.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NotRequired

from pydantic import StrictInt
from typing_extensions import TypedDict

from data_modules.questions.answer_spans import answer_span, answer_type
from data_modules.questions.columns import Listed
from data_modules.schema import QAExample, Span, Turn
from storage.errors import DataError
from storage.json_files import check, load_json

logger = logging.getLogger(__name__)


class _Utterance(TypedDict):
    input_text: str
    turn_id: StrictInt


class _Answer(_Utterance):
    span_start: StrictInt
    span_end: StrictInt


class _Story(TypedDict):
    id: str | StrictInt
    source: str
    story: str
    questions: list[_Utterance]
    answers: list[_Answer]
    additional_answers: NotRequired[dict[str, list[_Utterance]]]


class _Document(TypedDict):
    data: list[_Story]


class _HubAnswer(TypedDict):
    input_text: str
    answer_start: StrictInt
    answer_end: StrictInt


class _HubStory(TypedDict):
    source: str
    story: str
    questions: list[str]
    answers: Listed[_HubAnswer]


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
        yield from _examples(story, f"{path}: data[{index}] (story {story['id']})")


def read_rows(rows: Iterable[tuple[str, Any]], source: str) -> Iterator[QAExample]:
    """(place, row) in the Hub's layout (source, story, questions [Q], answers {input_text [Q], answer_start
    [Q], answer_end [Q]}) -> examples. A story's id is the number of its row.
    """
    logger.warning("%s: CoQA from the Hub has one reference a question; scores are lower than usual", source)
    for index, (where, row) in enumerate(rows):
        hub = check(row, _HubStory, where)
        questions = [_Utterance(input_text=text, turn_id=n) for n, text in enumerate(hub["questions"], 1)]
        answers = [
            _Answer(
                input_text=one["input_text"],
                turn_id=n,
                span_start=one["answer_start"],
                span_end=one["answer_end"],
            )
            for n, one in enumerate(hub["answers"], 1)
        ]
        story = _Story(
            id=index, source=hub["source"], story=hub["story"], questions=questions, answers=answers
        )
        yield from _examples(story, where)


def _examples(story: _Story, where: str) -> Iterator[QAExample]:
    """The turns of one story."""
    text = story["story"]
    questions = {turn["turn_id"]: turn["input_text"] for turn in story["questions"]}
    answers = {turn["turn_id"]: turn for turn in story["answers"]}
    others = [
        {turn["turn_id"]: turn["input_text"] for turn in turns}
        for turns in story.get("additional_answers", {}).values()
    ]
    history: tuple[Turn, ...] = ()
    for number in sorted(questions.keys() | answers.keys()):
        place = f"{where}: turn {number}"
        if number not in questions or number not in answers:
            lacks = "answer" if number in questions else "question"
            raise DataError(f"{place} has no {lacks}; each needs both")
        question, answer = questions[number], answers[number]["input_text"]
        earlier, history = history, (*history, Turn(question, answer))
        start, end = answers[number]["span_start"], answers[number]["span_end"]
        if (start, end) == (-1, -1):
            start = end = 0
        if not 0 <= start <= end <= len(text):
            raise DataError(f"{place}: the rationale {start} to {end} is no part of its story")
        why = text[start:end].strip()
        start = text.find(why, start)
        rationale = (Span(start, start + len(why), why),) if why else ()
        kind = answer_type(answer, question)
        yield QAExample(
            f"{story['id']} {number}",
            text,
            question,
            answer_span(answer, kind, text, rationale),
            answer_type=kind,
            history=earlier,
            rationale=rationale,
            references=(answer, *(other[number] for other in others if number in other)),
            dataset="coqa",
            domain=story["source"],
        )
