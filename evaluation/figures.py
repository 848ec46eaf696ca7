"""Figures of reports, declared: bars and lines of the long table with their intervals, and heat maps.

Bars(x="variant", measures=("em", "unknown"), label="share of questions")
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.views import cells_of, number

if TYPE_CHECKING:
    from pandas import DataFrame

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#777777")
"""Okabe and Ito's, which colour-blind readers tell apart (grey for black, which is for lines of chance)."""
MARKERS = "osD^vPX"
LEAST_DISTANCE = 1e-7
"""Below it, float32 does not tell a cosine from 1."""
MOST_NUMBERS = 14
"""Columns of a heat map; in narrower ones numbers would not fit."""


def new_figure(width: float, height: float) -> Any:
    """A figure in inches that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


@dataclass(frozen=True)
class Panels:
    """A picture of cells: a panel for each measure and value of `panels`.

    Args:
        x: the dimension of the horizontal axis.
        measures: those shown; or measure to title of its panels.
        hue: the dimension that bars or lines of a panel differ in; of a heat map that of the vertical axis.
        panels: another dimension with panels of its own.
        where: dimension to the value or values that are shown; by default as of a `View`.
        percent: shares in percent; by default where all measures are shares.
        distance: show 1 - value, on a log axis: cosines near 1 differ in it.
        label: the title of the vertical axis.
        x_label: the title of the horizontal axis (default: the dimension).
    """

    x: str
    measures: Mapping[str, str] | Sequence[str]
    hue: str = "checkpoint"
    panels: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    percent: bool | None = None
    distance: bool = False
    label: str = ""
    x_label: str = ""

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Those that tell the cells of the figure apart."""
        return (self.x, self.hue, self.panels)

    def __call__(self, frame: DataFrame, path: Path) -> None:
        """Write the picture."""
        raise NotImplementedError

    def parts(self, frame: DataFrame) -> list[tuple[str, DataFrame]]:
        """Title and cells of every panel, in percent or as distances where that is asked for."""
        titles = self.measures if isinstance(self.measures, Mapping) else {m: m for m in self.measures}
        frame = cells_of(frame, {"against": "", **self.where, "measure": list(titles)})
        numbers = frame[["value", "low", "high"]].astype(float) * (100 if self.percent else 1)
        if self.distance:
            numbers = 1 - numbers.rename(columns={"low": "high", "high": "low"})
            numbers = numbers.clip(lower=LEAST_DISTANCE)
        frame = frame.assign(**numbers)
        found = []
        for value in dict.fromkeys(frame[self.panels]) if self.panels else [""]:
            for measure, title in titles.items():
                part = frame[frame["measure"] == measure]
                part = part[part[self.panels] == value] if self.panels else part
                if len(part):
                    found.append((" ".join(filter(None, (str(value), title))), part))
        return found


@dataclass(frozen=True)
class Bars(Panels):
    """Bars with their intervals: a group of bars for each value of `x`, a bar for each value of `hue`.

    Args:
        chance: what guessing gets, as a share, or by value of `x`; a dashed line.
        note: under the figure.
    """

    chance: float | Mapping[Any, float] | None = None
    note: str = ""

    def __call__(self, frame: DataFrame, path: Path) -> None:
        """Write the picture."""
        parts = self.parts(frame)
        groups = max((part[self.x].nunique() for _, part in parts), default=1)
        hues = list(dict.fromkeys(hue for _, part in parts for hue in part[self.hue]))
        width = max(3.0, 0.9 + groups * (0.3 + 0.3 * len(hues)))
        figure, grid = _grid(len(parts), width, 3.4, sharey=True)
        for axes, (title, part) in zip(grid, parts, strict=False):
            names = list(dict.fromkeys(part[self.x]))
            value, low, high = (
                part.pivot(index=self.x, columns=self.hue, values=end).reindex(index=names, columns=hues)
                for end in ("value", "low", "high")
            )
            below, above = (value - low).clip(lower=0).fillna(0), (high - value).clip(lower=0).fillna(0)
            error = [[below[hue], above[hue]] for hue in hues]
            style = {"color": list(COLOURS), "capsize": 2, "error_kw": {"elinewidth": 0.8}}
            value.plot.bar(ax=axes, yerr=error, width=0.8, rot=0, legend=False, logy=self.distance, **style)
            if self.chance is not None:
                rates = self.chance if isinstance(self.chance, Mapping) else dict.fromkeys(names, self.chance)
                for i, name in enumerate(names):
                    share = rates[name] * (100 if self.percent else 1)
                    axes.hlines(share, i - 0.5, i + 0.5, color="black", linestyle="--", linewidth=1)
            upright = max(map(len, map(str, names))) * len(names) > 11 * width
            axes.tick_params("x", labelrotation=90 if upright else 0)
            axes.set(title=title, xlabel=self.x_label)
        _finish(figure, grid, self.label or ("%" if self.percent else ""), path, note=self.note)


