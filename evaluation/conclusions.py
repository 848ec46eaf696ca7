"""What a report says in words: its headline, and which questions were left unanswered.

    change("mu", [before, after])                 # mu .62 -> .093 (.051 to .13, n 192)
    headline(["heldout, ethical advice: ..."], good="mu near 0")

A row of a protocol has the field `failure`, the reason, where there is no answer; it is counted apart.
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

log = logging.getLogger(__name__)

Row = Mapping[str, Any]


def headline(sentences: Iterable[str], good: str) -> str:
    """The conclusion of a report: sentences, and once what would be good. Intervals are named at the first.

    >>> headline(["mu .31 (.20 to .40, n 7)", "eta .50 (.40 to .60, n 7)"], "near 0")
    'mu .31 (95 % interval .20 to .40, n 7). eta .50 (.40 to .60, n 7). Good: near 0.'
    """
    text = " ".join(f"{sentence}." for sentence in (*filter(None, sentences), f"Good: {good}"))
    return re.sub(r"\((?=-?[\d.]+ to -?[\d.]+, n )", "(95 % interval ", text, count=1)


def change(name: str, rows: Sequence[Row | None], *, percent: bool = False) -> str:
    """A measure from checkpoint to checkpoint, with the interval and n of the last.

    >>> rows = [{"value": 0.62}, {"value": 0.09, "low": 0.05, "high": 0.13, "n": 192}]
    >>> change("mu", rows), change("EM", rows[1:], percent=True)
    ('mu .62 -> .090 (.050 to .13, n 192)', 'EM 9 % (5 to 13, n 192)')

    Args:
        name: of the measure.
        rows: of the long table, one for each checkpoint; None where it has none.
        percent: write shares in percent.
    """
    values = " -> ".join("–" if row is None else short(row["value"], percent=percent) for row in rows)
    text = f"{name} {values}{' %' * percent}".strip()
    if (last := rows[-1]) is None:
        return text
    interval = [short(last[end], percent=percent) for end in ("low", "high") if math.isfinite(last[end])]
    behind = [*([" to ".join(interval)] if interval else []), f"n {last['n']}"]
    return f"{text} ({', '.join(behind)})"


def short(value: float, *, percent: bool = False) -> str:
    """Two decimals without a leading zero, or whole percent; more digits near 0 and 1.

    >>> [short(value) for value in (0.62, 1.0, -0.05, 0.0012, 0.9996, 12.345, 0.0)]
    ['.62', '1.00', '-.050', '.0012', '.9996', '12.35', '.00']
    >>> [short(value, percent=True) for value in (0.359, 1.0, 0.0042)]
    ['36', '100', '0.4']
    """
    if not math.isfinite(value):
        return "–"
    near = min(abs(value), abs(1 - value))
    if percent:
        return f"{100 * value:.{int(0 < near < 0.01)}f}"
    digits = 2 + (0 < near < 0.1) + (0 < near < 0.01)
    text = f"{value:.{digits}f}"
    return re.sub(r"^(-?)0\.", r"\1.", text)


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


def reference_notes(questions: Iterable[tuple[str, int]]) -> list[str]:
    """A paragraph, which is logged too, where EM and F1 of CoQA are against one reference; else none.

    Args:
        questions: the data set of each, and how many references it has.
    """
    if not (counts := [*questions]):
        return []
    from metrics.answers import reference_note  # which brings torch

    note = reference_note(counts)
    if note:
        log.warning("%s", note)
    return [f"{note}."] if note else []


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
