"""What reports without the long table share: shares in percent, and what was left unanswered."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
"""Behind a number, so that no line runs through it."""


def percent(share: float) -> str:
    """In percent with one decimal, as the papers print; a dash where nothing was counted.

    >>> percent(2 / 3), percent(float("nan"))
    ('66.7', '–')
    """
    return f"{100 * share:.1f}" if math.isfinite(share) else "–"


def failure_note(failures: Mapping[str, Counter[str]], asked: str) -> list[str]:
    """A paragraph on what language models left unanswered, by name of the model; none where all is well.

    Args:
        failures: name to reasons.
        asked: what the reasons count, in the plural.
    """
    parts = [
        f"{name}: " + ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        for name, reasons in failures.items()
        if reasons
    ]
    if not parts:
        return []
    return [f"Without an answer, counted apart and in no share ({asked}): {'; '.join(parts)}."]
