"""Until every protocol is declared: the names that the others still use."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from evaluation.headlines import Row, listed, short
from evaluation.headlines import check_silence as _check_silence
from evaluation.headlines import failure_note as _failure_note
from evaluation.headlines import reference_note as _reference_note

__all__ = ["change", "headline", "listed", "short"]


def headline(sentences: Iterable[str], good: str) -> str:
    text = " ".join(f"{sentence}." for sentence in (*filter(None, sentences), f"Good: {good}"))
    return re.sub(r"\((?=-?[\d.]+ to -?[\d.]+, n )", "(95 % interval ", text, count=1)


def change(name: str, rows: Sequence[Row | None], *, percent: bool = False) -> str:
    values = " -> ".join("–" if row is None else short(row["value"], percent=percent) for row in rows)
    text = f"{name} {values}{' %' * percent}".strip()
    if (last := rows[-1]) is None:
        return text
    interval = [short(last[end], percent=percent) for end in ("low", "high") if math.isfinite(last[end])]
    behind = [*([" to ".join(interval)] if interval else []), f"n {last['n']}"]
    return f"{text} ({', '.join(behind)})"


def answered_rows(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield {**row, "failed": "failure" in row}


def failure_note(rows: Iterable[Row], counted: str) -> list[str]:
    return list(filter(None, [_failure_note(rows, counted)]))


def reference_notes(questions: Iterable[tuple[str, int]]) -> list[str]:
    return list(filter(None, [_reference_note(questions)]))


def check_silence(rows: Sequence[Row], names: Any, *, else_nothing: bool = True) -> None:
    try:
        _check_silence(rows, names)
    except ValueError:
        if else_nothing:
            raise
