"""Perturbed questions as JSON Lines, one row an example: everything that QAExample holds, and nothing else.

A row: {id, dataset, domain, context, question, advice, history [[question, answer], ...], answer_type,
answers [text, ...], answer_spans [{start, end, text}, ...], references [text, ...], rationale [{start, end,
text}, ...], variant, appended, kept [[start, end], ...]}. `answers` is what a faithful model says to this
variant: the human answers as they wrote them, or ["unknown"] once the rationale is deleted; `answer_spans` is
where the first of them lies; `references` are the human answers to the original story.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from data_modules.schema import AnswerType, QAExample, Span, Turn, Variant
from storage.errors import DataError
from storage.files import atomic_text
from storage.json_files import json_lines

_SPOKEN = ("yes", "no", "unknown")
"""The types whose answer is their name, whatever the story says."""


class _Row(TypedDict):
    id: str
    dataset: str
    domain: str
    context: str
    question: str
    advice: str
    history: list[tuple[str, str]]
    answer_type: AnswerType
    answer_spans: list[Span]
    references: list[str]
    rationale: list[Span]
    variant: Variant
    appended: str
    kept: list[tuple[int, int]]


def to_line(example: QAExample) -> str:
    """The row of an example as one line of ASCII, so that any text survives any encoding."""
    spoken = example.answer_type in _SPOKEN
    row = {
        "id": example.id,
        "dataset": example.dataset,
        "domain": example.domain,
        "context": example.context,
        "question": example.question,
        "advice": example.advice,
        "history": [[turn.question, turn.answer] for turn in example.history],
        "answer_type": example.answer_type,
        "answers": [example.answer_type] if spoken else example.gold,
        "answer_spans": [asdict(span) for span in example.answers],
        "references": example.references,
        "rationale": [asdict(span) for span in example.rationale],
        "variant": example.variant,
        "appended": example.appended,
        "kept": example.kept,
    }
    return json.dumps(row) + "\n"


def write_rows(examples: Iterable[QAExample], path: str | Path) -> int:
    """Write one row per example; how many. Atomic: an error on the way leaves no file."""
    count = 0
    with atomic_text(path) as file:
        for example in examples:
            file.write(to_line(example))
            count += 1
    return count


def read_file(path: str | Path, *, skip_bad: bool = False) -> Iterator[QAExample]:
    """The examples of a file of rows, in its order; empty lines are passed over. No row is ever skipped.

    Raises:
        DataError: names file, line and field for what is not JSON, lacks a field, or holds an offset that
            does not cut its text, and for a second row of one question in one variant.
    """
    seen: set[int] = set()  # hashes: the ids themselves would take several times the memory
    for where, row in json_lines(path, _Row):
        example = _example(row, where)
        key = hash((example.dataset, example.id, example.variant))
        if key in seen:
            raise DataError(f"{where}: {example.id!r} occurs twice in variant {example.variant}; remove one")
        seen.add(key)
        yield example


def _example(row: _Row, where: str) -> QAExample:
    """`answers` follows from the rest."""
    fields: dict[str, Any] = {**row}
    for name in ("answer_spans", "rationale"):
        for index, span in enumerate(fields[name]):
            place, length = f"{where}: {name}[{index}]", len(row["context"])
            if not 0 <= span.start <= span.end <= length:
                raise DataError(
                    f"{place}: {span.start} to {span.end} is no part of a text of {length} characters"
                )
            span.check(row["context"], place)
    fields["answers"] = tuple(fields.pop("answer_spans"))
    fields["history"] = tuple(Turn(*turn) for turn in row["history"])
    for name in ("references", "rationale", "kept"):
        fields[name] = tuple(fields[name])
    if row["answer_type"] in _SPOKEN and fields["answers"]:
        raise DataError(f"{where}: answer_type is {row['answer_type']}, which has no 'answer_spans'")
    ends = [offset for piece in row["kept"] for offset in piece]
    if ends != sorted(ends) or any(offset < 0 for offset in ends):
        raise DataError(
            f"{where}: the pieces of 'kept' must lie one behind the other, found {fields['kept']}"
        )
    if sum(end - start for start, end in row["kept"]) > len(row["context"]):
        raise DataError(f"{where}: the pieces of 'kept' are longer than the context; was it edited by hand?")
    return QAExample(**fields)
