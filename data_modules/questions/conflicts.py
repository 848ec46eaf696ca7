"""CoConflictQA, JSON Lines: questions whose context contradicts what a language model remembers -> QAExample
(Huang et al. 2025, ParamMute)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from annotated_types import MinLen
from typing_extensions import TypedDict

from data_modules.questions.answer_spans import normalised, occurs
from data_modules.schema.questions import QAExample
from data_modules.schema.spans import Span
from storage.json_files import check


class _Row(TypedDict):
    question: str
    context: str
    answers: Annotated[list[str], MinLen(1)]
    parametric_answer: str


def read_rows(rows: Iterable[tuple[str, Any]], source: str) -> Iterator[QAExample]:
    """(place, row) -> one example per question. Its id is its row number; its domain says whether the
    remembered answer also occurs in the context (both in SQuAD's normal form). A blank answer counts as
    none.

    Raises:
        DataError: names the place of a row of another shape, or an answer missing from the context.
    """
    for number, (place, value) in enumerate(rows):
        row = check(value, _Row, place)
        context, words = row["context"], normalised(row["parametric_answer"])
        found = [text for text in row["answers"] if text in context] or row["answers"]
        spans = tuple(Span.locate(text, context, place) for text in dict.fromkeys(found))
        within = words and occurs(words, normalised(context))
        yield QAExample(
            str(number),
            context,
            row["question"],
            spans,
            references=tuple(row["answers"]),
            remembered=(row["parametric_answer"].strip(),) * bool(words),
            dataset="coconflictqa",
            domain=f"remembered answer {'' if within else 'not '}in the text",
        )
