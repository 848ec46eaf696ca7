"""SQuAD v1.1 and v2, MRQA, CoConflictQA, and tables with a context, a question and its answers ->
QAExample.

Several references are kept, in order, without repeats; training uses the first. Text is unchanged,
including stray spaces in SQuAD's questions. An answer that is not at its offset is moved to its
nearest occurrence, in which any white space counts as one space; one without an offset is the first
whole word; one that does not occur is left out.

CoConflictQA has questions whose context contradicts what a language model remembers (Huang et al.
2025, ParamMute); its rows have that answer, of which a blank one counts as none. The domain says
whether it also occurs in the context.
"""

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, NotRequired, TypeVar

from pydantic import AliasChoices, AliasPath, BeforeValidator, Field, StrictInt
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

from interventune.data_modules.schema.questions import QAExample, Span
from interventune.storage.documents import DataError, Rows, Values, check

from .answer_spans import APART, normalised, occurs

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
_NO_PART = r"(?<![a-zA-Z\d]){}(?![a-zA-Z\d])"
"""The text in braces, unless a Latin letter or a digit is next to it. Other letters may be: some
languages have no spaces between words.
"""
_ID = AliasChoices("id", "_id", "qid", "question_id")


def _answer_rows(value: Any) -> Any:
    rows = _rows(value)
    rows = rows if isinstance(rows, list) else [rows]
    return [{"text": row} if isinstance(row, str) else row for row in rows]


class _Answer(TypedDict):
    text: str
    answer_start: NotRequired[Annotated[int | None, Field(validation_alias=_START)]]


@dataclass(kw_only=True)
class _Row:
    id: Annotated[str | StrictInt | None, Field(validation_alias=_ID)] = None
    context: str
    question: str
    answers: Annotated[list[_Answer], BeforeValidator(_answer_rows)]
    is_impossible: bool | None = None
    title: str | None = None
    parametric_answer: str | None = None


def read_rows(rows: Rows, source: str) -> Iterator[QAExample]:
    """(place, question with its context) -> examples. The id is the question's number unless it has
    one. An empty answer is none. Moved answers, those left out, and questions that thus have none
    are counted.

    Raises:
        DataError: names the place of a row of another shape, or an `is_impossible` that contradicts
            the answers.
    """
    moved = lost = without = 0
    questions = (pair for pair in rows if pair[1].keys() != {"header"})  # MRQA's first line
    try:
        for number, (place, value) in enumerate(questions):
            row = check(_with_answers(value, place), _Row, place)
            name = number if row.id in (None, "") else row.id
            answers = [answer for answer in row.answers if answer["text"].strip()]
            if row.is_impossible not in (None, not answers):
                raise DataError(
                    f"{place} (id {name}): is_impossible is {row.is_impossible}, but 'answers' "
                    f"holds {len(answers)}"
                )
            spans = []
            for answer in answers:
                start = answer.get("answer_start")
                text = answer["text"]
                span = nearest(text, -1 if start is None else start, row.context)
                if span is None:
                    lost += 1
                    continue
                spans.append(span)
                if start is not None and (start, text) != (span.start, span.text):
                    moved += 1
            if answers and not spans:
                without += 1
                continue
            example = QAExample(
                str(name),
                row.context,
                row.question,
                tuple(dict.fromkeys(spans)),
                dataset="squad",
                article=row.title or "",
            )
            if row.parametric_answer is not None:  # its domain compares in SQuAD's normal form
                words = normalised(row.parametric_answer)
                within = words and occurs(words, normalised(row.context))
                example = replace(
                    example,
                    references=tuple(answer["text"] for answer in answers),
                    remembered=(row.parametric_answer.strip(),) if words else (),
                    dataset="coconflictqa",
                    domain=f"remembered answer {'' if within else 'not '}in the text",
                )
            yield example
    except DataError:
        moved = lost = 0
        raise
    finally:
        if moved or lost:
            logging.getLogger(__name__).warning(
                f"{source}: moved {moved} answers to the nearest occurrence, left out {lost}, and "
                f"{without} questions with no other"
            )


def _with_answers(row: Values, place: str) -> Values:
    """The row with its answers under the name `answers`; none if it says so."""
    answers = next((row[name] for name in _ANSWERS if name in row), None)
    if isinstance(answers, str) and answers.startswith("{"):  # a cell of a table
        answers = check(answers.encode(), Values, place)
    elif isinstance(answers, str):
        answers = {"text": answers, "answer_start": row.get("answer_start") or None}
    elif answers is None and str(row.get("is_impossible")).lower() == "true":
        answers = []
    return row if answers is None else row | {"answers": answers}


def nearest(text: str, start: int, context: str) -> Span | None:
    """Return the occurrence of `text` that begins nearest to `start`, its white space aside. If
    `start` is negative: the first, whole words preferred, and never a part of a word in the Latin
    alphabet.
    """
    if start >= 0 and context.startswith(text, start):
        return Span(start, start + len(text), text)
    words = r"\s+".join(map(re.escape, text.split()))
    for form in ("{}",) if start >= 0 else (APART, _NO_PART):
        matches = re.finditer(form.format(words), context)
        match = min(matches, key=lambda match: abs(match.start() - start), default=None)
        if match:
            return Span(*match.span(), match[0])
    return None
