"""What a report says in words: its headline, and which questions were left unanswered.

    Said("unknown", "answers unknown when the evidence is deleted", variant=DELETED)
    # answers unknown when the evidence is deleted (ts_r) 14 % -> 93 %, +79 points [76, 82], n 852

A row of a protocol has the field `failure`, the reason, where there is no answer; it is counted apart.
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import product
from typing import Any

from evaluation.results import Results, Row

log = logging.getLogger(__name__)

MOST_CLAUSES = 6


class Said:
    """A clause of a headline for each of its cells: a measure of the first and of the last checkpoint, with
    the change.

    Args:
        measure: its name.
        words: before the numbers; the place follows them.
        at: dimension to the value, or to a set of values, of the cells. The dimensions of the first entry of
            a protocol's cells that are not named may have any value, others are empty.
    """

    def __init__(self, measure: str, words: str, **at: Any) -> None:
        self.measure, self.words, self.at = measure, words, at

    def clauses(
        self, results: Results, names: Sequence[str], whole: Sequence[str], *, percent: bool
    ) -> Iterator[str]:
        """The clauses of the cells that the first or the last checkpoint has."""
        frame = results.frame
        dimensions = list(dict.fromkeys([*whole, *self.at]))
        values = [self._values(frame[name].unique(), name) for name in dimensions]
        for combination in product(*values):
            place = dict(zip(dimensions, combination, strict=True))
            first, last = (
                results.at(self.measure, checkpoint=name, **place) for name in (names[0], names[-1])
            )
            if last is None:
                continue
            change = results.at(self.measure, checkpoint=names[-1], against=names[0], **place)
            several = {
                name
                for name, found in zip(dimensions, values, strict=True)
                if name in self.at or len(found) > 1
            }
            where = ", ".join(str(value) for name, value in place.items() if name in several and value != "")
            where = f" ({where})" if where else ""
            yield f"{self.words}{where} {in_words(first or last, last, change, percent=percent)}"

    def _values(self, known: Iterable[Any], name: str) -> list[Any]:
        wanted = self.at.get(name)
        if isinstance(wanted, (set, frozenset, list, tuple)):
            return [value for value in known if value in wanted]
        return [value for value in known if value == wanted or wanted is None]


def headline(
    said: Sequence[Said],
    results: Results,
    names: Sequence[str],
    whole: Sequence[str],
    shares: Collection[str],
    good: str,
) -> str:
    """The conclusion of a report: at most six clauses, and once what would be good."""
    clauses = [
        clause for one in said for clause in one.clauses(results, names, whole, percent=one.measure in shares)
    ]
    if not clauses:
        return ""
    who = " -> ".join(dict.fromkeys([names[0], names[-1]]))
    return f"{who}: {'; '.join(clauses[:MOST_CLAUSES])}." + (f" Good: {good}." if good else "")


def in_words(first: Row, last: Row, change: Row | None, *, percent: bool) -> str:
    """A number, or how it changed, with its interval and n.

    >>> row = {"value": 0.14, "low": 0.1, "high": 0.2, "n": 852}
    >>> in_words(row, row, None, percent=True)
    '14 % [10, 20], n 852'
    >>> change = {"value": 0.79, "low": 0.76, "high": 0.82, "n": 850}
    >>> in_words(row, row | {"value": 0.93}, change, percent=True)
    '14 % -> 93 %, +79 points [76, 82], n 850 of 852'
    """
    unit, points = (" %", " points") if percent else ("", "")
    start, end = (f"{short(row['value'], percent=percent)}{unit}" for row in (first, last))
    if change is None:
        text = end if first is last else f"{start} -> {end}"
        return f"{text}{_brackets(last, percent)}, n {last['n']}"
    sign, most = "+" if change["value"] > 0 else "", max(first["n"], last["n"])
    text = f"{start} -> {end}, {sign}{short(change['value'], percent=percent)}{points}"
    of = f" of {most}" if most != change["n"] else ""
    return f"{text}{_brackets(change, percent)}, n {change['n']}{of}"


def _brackets(row: Row, percent: bool) -> str:
    if not math.isfinite(row["low"]):
        return ""
    return f" [{short(row['low'], percent=percent)}, {short(row['high'], percent=percent)}]"


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


def failure_note(rows: Iterable[Row], counted: str) -> str:
    """A paragraph on what was left unanswered; empty where nothing was.

    Args:
        rows: of all examples.
        counted: what the reasons count, in the plural.
    """
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        if "failure" in row:
            counts.setdefault(str(row["checkpoint"]), Counter())[str(row["failure"])] += 1
    parts = "; ".join(f"{name}: {listed(reasons)}" for name, reasons in counts.items())
    return f"Without an answer, counted apart and in no share ({counted}): {parts}." if parts else ""


def reference_note(questions: Iterable[tuple[str, int]]) -> str:
    """A paragraph, which is logged too, where EM and F1 of CoQA are against one reference; else empty.

    Args:
        questions: the data set of each, and how many references it has.
    """
    from metrics.answers import reference_note as note_of  # which brings torch

    counts = list(questions)
    note = note_of(counts) if counts else ""
    if note:
        log.warning("%s", note)
    return f"{note}." if note else ""


def check_silence(rows: Sequence[Row], names: Collection[str]) -> None:
    """Warn of each that answered nothing at all, and why: the report holds no number of it.

    Raises:
        ValueError: nobody answered anything.
    """
    silent = {}
    for name in names:
        reasons = Counter(row.get("failure") for row in rows if row["checkpoint"] == name)
        if reasons and None not in reasons:
            silent[name] = f"{name}: answered nothing ({listed(reasons)})"
    if silent and len(silent) == len(names):
        raise ValueError(f"{'; '.join(silent.values())}; no report was written")
    for text in silent.values():
        log.warning("%s; the report holds no number of it", text)


def listed(reasons: Counter[Any]) -> str:
    """Reasons with their counts, the most frequent first."""
    return ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
