"""CoQA: the official JSON file, or rows in the Hub's layout -> QAExample (faithfulness spec 1.1).

    from data_modules.questions.coqa import read_coqa
    for example in read_coqa("coqa-dev-v1.0.json"): ...

One example per turn. Offsets are trusted; `span_text`, which often differs in white space, and `bad_turn`
are not read. The span of an answer is where `answer_spans` locates it: in the rationale, else in the story
by shared words. An answer that shares no word with its story keeps its question and is stood for by the last
word of its rationale (the authors take the last word of the text they search); without a rationale either,
the question counts as unanswerable. How many there were is logged as information.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_modules.questions.answer_spans import AnswerLocator, answer_type
from data_modules.schema import QAExample, Span, Turn
from storage.errors import DataError
from storage.json_files import BadRecords, field, load_json


@dataclass(frozen=True, slots=True)
class _Turn:
    """A question as it stands in a file; `references` begin with the primary answer."""

    number: int
    question: str
    start: int
    end: int
    references: tuple[str, ...]

    @property
    def answer(self) -> str:
        return self.references[0]


def read_coqa(path: str | Path, *, skip_bad: bool = False) -> Iterator[QAExample]:
    """One example per turn of an official CoQA file, in the order of stories and turns.

    Its id is "STORY TURN", its domain the story's source, its history every earlier turn with the primary
    answer. The rationale is the primary answer's span without white space around it; none for -1, -1.
    References are the primary answer and those of `additional_answers`, in the file's order.

    Raises DataError naming file, story and turn for a rationale outside its story or reversed, a question
    without answer or the reverse, a repeated id, an empty story or question; `skip_bad=True` leaves these
    out and logs how many. A wrong shape is never skipped.
    """
    yield from coqa_examples(load_json(path), path, skip_bad=skip_bad)


def coqa_examples(document: Any, source: str | Path, *, skip_bad: bool = False) -> Iterator[QAExample]:
    """The same for a document that is already parsed; `source` names it in errors."""
    bad, locator = BadRecords(source, skip_bad=skip_bad), AnswerLocator(source)
    seen: set[str] = set()
    for index, story in enumerate(field(document, "data", list, str(source))):
        where = f"{source}: data[{index}]"
        story_id = str(field(story, "id", (str, int), where))
        where = f"{where} (story {story_id})"
        domain, text = field(story, "source", str, where), field(story, "story", str, where)
        if story_id in seen:
            bad.reject(DataError(f"{where}: this id occurs twice; ids must tell the stories apart"))
            continue
        seen.add(story_id)
        turns = _official_turns(story, where, bad)
        yield from _story_examples(story_id, domain, text, turns, where, bad, locator)
    bad.report()
    locator.report()


def rows_to_coqa(
    rows: Iterable[Mapping[str, Any]], source: str, *, skip_bad: bool = False
) -> Iterator[QAExample]:
    """Rows in the Hub's layout (source, story, questions [Q], answers {input_text [Q], answer_start [Q],
    answer_end [Q]}) -> examples.

    There are no ids, so a story's is the number of its row, and no additional answers.
    """
    bad, locator = BadRecords(source, skip_bad=skip_bad), AnswerLocator(source)
    for index, row in enumerate(rows):
        where = f"{source}: row {index}"
        domain, text = field(row, "source", str, where), field(row, "story", str, where)
        turns = _hub_turns(row, where)
        yield from _story_examples(str(index), domain, text, turns, where, bad, locator)
    bad.report()
    locator.report()


def _official_turns(story: Any, where: str, bad: BadRecords) -> list[_Turn]:
    """The turns by number. A turn that only has a question, or only an answer, is bad."""
    questions = _by_turn(story, "questions", where, bad)
    answers = _by_turn(story, "answers", where, bad)
    more: list[dict[int, Any]] = []
    if "additional_answers" in story:
        listed = field(story, "additional_answers", dict, where)
        place = f"{where}.additional_answers"
        more = [_by_turn(listed, annotator, place, bad) for annotator in listed]
    for alone in sorted(questions.keys() ^ answers.keys()):
        lacks = "answer" if alone in questions else "question"
        bad.reject(DataError(f"{where}: turn {alone} has no {lacks}; each needs both"))
    turns = []
    for number in sorted(questions.keys() & answers.keys()):
        place = f"{where}: turn {number}"
        given = [answers[number], *(other[number] for other in more if number in other)]
        references = tuple(field(answer, "input_text", str, place) for answer in given)
        question = field(questions[number], "input_text", str, place)
        start, end = (field(answers[number], name, int, place) for name in ("span_start", "span_end"))
        turns.append(_Turn(number, question, start, end, references))
    return turns


def _by_turn(record: Any, name: str, where: str, bad: BadRecords) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for index, item in enumerate(field(record, name, list, where)):
        number = field(item, "turn_id", int, f"{where}.{name}[{index}]")
        if number in found:
            bad.reject(DataError(f"{where}.{name}[{index}]: turn {number} occurs twice"))
        else:
            found[number] = item
    return found


def _hub_turns(row: Mapping[str, Any], where: str) -> list[_Turn]:
    questions, answers = field(row, "questions", list, where), field(row, "answers", (dict, list), where)
    if isinstance(answers, dict):  # one list a column; newer versions of the library keep lists of objects
        names = ("input_text", "answer_start", "answer_end")
        columns = [field(answers, name, list, f"{where}.answers") for name in names]
        if len({len(column) for column in columns}) > 1:
            raise DataError(f"{where}.answers: columns of different lengths")
        answers = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    if len(questions) != len(answers):
        raise DataError(f"{where}: {len(questions)} questions but {len(answers)} answers; each needs both")
    turns = []
    for number, (question, answer) in enumerate(zip(questions, answers, strict=True), start=1):
        place = f"{where}: turn {number}"
        if not isinstance(question, str):
            raise DataError(f"{place}: the question must be a string, found {type(question).__name__}")
        start, end = (field(answer, name, int, place) for name in ("answer_start", "answer_end"))
        turns.append(_Turn(number, question, start, end, (field(answer, "input_text", str, place),)))
    return turns


def _story_examples(
    story_id: str,
    domain: str,
    story: str,
    turns: Iterable[_Turn],
    where: str,
    bad: BadRecords,
    locator: AnswerLocator,
) -> Iterator[QAExample]:
    if not story.strip():
        bad.reject(DataError(f"{where}: the story is empty"))
        return
    history: tuple[Turn, ...] = ()
    for turn in turns:
        place = f"{where}: turn {turn.number}"
        if not turn.question.strip():
            bad.reject(DataError(f"{place}: the question is empty"))
            continue
        earlier, history = history, (*history, Turn(turn.question, turn.answer))
        try:
            rationale = _rationale(story, turn.start, turn.end, place)
        except DataError as error:
            bad.reject(error)
            continue
        kind = answer_type(turn.answer, turn.question)
        yield QAExample(
            f"{story_id} {turn.number}",
            story,
            turn.question,
            locator.spans(turn.answer, kind, story, rationale),
            answer_type=kind,
            history=earlier,
            rationale=rationale,
            references=turn.references,
            dataset="coqa",
            domain=domain,
        )


def _rationale(story: str, start: int, end: int, where: str) -> tuple[Span, ...]:
    """[start, end) without white space around it; nothing for -1, -1 and for white space alone."""
    if (start, end) == (-1, -1):
        return ()
    if start > end:
        raise DataError(f"{where}: the rationale ends at {end}, before its start {start}")
    if start < 0 or end > len(story):
        raise DataError(f"{where}: the rationale {start} to {end} lies outside its story of {len(story)}")
    text = story[start:end].strip()
    start += len(story[start:end]) - len(story[start:end].lstrip())
    return (Span(start, start + len(text), text),) if text else ()
