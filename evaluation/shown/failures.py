"""Unanswered questions: rows with the field `failure`, the reason, are counted separately."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any

from evaluation.results import Row
from evaluation.shown.views import markdown_text

log = logging.getLogger(__name__)


def failure_note(rows: Iterable[Row], counted: str) -> str:
    """Describe unanswered questions in a paragraph, empty if there are none; log checkpoints without any
    answer. ValueError: no checkpoint answered anything.

    Args:
        rows: of all examples.
        counted: a plural noun for what the reasons count.
    """
    reasons: dict[str, Counter[str]] = {}
    for row in rows:
        reasons.setdefault(row["checkpoint"], Counter())[row.get("failure", "")] += 1
    answered = {name for name, counts in reasons.items() if counts.pop("", 0)}
    texts = {name: f"{name}: {listed(counts)}" for name, counts in reasons.items() if counts}
    parts = "; ".join(texts.values())
    if texts and not answered:
        raise ValueError(f"there is not one answer, so no report was written; {parts}")
    for name in texts.keys() - answered:
        log.warning("%s gave no answer, so the report has no numbers for it; %s", name, texts[name])
    return f"Some {counted} have no answer and are part of no share: {markdown_text(parts)}." if parts else ""


def listed(reasons: Counter[Any]) -> str:
    """List reasons with their counts, the most frequent first."""
    return ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
