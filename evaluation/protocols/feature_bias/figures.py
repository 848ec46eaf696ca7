"""Bar figures of the feature-bias protocol: which feature is learned, and how far interventions steer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from evaluation.answering.yes_no import PAPER, percent
from evaluation.figures import COLOURS, new_figure

HEIGHT = 0.28
"""Of a bar, in inches."""


def learned_figure(
    shares: Mapping[tuple[str, str], tuple[float, float]], models: Sequence[str], tasks: Sequence[str]
) -> Callable[[Path], None]:
    """A function that draws, for every task, a bar per model: the share that follows h1 in full colour, the
    rest, which follows h2, in pale.

    Args:
        shares: (model, task) to (h1 in [0, 1], standard deviation over sets).
        models: the order of bars, from the top.
        tasks: the order of groups, from the top.
    """

    def draw(path: Path) -> None:
        names = [name for name in models if any(name == model for model, _ in shares)]
        figure = new_figure(8.0, 1.5 + len(tasks) * (len(names) * HEIGHT + 0.25))
        axes = figure.subplots()
        width = 0.8 / len(names)
        for i, name in enumerate(names):
            colour = COLOURS[i % len(COLOURS)]
            label: str | None = name
            for t, task in enumerate(tasks):
                h1, spread = shares.get((name, task), (math.nan, math.nan))
                if not math.isfinite(h1):
                    continue
                at = t + (i - (len(names) - 1) / 2) * width
                axes.barh(at, 100 * h1, 0.92 * width, color=colour, label=label)
                label = None
                axes.barh(at, 100 - 100 * h1, 0.92 * width, left=100 * h1, color=colour, alpha=0.25)
                if math.isfinite(spread):
                    axes.errorbar(100 * h1, at, xerr=100 * spread, color="black", linewidth=1, capsize=2)
                axes.text(101, at, percent(h1), va="center", fontsize=8)
        axes.axvline(50, color="black", linestyle="--", linewidth=1, label="no preference")
        axes.set_yticks(range(len(tasks)), tasks)
        axes.set_ylim(len(tasks) - 0.5, -0.5)
        axes.set_xlim(0, 109)
        axes.set_xticks(range(0, 101, 25))
        axes.set_xlabel("texts that follow the label h1 (full) and the other feature h2 (pale), in percent")
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside upper center", ncols=min(4, len(names) + 1), frameon=False, fontsize=9)
        figure.savefig(path, dpi=150)

    return draw


def steered_figure(
    means: Mapping[tuple[str, str], Mapping[str, float]], models: Sequence[str]
) -> Callable[[Path], None]:
    """A function that draws, for each steered feature, the mean over tasks of the share that follows it: a
    group of bars per model, a bar per intervention.

    Args:
        means: (model, steer) to intervention to the share.
        models: the order of groups.
    """

    def draw(path: Path) -> None:
        steers = sorted({steer for _, steer in means})
        names = [name for name in models if any(name == model for model, _ in means)]
        ways = list(dict.fromkeys(way for shares in means.values() for way in shares))
        width = 1.2 + len(names) * (0.4 + 0.42 * len(ways))
        figure = new_figure(max(6.0, 0.6 + len(steers) * width), 3.8)
        panels = figure.subplots(1, len(steers), sharey=True, squeeze=False)[0]
        for axes, steer in zip(panels, steers, strict=True):
            for i, way in enumerate(ways):
                shares = [means.get((name, steer), {}).get(way, math.nan) for name in names]
                at = [g + (i - (len(ways) - 1) / 2) * 0.8 / len(ways) for g in range(len(names))]
                heights = [100 * share if math.isfinite(share) else 0.0 for share in shares]
                label = way if axes is panels[0] else None
                bars = axes.bar(at, heights, 0.75 / len(ways), color=COLOURS[i % len(COLOURS)], label=label)
                shown = [percent(share) for share in shares]
                axes.bar_label(bars, shown, fontsize=7, padding=2, bbox=PAPER, zorder=4)
            axes.axhline(50, color="black", linestyle="--", linewidth=1)
            axes.set_xticks(range(len(names)), names)
            axes.set_ylim(0, 108)
            axes.set_title(f"steering toward {steer}", fontsize=10)
            axes.spines[["top", "right"]].set_visible(False)
        panels[0].set_ylabel("follow it, mean over tasks (%)")
        columns = min(len(ways), int(figure.get_figwidth() // 1.7))
        figure.legend(loc="outside upper center", ncols=columns, frameon=False, fontsize=9)
        figure.savefig(path, dpi=150)

    return draw
