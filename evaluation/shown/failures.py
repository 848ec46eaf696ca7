"""Unanswered questions: rows with the field `failure`, the reason, are counted separately."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any

from interventune.evaluation.results import Row
from interventune.evaluation.shown.views import markdown_text

log = logging.getLogger(__name__)

MANY = 0.03
"""Failures per answer above which a warning lists those of a checkpoint."""


def failure_note(rows: Iterable[Row], counted: str) -> str:
    """Describe unanswered questions in a paragraph, empty if there are none; log those of
    checkpoints with many. ValueError: no checkpoint answered anything.

    Args:
        rows: of all examples.
        counted: a plural noun for what the reasons count.
    """
    reasons: dict[str, Counter[str]] = {}
    for row in rows:
        reasons.setdefault(row["checkpoint"], Counter())[row.get("failure", "")] += 1
    answered = {name: counts.pop("", 0) for name, counts in reasons.items()}
    texts = {name: f"{name}: {listed(counts)}" for name, counts in reasons.items() if counts}
    parts = "; ".join(texts.values())
    if texts and not any(answered.values()):
        raise ValueError(f"there is not one answer, so no report was written; {parts}")
    for name, text in texts.items():
        if reasons[name].total() > MANY * answered[name]:
            log.warning("%s without an answer are part of no share; %s", counted, text)
    return (
        f"Some {counted} have no answer and are part of no share: {markdown_text(parts)}."
        if parts
        else ""
    )


def listed(reasons: Counter[Any]) -> str:
    """List reasons with their counts, the most frequent first."""
    return ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
