"""Figures of the shift protocol: histograms, curves over layers, heat maps between checkpoints.

Shape letters: L layers, K pairs of checkpoints, H bins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from data_modules.schema import Variant
from evaluation.figures import MARKERS, new_figure, style
from evaluation.protocols.shift.scores import MEASURES, Between, CheckpointShift, measured
from metrics.shift import ShiftResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_BINS = 40
"""Bars over the range that is shown."""

TITLES: Mapping[Variant, str] = {
    "ts": "cut after the rationale",
    "ts_r": "cut before the rationale",
    "os_r": "rationale deleted",
    "ts_r_aug": "cut before the rationale, sentence added",
    "os_r_aug": "rationale deleted, sentence added",
}

Draw = Callable[[Path], None]


def figures(
    variants: Sequence[Variant], checkpoints: Sequence[CheckpointShift], pairs: Sequence[Between]
) -> dict[str, Draw]:
    """File names to functions that draw them."""
    found: dict[str, Draw] = {}
    for variant in variants:
        results = {c.name: c.shift[variant] for c in checkpoints}
        single = {c.name: c.single[variant] for c in checkpoints}
        title = f"{variant}: {TITLES[variant]}"
        found[f"histogram_{variant}.png"] = partial(draw_histograms, title, results)
        if any(int(single[name].n) != int(result.n) for name, result in results.items()):
            name = f"histogram_{variant}_single_window.png"
            found[name] = partial(draw_histograms, f"{title} (stories of one window)", single)
    if any(len(result.cls_mean_L) > 1 for c in checkpoints for result in c.shift.values()):
        found["layers.png"] = partial(draw_layers, variants, checkpoints)
    if pairs:
        found["between.png"] = partial(draw_between, pairs)
    return found


def draw_histograms(title: str, results: Mapping[str, ShiftResult], path: Path) -> None:
    """Histograms of the last layer: CLS beside tokens, one colour a checkpoint, the same bins for all."""
    figure = new_figure(8.5, 3.4)
    panels = figure.subplots(1, 2)
    for axes, name, what in zip(panels, ("cls", "token"), ("stories", "common tokens"), strict=True):
        counts = {run: getattr(r, f"{name}_histogram_LH")[-1].numpy() for run, r in results.items()}
        means = [float(getattr(r, f"{name}_mean_L")[-1]) for r in results.values()]
        draw_histogram(axes, counts, means)
        axes.set_xlabel(f"cosine similarity, {'CLS' if name == 'cls' else 'tokens'}")
        axes.set_ylabel(f"% of {what}")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.suptitle(f"{title}; dotted: means", fontsize=11, x=0.01, ha="left")
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 5), frameon=False)
    figure.savefig(path, dpi=150)


def draw_histogram(axes: Axes, counts: Mapping[str, np.ndarray], means: Sequence[float]) -> None:
    """One panel: an outline a checkpoint, with its mean as a dotted line."""
    edges, shares = joined_bins(list(counts.values()))
    for i, (run, share_H, mean) in enumerate(zip(counts, shares, means, strict=True)):
        look = style(i)
        axes.stairs(100 * share_H, edges, fill=True, alpha=0.18, color=look["color"])
        axes.stairs(100 * share_H, edges, label=run, linewidth=1.6, **look)
        if mean == mean:
            axes.axvline(mean, linewidth=1, linestyle=(0, (1, 2)), color=look["color"])
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="x", nbins=5)
    axes.spines[["top", "right"]].set_visible(False)


def joined_bins(counts: Sequence[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Fine histograms over [-1, 1] with shared wider bins over the range where any of them has something.

    Returns:
        The edges, and for each histogram the shares of its own total, 0 where it is empty.
    """
    bins = len(counts[0])
    filled = np.flatnonzero(np.sum(counts, axis=0))
    first, last = (int(filled[0]), int(filled[-1]) + 1) if len(filled) else (0, bins)
    factor = next(f for f in range(1, bins + 1) if bins % f == 0 and last // f - first // f < MOST_BINS)
    low, high = first // factor, -(-last // factor)
    edges = np.linspace(-1, 1, bins // factor + 1)[low : high + 1]
    wide = [count.reshape(-1, factor).sum(1)[low:high] for count in counts]
    return edges, [count / max(1, count.sum()) for count in wide]


def draw_layers(variants: Sequence[Variant], checkpoints: Sequence[CheckpointShift], path: Path) -> None:
    """Mean cosine over the layers: a row of panels for each variant, CLS beside tokens."""
    figure = new_figure(8.5, 0.7 + 2.5 * len(variants))
    grid = figure.subplots(len(variants), 2, squeeze=False, sharex=True, sharey="row")
    for line, variant in zip(grid, variants, strict=True):
        for axes, name, what in zip(line, ("cls_mean_L", "token_mean_L"), ("CLS", "tokens"), strict=True):
            for i, checkpoint in enumerate(checkpoints):
                values = getattr(checkpoint.shift[variant], name).numpy()
                marker = MARKERS[i % len(MARKERS)]
                axes.plot(values, marker=marker, markersize=4, label=checkpoint.name, **style(i))
            axes.set_title(f"{variant}, {what}", fontsize=10, loc="left")
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(alpha=0.3, linewidth=0.5)
        line[0].set_ylabel("mean cosine")
    for axes in grid[-1]:
        axes.set_xlabel("layer (0: embeddings)")
        axes.xaxis.get_major_locator().set_params(integer=True)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 5), frameon=False)
    figure.savefig(path, dpi=150)


