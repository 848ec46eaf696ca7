"""What the probes with yes/no questions share: asking, counting what got no answer, and their figure."""

from __future__ import annotations

import argparse
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from data_modules.schema import QAExample
from evaluation.answering.answerers import Answerer, Said, open_answerer
from evaluation.figures import COLOURS
from metrics.yes_no import YesNoResult

log = logging.getLogger(__name__)

PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
"""Behind a number, so that no line runs through it."""


def open_yes_no(path: str, args: argparse.Namespace) -> Answerer:
    """A checkpoint or a language model that can say yes and no.

    Raises:
        ValueError: it only names spans, or cannot be opened.
    """
    answerer = open_answerer(path, args)
    if not getattr(answerer, "typed", True):
        raise ValueError(
            f"{path}: the checkpoint has no answer-type heads, so it cannot say yes or no; train one with an "
            "experiment such as coqa_ot"
        )
    return answerer


def ask_all(answerer: Answerer, examples: Sequence[QAExample], what: str) -> list[Said]:
    """What is said to each question, in their order."""
    found = {said.example: said for said in answerer.said(examples, what)}
    return [found[i] for i in range(len(examples))]


def percent(share: float) -> str:
    """In percent with one decimal, as the papers print; a dash where nothing was counted.

    >>> percent(2 / 3), percent(float("nan"))
    ('66.7', '–')
    """
    return f"{100 * share:.1f}" if math.isfinite(share) else "–"


def said_shares(result: YesNoResult) -> tuple[float, float, float]:
    """Shares of yes, no and anything else among predictions; NaN where there are none."""
    yes, no, n = float(result.yes), float(result.no), int(result.n)
    return yes, no, round((1 - yes - no) * n) / n if n else math.nan


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


def warn_of_silence(rows: Sequence[Mapping[str, object]], names: Iterable[str]) -> None:
    """Warn of each checkpoint that answered nothing at all, and why: the report holds no number of it."""
    failures = count_failures(rows, names)
    for name, reasons in failures.items():
        if reasons and reasons.total() == sum(row["checkpoint"] == name for row in rows):
            told = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
            log.warning("%s: answered nothing (%s); the report holds no number of it", name, told)


def accuracy_figure(
    groups: Sequence[str], shares: Mapping[str, Sequence[float]], chance: Sequence[float]
) -> Callable[[Path], None]:
    """A function that draws accuracies to a file: a group of bars per column, a bar per checkpoint.

    Args:
        groups: the names under the bars.
        shares: checkpoint to its shares in [0, 1], one per group.
        chance: the share that guessing gets, one per group; drawn as a dashed line.
    """

    def draw(path: Path) -> None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(2.2 + len(groups) * (0.7 + 0.45 * len(shares)), 3.4), layout="constrained")
        axes = figure.subplots()
        width = 0.8 / len(shares)
        for i, (name, values) in enumerate(shares.items()):
            at = [g + (i - (len(shares) - 1) / 2) * width for g in range(len(groups))]
            heights = [100 * value if math.isfinite(value) else 0.0 for value in values]
            bars = axes.bar(at, heights, width, label=name, color=COLOURS[i % len(COLOURS)])
            labels = [percent(value) for value in values]
            axes.bar_label(bars, labels, fontsize=8, padding=2, bbox=PAPER, zorder=4)
        for g, share in enumerate(chance):
            label = "guessing" if g == 0 else None
            axes.plot([g - 0.46, g + 0.46], [100 * share] * 2, "k--", linewidth=1, label=label)
        axes.set_xticks(range(len(groups)), groups)
        axes.set_ylim(0, 108)
        axes.set_ylabel("accuracy (%)")
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside upper center", ncols=min(4, len(shares) + 1), frameon=False, fontsize=9)
        figure.savefig(path, dpi=150)

    return draw


def count_failures(rows: Iterable[Mapping[str, object]], names: Iterable[str]) -> dict[str, Counter[str]]:
    """Name of the checkpoint to reasons, from rows that have the field `failure` where there is no answer."""
    found: dict[str, Counter[str]] = {name: Counter() for name in names}
    for row in rows:
        if "failure" in row:
            found[str(row["checkpoint"])][str(row["failure"])] += 1
    return found
