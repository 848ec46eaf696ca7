"""Perturbed questions as JSON Lines, one row an example: everything that QAExample holds, and nothing else.

    from data_modules.questions.rows import read_rows, write_rows

A row: {id, dataset, domain, context, question, advice, history [[question, answer], ...], answer_type,
answers [text, ...], answer_spans [{start, end, text}, ...], references [text, ...], rationale [{start, end,
text}, ...], variant, appended, kept [[start, end], ...]}. `answers` is what a faithful model says to this
variant: the human answers as they wrote them, or ["unknown"] once the rationale is deleted; `answer_spans` is
where the first of them lies; `references` are the human answers to the original story.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from data_modules.schema import ANSWER_TYPES, VARIANTS, QAExample, Span, Turn
from storage.errors import DataError
from storage.json_files import atomic_text, field, parse_line

_SPOKEN = ("yes", "no", "unknown")
"""The types whose answer is their name, whatever the story says."""


def to_row(example: QAExample) -> dict[str, Any]:
    """The row of an example, ready for JSON."""
    spoken = example.answer_type in _SPOKEN
    return {
        "id": example.id,
        "dataset": example.dataset,
        "domain": example.domain,
        "context": example.context,
        "question": example.question,
        "advice": example.advice,
        "history": [[turn.question, turn.answer] for turn in example.history],
        "answer_type": example.answer_type,
        "answers": [example.answer_type] if spoken else list(example.gold),
        "answer_spans": [_from_span(span) for span in example.answers],
        "references": list(example.references),
        "rationale": [_from_span(span) for span in example.rationale],
        "variant": example.variant,
        "appended": example.appended,
        "kept": [list(piece) for piece in example.kept],
    }


def to_line(example: QAExample) -> str:
    """The row as one line of ASCII, so that any text survives any encoding."""
    return json.dumps(to_row(example)) + "\n"


def write_rows(examples: Iterable[QAExample], path: str | Path) -> int:
    """Write one row per example; how many. Atomic: an error on the way leaves no file."""
    count = 0
    with atomic_text(path) as file:
        for example in examples:
            file.write(to_line(example))
            count += 1
    return count


def read_rows(path: str | Path) -> Iterator[QAExample]:
    """The examples of a file of rows, in its order; empty lines are passed over.

    Raises DataError naming file and line for what is not JSON, lacks a field, or holds an offset that does
    not cut its text, and for a second row of one question in one variant.
    """
    seen: set[int] = set()  # hashes: the ids themselves would take several times the memory
    try:
        with open(path, encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    where = f"{path}: line {number}"
                    example = from_row(parse_line(line, where), where)
                    key = hash((example.dataset, example.id, example.variant))
                    if key in seen:
                        raise DataError(
                            f"{where}: {example.id!r} occurs twice in variant {example.variant}; remove one"
                        )
                    seen.add(key)
                    yield example
    except UnicodeDecodeError:
        raise DataError(f"{path}: not a text file in UTF-8") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


def from_row(row: Any, where: str) -> QAExample:
    """The example of a row; DataError names `where` and the field. `answers` follows from the rest."""
    context = field(row, "context", str, where)
    example = QAExample(
        id=field(row, "id", str, where),
        context=context,
        question=field(row, "question", str, where),
        answers=_spans(row, "answer_spans", context, where),
        advice=field(row, "advice", str, where),
        answer_type=_one_of(row, "answer_type", ANSWER_TYPES, where),
        history=tuple(Turn(*pair) for pair in _pairs(row, "history", str, where)),
        rationale=_spans(row, "rationale", context, where),
        references=_texts(row, "references", where),
        dataset=field(row, "dataset", str, where),
        domain=field(row, "domain", str, where),
        variant=_one_of(row, "variant", VARIANTS, where),
        appended=field(row, "appended", str, where),
        kept=tuple(_pairs(row, "kept", int, where)),
    )
    if example.answer_type in _SPOKEN and example.answers:
        raise DataError(f"{where}: answer_type is {example.answer_type}, which has no 'answer_spans'")
    _check_kept(example, where)
    return example


def _from_span(span: Span) -> dict[str, Any]:
    return {"start": span.start, "end": span.end, "text": span.text}


def _spans(row: Any, name: str, context: str, where: str) -> tuple[Span, ...]:
    spans = []
    for index, item in enumerate(field(row, name, list, where)):
        place = f"{where}: {name}[{index}]"
        start, end = field(item, "start", int, place), field(item, "end", int, place)
        if not 0 <= start <= end <= len(context):
            raise DataError(f"{place}: {start} to {end} is no part of a context of {len(context)} characters")
        span = Span(start, end, field(item, "text", str, place))
        span.check(context, place)
        spans.append(span)
    return tuple(spans)


def _pairs(row: Any, name: str, kind: type, where: str) -> Iterator[tuple[Any, Any]]:
    for index, pair in enumerate(field(row, name, list, where)):
        if not isinstance(pair, list) or len(pair) != 2 or any(type(part) is not kind for part in pair):
            what = "two texts" if kind is str else "two whole numbers"
            raise DataError(f"{where}: {name}[{index}] must be {what}, found {pair!r}")
        yield pair[0], pair[1]


def _texts(row: Any, name: str, where: str) -> tuple[str, ...]:
    texts = field(row, name, list, where)
    if any(not isinstance(text, str) for text in texts):
        raise DataError(f"{where}: the field {name!r} must be a list of texts, found {texts!r}")
    return tuple(texts)


def _one_of(row: Any, name: str, known: tuple[str, ...], where: str) -> Any:
    value = field(row, name, str, where)
    if value not in known:
        raise DataError(f"{where}: the field {name!r} must be one of {', '.join(known)}, found {value!r}")
    return value


def _check_kept(example: QAExample, where: str) -> None:
    ends = [offset for piece in example.kept for offset in piece]
    if ends != sorted(ends) or any(offset < 0 for offset in ends):
        raise DataError(f"{where}: the pieces of 'kept' must lie one behind the other, found {example.kept}")
    if sum(end - start for start, end in example.kept) > len(example.context):
        raise DataError(f"{where}: the pieces of 'kept' are longer than the context; was it edited by hand?")
