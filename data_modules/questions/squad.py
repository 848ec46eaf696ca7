"""SQuAD v1.1 and v2: the official JSON file, or rows in the Hub's layout -> QAExample.

Several references are kept, in order, without repeats; training uses the first. Text is unchanged, including
stray spaces in SQuAD's questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypeVar

from pydantic import BeforeValidator, StrictInt
from typing_extensions import TypedDict

from data_modules.schema.questions import QAExample
from data_modules.schema.spans import Span
from storage.errors import DataError
from storage.json_files import check, load_json

T = TypeVar("T")


def _rows(value: Any) -> Any:
    if not isinstance(value, dict) or not all(isinstance(column, list) for column in value.values()):
        return value
    return [dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True)]


Listed = Annotated[list[T], BeforeValidator(_rows)]
"""A list of T, or N of them as `{"name": [N], ...}`, as the Hub may store it."""


_Boolean = bool | Literal["true", "false", "True", "False"]
"""LEI's files have text."""


class _Answer(TypedDict):
    text: str
    answer_start: StrictInt


class _Qa(TypedDict):
    id: str | StrictInt
    question: str
    answers: NotRequired[list[_Answer]]
    is_impossible: NotRequired[_Boolean]


class _Paragraph(TypedDict):
    context: str
    qas: list[_Qa]


class _Article(TypedDict):
    title: NotRequired[str]
    paragraphs: list[_Paragraph]


class _Document(TypedDict):
    data: list[_Article]


class _Row(TypedDict):
    id: str | StrictInt
    context: str
    question: str
    answers: Listed[_Answer]
    is_impossible: NotRequired[_Boolean]
    title: NotRequired[str]


def read_file(path: str | Path) -> Iterator[QAExample]:
    """Yield one example per question of a SQuAD-format JSON file, in file order.

    Raises:
        DataError: names file, place and question id for an offset that does not match its answer, or an
            `is_impossible` that contradicts the answers.
    """
    for i, article in enumerate(load_json(path, _Document)["data"]):
        for j, paragraph in enumerate(article["paragraphs"]):
            for k, qa in enumerate(paragraph["qas"]):
                where = f"{path}: data[{i}].paragraphs[{j}].qas[{k}] (id {qa['id']})"
                answers = qa.get("answers", [])
                refuse_contradiction(qa.get("is_impossible", not answers), answers, where)
                title = article.get("title", str(i))
                yield _example(qa["id"], paragraph["context"], qa["question"], answers, title, where)


def read_rows(rows: Iterable[tuple[str, Any]], source: str) -> Iterator[QAExample]:
    """(place, row) in the Hub's layout (id, context, question, answers {text [A], answer_start [A]}) ->
    examples; DataError as for files."""
    for place, value in rows:
        row = check(value, _Row, place)
        answers = row["answers"]
        refuse_contradiction(row.get("is_impossible", not answers), answers, f"{place} (id {row['id']})")
        yield _example(
            row["id"],
            row["context"],
            row["question"],
            answers,
            row.get("title", ""),
            f"{place} (id {row['id']})",
        )


def refuse_contradiction(stated: bool | str, answers: Sequence[_Answer], where: str) -> None:
    """DataError if a question is called impossible and has answers, or neither."""
    impossible = str(stated).lower() == "true"
    if impossible == bool(answers):
        raise DataError(f"{where}: is_impossible is {impossible}, but 'answers' holds {len(answers)}")


def _example(
    name: str | int, context: str, question: str, answers: list[_Answer], article: str, where: str
) -> QAExample:
    places = dict.fromkeys((answer["answer_start"], answer["text"]) for answer in answers)
    for start, text in places:
        if not text or start < 0 or not context.startswith(text, start):
            raise DataError(f"{where}: the context does not have answer {text!r} at answer_start {start}")
    spans = tuple(Span(start, start + len(text), text) for start, text in places)
    return QAExample(str(name), context, question, spans, dataset="squad", article=article)
