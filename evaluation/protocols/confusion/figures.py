"""Figures of the confusion protocol: boxes of confidences and of their differences, hits@k curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from evaluation.figures import COLOURS, MARKERS, new_figure
from evaluation.protocols.confusion.results import ConfusionResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLES = {
    "no_question": "no question",
    "wrong_question": "wrong question",
    "no_right_answer": "no right answer",
}
GAPS = {
    "difference": "no question\n– wrong question",
    "anc_post_minus_sac": "others – substitute\n(after)",
    "anc_minus_rac": "others – right\n(before)",
}
BEST = {"difference": 0.0, "anc_post_minus_sac": 0.0, "anc_minus_rac": -1.0}
"""What a model without bias, that knows every answer, would have."""


def figures(results: Sequence[ConfusionResult]) -> dict[str, Callable[[Path], None]]:
    """File name to what draws it."""
    found: dict[str, Callable[[Path], None]] = {}
    if results[0].bias:
        found["confidences.png"] = partial(draw_confidences, results)
    if any(gaps(result) for result in results):
        found["differences.png"] = partial(draw_gaps, results)
    if results[0].paralysis:
        found["hits.png"] = partial(draw_hits, results)
    return found


def gaps(result: ConfusionResult) -> dict[str, np.ndarray]:
    """The differences of confidences that a model has, by name."""
    found = {"difference": result.difference} if len(result.difference) else {}
    if "no_right_answer" in result.bias:
        found |= {n: gap_SP.ravel() for n, gap_SP in result.bias["no_right_answer"].substitution.items()}
    return found


def draw_confidences(results: Sequence[ConfusionResult], path: Path) -> None:
    """Confidence in the (pseudo-)correct choice, before and after each probe."""
    probes = list(results[0].bias)
    columns = {"original": [before(result) for result in results]}
    columns |= {TITLES[probe]: [result.bias[probe].post_SP.ravel() for result in results] for probe in probes}
    chance = results[0].bias[probes[0]].chance
    figure = new_figure(2.5 + len(columns) * (0.5 + 0.45 * len(results)), 3.6)
    axes = figure.subplots()
    draw_boxes(axes, columns, [result.name for result in results])
    axes.axhline(chance, linestyle="--", linewidth=1, color="black", label=f"chance (1/{round(1 / chance)})")
    axes.set_ylim(-0.02, 1.02)
    axes.set_ylabel("confidence in the (pseudo-)correct choice")
    figure.legend(loc="outside upper center", ncols=min(4, len(results) + 1), frameon=False, fontsize=9)
    figure.savefig(path, dpi=150)


def before(result: ConfusionResult) -> np.ndarray:
    """Confidence in the right choice of every original."""
    return result.original.confidence_NC[np.arange(len(result.original.label_N)), result.original.label_N]


def draw_gaps(results: Sequence[ConfusionResult], path: Path) -> None:
    """Differences of confidences over questions."""
    names = list(gaps(results[0]))
    columns = {GAPS[name]: [gaps(result)[name] for result in results] for name in names}
    figure = new_figure(2.8 + len(columns) * (0.8 + 0.45 * len(results)), 3.6)
    axes = figure.subplots()
    draw_boxes(axes, columns, [result.name for result in results])
    for at, name in enumerate(names):
        label = "ideal" if at == 0 else None
        axes.plot([at - 0.46, at + 0.46], [BEST[name]] * 2, "k--", linewidth=1, label=label)
    axes.set_ylabel("difference of confidences")
    figure.legend(loc="outside upper center", ncols=min(4, len(results) + 1), frameon=False, fontsize=9)
    figure.savefig(path, dpi=150)


def draw_boxes(axes: Axes, columns: Mapping[str, Sequence[np.ndarray]], names: Sequence[str]) -> None:
    """Groups of boxes, one box for each name: median, quartiles, mean as a diamond, whiskers to 1.5 IQR.

    Args:
        axes: to draw on.
        columns: title of a group to the values of every name.
        names: of the boxes in a group.
    """
    width = 0.8 / len(names)
    for i, name in enumerate(names):
        at = [g + (i - (len(names) - 1) / 2) * width for g in range(len(columns))]
        colour = COLOURS[i % len(COLOURS)]
        boxes = axes.boxplot(
            [values[i] for values in columns.values()],
            positions=at,
            widths=0.8 * width,
            showmeans=True,
            showfliers=False,
            patch_artist=True,
            medianprops={"color": "black"},
            meanprops={
                "marker": "D",
                "markersize": 4,
                "markerfacecolor": "white",
                "markeredgecolor": "black",
            },
            boxprops={"facecolor": colour, "alpha": 0.55},
            manage_ticks=False,
        )
        boxes["boxes"][0].set_label(name)
    # The first model's counts are all models': they get the same questions.
    axes.set_xticks(range(len(columns)), [f"{name}\nn = {len(v[0])}" for name, v in columns.items()])
    axes.spines[["top", "right"]].set_visible(False)


def draw_hits(results: Sequence[ConfusionResult], path: Path) -> None:
    """hits@k of choice paralysis: a row for each model, a column for each sampling, a curve for each n."""
    kinds = list(dict.fromkeys(one.sampling for one in results[0].paralysis))
    figure = new_figure(0.8 + 3.6 * len(kinds), 0.8 + 2.6 * len(results))
    grid = figure.subplots(len(results), len(kinds), squeeze=False, sharex=True, sharey=True)
    for line, result in zip(grid, results, strict=True):
        for axes, kind in zip(line, kinds, strict=True):
            found = [one for one in result.paralysis if one.sampling == kind]
            for i, one in enumerate(found):
                mean_K = one.hits_SK.mean(0)
                trials = len(one.hits_SK)
                error_K = one.hits_SK.std(0, ddof=1) / np.sqrt(trials) if trials > 1 else None
                look = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
                label = f"{one.n} choices"
                axes.errorbar(
                    range(1, one.n + 1), mean_K, error_K, label=label, markersize=4, capsize=2, **look
                )
                guess = "guessing" if i == 0 else None
                axes.plot([1, one.n], [1 / one.n, 1], color="0.5", linestyle=":", linewidth=1, label=guess)
            axes.axhline(
                found[0].pre_accuracy.mean,
                linestyle="--",
                linewidth=1,
                color="black",
                label="accuracy with the own choices",
            )
            title = f"{result.name}, {kind} (n = {len(found[0].lost)})"
            axes.set_title(title, fontsize=10, loc="left")
            axes.spines[["top", "right"]].set_visible(False)
        line[0].set_ylabel("hits@k")
    for axes in grid[-1]:
        axes.set_xlabel("k")
        axes.xaxis.get_major_locator().set_params(integer=True)
    grid[0][0].set_ylim(0, 1.02)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=min(4, len(labels)), frameon=False, fontsize=9
    )
    figure.savefig(path, dpi=150)
