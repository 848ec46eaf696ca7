"""Questions that a language model left unanswered: counted apart, scored nowhere, and told.

A row of a protocol has the field `failure`, the reason, where there is no answer.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

log = logging.getLogger(__name__)

Row = Mapping[str, Any]


def answered_rows(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """The rows with `failed`, whether there is no answer: its mean is the share of failures."""
    for row in rows:
        yield {**row, "failed": "failure" in row}


def failure_note(rows: Iterable[Row], counted: str) -> list[str]:
    """A paragraph on what was left unanswered; none where all is well.

    Args:
        rows: of all examples.
        counted: what the reasons count, in the plural.
    """
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        if "failure" in row:
            counts.setdefault(str(row["checkpoint"]), Counter())[str(row["failure"])] += 1
    parts = "; ".join(f"{name}: {listed(reasons)}" for name, reasons in counts.items())
    return [f"Without an answer, counted apart and in no share ({counted}): {parts}."] if parts else []


def check_silence(rows: Sequence[Row], names: Collection[str], *, else_nothing: bool = True) -> None:
    """Warn of each that answered nothing at all, and why: the report holds no number of it.

    Args:
        rows: of all examples.
        names: who was asked.
        else_nothing: whether the report would be empty without these answers.

    Raises:
        ValueError: nobody answered anything, and there is nothing else to report.
    """
    silent = {}
    for name in names:
        reasons = Counter(row.get("failure") for row in rows if row["checkpoint"] == name)
        if reasons and None not in reasons:
            silent[name] = f"{name}: answered nothing ({listed(reasons)})"
    if silent and else_nothing and len(silent) == len(names):
        raise ValueError(f"{'; '.join(silent.values())}; no report was written")
    for text in silent.values():
        log.warning("%s; the report holds no number of it", text)


def listed(reasons: Counter[Any]) -> str:
    """Reasons with their counts, the most frequent first."""
    return ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
