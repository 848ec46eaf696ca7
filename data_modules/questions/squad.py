"""SQuAD v1.1 and v2, MRQA, CoConflictQA, and tables with a context, a question and its answers ->
QAExample.

Several references are kept, in order, without repeats; training uses the first. Text is unchanged,
including stray spaces in SQuAD's questions. An answer that is not at its offset is moved to its
nearest occurrence, in which any white space counts as one space; one that does not occur is left
out.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, NotRequired, TypeVar

from pydantic import AliasChoices, AliasPath, BeforeValidator, Field, StrictInt
from typing_extensions import TypedDict

from interventune.data_modules.questions.conflicts import remembering
from interventune.data_modules.schema.questions import QAExample
from interventune.data_modules.schema.spans import Span
from interventune.storage.errors import DataError
from interventune.storage.json_files import check, parse_json

logger = logging.getLogger(__name__)
T = TypeVar("T")


def _rows(value: Any) -> Any:
    if not isinstance(value, dict) or not all(
        isinstance(column, list) for column in value.values()
    ):
        return value
    return [dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True)]


Listed = Annotated[list[T], BeforeValidator(_rows)]
"""A list of T, or N of them as `{"name": [N], ...}`, as the Hub may store it."""

_ANSWERS = ("detected_answers", "answers", "answer", "answer_text")
"""Names of the answers, in the order of trial: MRQA's `answers` have no offsets."""
_START = AliasChoices("answer_start", "start", AliasPath("char_spans", 0, 0))
_ID = AliasChoices("id", "_id", "qid", "question_id")


def _listed(value: Any) -> Any:
    rows = _rows(value)
    rows = rows if isinstance(rows, list) else [rows]
    return [{"text": row} if isinstance(row, str) else row for row in rows]


class _Answer(TypedDict):
    text: str
    answer_start: NotRequired[Annotated[int | None, Field(validation_alias=_START)]]


class _Row(TypedDict):
    id: NotRequired[Annotated[str | StrictInt | None, Field(validation_alias=_ID)]]
    context: str
    question: str
    answers: Annotated[list[_Answer], BeforeValidator(_listed)]
    is_impossible: NotRequired[bool | None]
    title: NotRequired[str | None]
    parametric_answer: NotRequired[str]


def read_rows(rows: Iterable[tuple[str, Any]], source: str) -> Iterator[QAExample]:
    """(place, question with its context) -> examples. The id is the question's number unless it has
    one. An empty answer is none. Moved answers, those left out, and questions that thus have none
    are counted.

    Raises:
        DataError: names the place of a row of another shape, or an `is_impossible` that contradicts
            the answers.
    """
    moved = lost = without = 0
    asked = (pair for pair in rows if pair[1].keys() != {"header"})  # MRQA's first line
    try:
        for number, (place, value) in enumerate(asked):
            row = check(_answered(value, place), _Row, place)
            name = number if row.get("id") in (None, "") else row["id"]
            answers = [answer for answer in row["answers"] if answer["text"].strip()]
            impossible = row.get("is_impossible")
            if impossible not in (None, not answers):
                raise DataError(
                    f"{place} (id {name}): is_impossible is {impossible}, but 'answers' holds "
                    f"{len(answers)}"
                )
            spans = dict[Span, None]()
            for answer in answers:
                start, text = answer.get("answer_start"), answer["text"]
                if span := _nearest(text, start or 0, row["context"]):
                    spans[span] = None
                    moved += start is not None and (span.start, span.text) != (start, text)
                else:
                    lost += 1
            if answers and not spans:
                without += 1
                continue
            said = row["context"], row["question"], tuple(spans)
            example = QAExample(str(name), *said, dataset="squad", article=row.get("title") or "")
            if "parametric_answer" in row:
                example = remembering(
                    example, (x["text"] for x in answers), row["parametric_answer"]
                )
            yield example
    except DataError:
        moved = lost = 0
        raise
    finally:
        if moved or lost:
            logger.warning(
                "%s: moved %d answers to the nearest occurrence, left out %d, and %d questions "
                "with no other",
                source,
                moved,
                lost,
                without,
            )


def _answered(row: dict[str, Any], place: str) -> dict[str, Any]:
    """The row with its answers under the name `answers`; none if it says so."""
    given = next((row[name] for name in _ANSWERS if name in row), None)
    if isinstance(given, str) and given.startswith("{"):  # a cell of a table
        given = parse_json(given.encode(), dict[str, Any], place)
    elif isinstance(given, str):
        given = {"text": given, "answer_start": row.get("answer_start") or None}
    elif given is None and str(row.get("is_impossible")).lower() == "true":
        given = []
    return row if given is None else row | {"answers": given}


def _nearest(text: str, start: int, context: str) -> Span | None:
    if start >= 0 and context.startswith(text, start):
        return Span(start, start + len(text), text)
    matches = re.finditer(r"\s+".join(map(re.escape, text.split())), context)
    match = min(matches, key=lambda match: abs(match.start() - start), default=None)
    return match and Span(*match.span(), match[0])