def draw_between(pairs: Sequence[Between], path: Path) -> None:
    """Heat maps, layers by pairs of checkpoints: cosine and CKA, of CLS and of tokens, in one scale."""
    found = {title: grid_of(pairs, *key) for key, title in MEASURES.items()}
    panels = {title: grid_LK for title, grid_LK in found.items() if np.isfinite(grid_LK).any()}
    if not panels:
        return draw_nothing(path)
    depth, columns = next(iter(panels.values())).shape
    firsts = list(dict.fromkeys(pair.first for pair in pairs))
    names = [p.second if len(firsts) == 1 else f"{p.first} – {p.second}" for p in pairs]
    longest = max(map(len, names))
    low = min(0.9, np.floor(10 * min(np.nanmin(grid_LK) for grid_LK in panels.values())) / 10)
    across = min(len(panels), 2 if columns > 3 else 4)
    down = -(-len(panels) // across)
    width, height = max(1.9, 0.55 * columns + 0.5), 0.9 + 0.26 * depth
    figure = new_figure(1.4 + across * width, 0.6 + down * height + 0.065 * longest)
    grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for axes, (title, grid_LK) in zip(grid.flat, panels.items(), strict=False):
        image = axes.imshow(grid_LK, vmin=low, vmax=1, cmap="cividis", aspect="auto", origin="lower")
        axes.set_facecolor("0.85")
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_xticks(range(columns), names, rotation=90 if columns * longest > 16 else 0, fontsize=8)
        write_values(axes, grid_LK, low)
    for axes in grid[:, 0]:
        axes.set_ylabel("layer (0: embeddings)")
        axes.set_yticks(range(depth))
    compared = f"compared with {firsts[0]}" if len(firsts) == 1 else "each compared with the one before it"
    figure.suptitle(compared, fontsize=11, x=0.01, ha="left")
    figure.colorbar(image, ax=grid, fraction=0.04, pad=0.02, label="cosine or CKA")
    figure.savefig(path, dpi=150)
    return None


def draw_nothing(path: Path) -> None:
    """A figure that says that there are no numbers."""
    figure = new_figure(4, 1)
    figure.text(0.5, 0.5, "no finite values", ha="center", va="center")
    figure.savefig(path, dpi=150)


def write_values(axes: Axes, grid_LK: np.ndarray, low: float, most: int = 14) -> None:
    """The value in every cell, light on dark and dark on light; nothing where they would not fit."""
    if grid_LK.shape[1] > most:
        return
    for (layer, k), value in np.ndenumerate(grid_LK):
        told = f"{value:.3f}" if np.isfinite(value) else "–"
        colour = "white" if value < (1 + low) / 2 else "black"
        axes.text(k, layer, told, ha="center", va="center", fontsize=7, color=colour)


def grid_of(pairs: Sequence[Between], where: str, what: str) -> np.ndarray:
    """One measure as (L, K), NaN where a pair has no such layer or no cosine."""
    depth = max(len(pair.cls_cka_L) for pair in pairs)
    grid = np.full((depth, len(pairs)), np.nan)
    for k, pair in enumerate(pairs):
        values = measured(pair, where, what)
        if values is not None:
            grid[: len(values), k] = values.numpy()
    return grid