@dataclass(frozen=True)
class Lines(Panels):
    """Lines with their intervals as bands, over a dimension of numbers: a line for each value of `hue`.

    Args:
        level: the place of one cell for each value of `hue` (and its `measure`), drawn as a dashed level.
    """

    level: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, frame: DataFrame, path: Path) -> None:
        """Write the picture."""
        parts = self.parts(frame)
        figure, grid = _grid(len(parts), 4.0, 3.4)
        for axes, (title, part) in zip(grid, parts, strict=False):
            hues = list(dict.fromkeys(part[self.hue]))
            for hue, marker, colour in zip(hues, cycle(MARKERS), cycle(COLOURS), strict=False):
                cells = part[part[self.hue] == hue].astype({self.x: float}).sort_values(self.x)
                axes.plot(cells[self.x], cells["value"], marker=marker, label=hue, color=colour)
                axes.fill_between(cells[self.x], cells["low"], cells["high"], alpha=0.15, color=colour)
                for value in cells_of(frame, {**self.level, self.hue: hue})["value"] if self.level else ():
                    axes.axhline(value, color=colour, linestyle="--", linewidth=1)
            axes.set(title=title, xlabel=self.x_label or self.x)
            axes.xaxis.get_major_locator().set_params(integer=all(isinstance(x, int) for x in part[self.x]))
            if self.distance:
                axes.set_yscale("log")
        _finish(figure, grid, self.label, path)


@dataclass(frozen=True)
class HeatMap(Panels):
    """Values as colours in one scale, from light to dark, and as numbers where there is room.

    Args:
        ends: the ends of the scale; empty: the least and the largest value.
        scale_label: what the colours mean.
    """

    ends: tuple[float, float] | tuple[()] = ()
    scale_label: str = ""

    def __call__(self, frame: DataFrame, path: Path) -> None:
        """Write the picture."""
        from matplotlib.colors import LogNorm, Normalize

        parts = self.parts(frame)
        columns = list(dict.fromkeys(value for _, part in parts for value in part[self.x]))
        lines = sorted({value for _, part in parts for value in part[self.hue]})
        every = [value for _, part in parts for value in part["value"] if math.isfinite(value)]
        norm = (LogNorm if self.distance else Normalize)(*(self.ends or (min(every), max(every))))
        width, height = max(2.4, 0.55 * len(columns) + 0.8), 1.2 + 0.26 * len(lines)
        figure, grid = _grid(len(parts), width, height, sharex=True, sharey=True)
        for axes, (title, part) in zip(grid, parts, strict=False):
            values = part.pivot(index=self.hue, columns=self.x, values="value")
            values = values.reindex(index=lines, columns=columns).to_numpy(dtype=float)
            image = axes.imshow(values, norm=norm, cmap="cividis_r", aspect="auto", origin="lower")
            axes.set(title=title, xlabel=self.x_label or self.x)
            axes.set_xticks(range(len(columns)), columns, rotation=90 if len(columns) > 3 else 0, fontsize=8)
            axes.set_yticks(range(len(lines)), lines)
            for i, line in enumerate(values if len(columns) <= MOST_NUMBERS else []):
                for j, value in enumerate(line):
                    colour = "white" if norm(value) > 0.5 else "black"
                    axes.text(j, i, number(value), ha="center", va="center", fontsize=7, color=colour)
        figure.colorbar(image, ax=grid, fraction=0.04, pad=0.02, label=self.scale_label)
        _finish(figure, grid, self.label or self.hue, path)


def _grid(panels: int, width: float, height: float, **shared: bool) -> tuple[Any, list[Any]]:
    """A figure with at most ten inches of panels side by side; those left over are empty."""
    across = min(max(panels, 1), 4, max(1, int(10 / width)))
    down = -(-panels // across) or 1
    figure = new_figure(max(4.0, width * across), 0.6 + height * down)
    grid = list(figure.subplots(down, across, squeeze=False, **shared).flat)
    for axes in grid[panels:]:
        axes.set_axis_off()
    return figure, grid


def _finish(figure: Any, grid: Sequence[Any], label: str, path: Path, *, note: str = "") -> None:
    """One legend over all panels where there are several lines or bars to tell apart; write the picture."""
    first = grid[0]
    first.set_ylabel(label)
    for axes in grid:
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = first.get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(handles, labels, loc="outside upper center", ncols=min(4, len(labels)), frameon=False)
    if note:
        figure.supxlabel(note, fontsize=8)
    figure.savefig(path, dpi=150)
