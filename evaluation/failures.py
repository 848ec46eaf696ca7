"""Questions that a language model left unanswered: counted apart, scored nowhere, and told.

A row of a protocol has the field `failure`, the reason, where there is no answer.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

log = logging.getLogger(__name__)

Row = Mapping[str, Any]


def answered_rows(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """The rows with `failed`, whether there is no answer: its mean is the share of failures."""
    for row in rows:
        yield {**row, "failed": "failure" in row}


def count_failures(rows: Iterable[Row], key: str = "checkpoint") -> dict[str, Counter[str]]:
    """Who was asked to reasons, as often as they occur."""
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        reasons = counts.setdefault(str(row[key]), Counter())
        if "failure" in row:
            reasons[str(row["failure"])] += 1
    return counts


def failure_note(rows: Iterable[Row], counted: str, key: str = "checkpoint") -> list[str]:
    """A paragraph on what was left unanswered; none where all is well.

    Args:
        rows: of all examples.
        counted: what the reasons count, in the plural.
        key: the field that says who was asked.
    """
    parts = [f"{name}: {_listed(reasons)}" for name, reasons in count_failures(rows, key).items() if reasons]
    text = f"Without an answer, counted apart and in no share ({counted}): {'; '.join(parts)}."
    return [text] if parts else []


def warn_of_silence(rows: Sequence[Row], names: Iterable[str], key: str = "checkpoint") -> None:
    """Warn of each that answered nothing at all, and why: the report holds no number of it."""
    counts = count_failures(rows, key)
    for name in names:
        reasons = counts.get(name, Counter())
        if reasons and reasons.total() == sum(row[key] == name for row in rows):
            log.warning("%s: answered nothing (%s); the report holds no number of it", name, _listed(reasons))


def _listed(reasons: Counter[str]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
