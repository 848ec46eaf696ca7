"""SQuAD v1.1 and v2: the official JSON file, or rows in the Hub's layout -> QAExample.

Several references are kept, in order, without repeats; training uses the first. Text is left as it is:
SQuAD's questions carry stray blanks and they stay.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NotRequired

from pydantic import StrictInt
from typing_extensions import TypedDict

from data_modules.schema import QAExample, Span, TruthValue, query_text
from storage.errors import DataError
from storage.files import atomic_text
from storage.json_files import BadRecords, check, load_json


class Answer(TypedDict):
    """An answer of SQuAD's files; LEI's have the same fields."""

    text: str
    answer_start: StrictInt


class _Qa(TypedDict):
    id: str | StrictInt
    question: str
    answers: NotRequired[list[Answer]]
    is_impossible: NotRequired[TruthValue]


class _Paragraph(TypedDict):
    context: str
    qas: list[_Qa]


class _Article(TypedDict):
    paragraphs: list[_Paragraph]


class _Document(TypedDict):
    data: list[_Article]


class _Columns(TypedDict):
    text: list[str]
    answer_start: list[StrictInt]


class _Row(TypedDict):
    id: str | StrictInt
    context: str
    question: str
    answers: _Columns


_Record = tuple[str, str, str, str, list[tuple[int, str]], bool | None]
"""Of either layout: place, id, context, question, (start, text) of each answer, and whether there should be
any, where the file says so."""


def read_file(path: str | Path, *, skip_bad: bool = False) -> Iterator[QAExample]:
    """One example per question of a SQuAD-format JSON file, in its order.

    Raises:
        DataError: names file, place and question id for an offset that does not cut its answer, a repeated
            id, or an `is_impossible` that the answers contradict. `skip_bad=True` leaves such questions out
            and warns how many. A wrong shape is never skipped.
    """
    document = load_json(path, _Document)

    def records() -> Iterator[_Record]:
        for i, article in enumerate(document["data"]):
            for j, paragraph in enumerate(article["paragraphs"]):
                for k, qa in enumerate(paragraph["qas"]):
                    where = f"{path}: data[{i}].paragraphs[{j}].qas[{k}]"
                    pairs = [(answer["answer_start"], answer["text"]) for answer in qa.get("answers", ())]
                    answerable = not is_true(qa["is_impossible"]) if "is_impossible" in qa else None
                    yield where, str(qa["id"]), paragraph["context"], qa["question"], pairs, answerable

    yield from _examples(records(), path, skip_bad)


def read_rows(rows: Iterable[tuple[str, Any]], source: str, *, skip_bad: bool = False) -> Iterator[QAExample]:
    """(place, row) in the Hub's layout (id, context, question, answers {text [A], answer_start [A]}) ->
    examples; DataError as for files."""

    def records() -> Iterator[_Record]:
        for where, value in rows:
            row = check(value, _Row, where)
            starts, texts = row["answers"]["answer_start"], row["answers"]["text"]
            if len(starts) != len(texts):
                raise DataError(f"{where}: {len(texts)} answer texts but {len(starts)} offsets")
            pairs = list(zip(starts, texts, strict=True))
            yield where, str(row["id"]), row["context"], row["question"], pairs, None

    yield from _examples(records(), source, skip_bad)


def is_true(value: TruthValue) -> bool:
    """Whether a truth value of a file says true."""
    return str(value).lower() == "true"


def _examples(records: Iterable[_Record], source: str | Path, skip_bad: bool) -> Iterator[QAExample]:
    seen: set[str] = set()
    with BadRecords(source, skip_bad=skip_bad) as bad:
        for place, name, context, question, pairs, answerable in records:
            where = f"{place} (id {name})"
            try:
                if answerable not in (None, bool(pairs)):
                    found = f"but the field 'answers' holds {len(pairs)}"
                    raise DataError(f"{where}: is_impossible is {not answerable}, {found}")
                spans = tuple(dict.fromkeys(span_at(*pair, context, where) for pair in pairs))
                if name in seen:
                    raise DataError(f"{place}: the id {name!r} occurs twice; each needs its own")
            except DataError as error:
                bad.reject(error)
                continue
            seen.add(name)
            yield QAExample(name, context, question, spans, dataset="squad")


def span_at(start: int, text: str, context: str, where: str) -> Span:
    """The span of `text` at `start`; DataError unless it stands there."""
    if start < 0 or not text:
        raise DataError(f"{where}: answer {text!r} at offset {start} is empty or lies before the context")
    span = Span(start, start + len(text), text)
    span.check(context, where)
    return span


def write_squad(examples: Iterable[QAExample], path: str | Path, *, version: str = "interventune") -> int:
    """Write SQuAD v2's JSON layout, one article per example; returns how many. Atomic.

    Advice is written where LEI's files have it, at the front of the question: SQuAD has no field for it.
    Raises DataError for an answer yes or no, and for a question with history, which the format cannot hold.
    """
    count = 0
    with atomic_text(path) as file:
        file.write(f'{{"version": {json.dumps(version)}, "data": [')
        for example in examples:
            if example.answer_type in ("yes", "no") or example.history:
                raise DataError(
                    f"{example.id}: SQuAD's format holds neither yes/no answers nor history; write rows with "
                    "`interventune data perturb --variant os`"
                )
            file.write(",\n" if count else "\n")
            qa = {
                "id": example.id,
                "question": query_text(example.question, example.advice),
                "answers": [{"text": span.text, "answer_start": span.start} for span in example.answers],
                "is_impossible": not example.answers,
            }
            article = {"title": example.id, "paragraphs": [{"context": example.context, "qas": [qa]}]}
            file.write(json.dumps(article))
            count += 1
        file.write("\n]}\n")
    return count
