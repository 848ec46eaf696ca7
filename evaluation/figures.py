"""Figures of reports, declared: bars and lines of the long table with their intervals.

Bars(x="variant", measures=("em", "unknown"), label="share of questions")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.views import cells_of

if TYPE_CHECKING:
    from pandas import DataFrame

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#777777")
"""Okabe and Ito's, which colour-blind readers tell apart (grey for black, which is for lines of chance)."""
MARKERS = "osD^vPX"
LEAST_DISTANCE = 1e-7
"""Below it, float32 does not tell a cosine from 1."""


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
        hue: the dimension that bars or lines of a panel differ in.
        panels: another dimension with panels of its own.
        where: dimension to the value or values that are shown; the default is that of a `View`.
        percent: shares in percent; by default where all measures are shares.
        distance: show 1 - value, on a log axis: cosines near 1 differ in it.
        label: the title of the vertical axis.
        x_label: the title of the horizontal axis of all panels.
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

    def draw(self, axes: Any, cells: DataFrame, colour_of: Mapping[Any, str], frame: DataFrame) -> None:
        """Draw the cells of one panel; `frame` is the long table."""
        raise NotImplementedError

    def width(self, cells: DataFrame, hues: int) -> float:
        """The width of a panel in inches."""
        return 4.0

    def __call__(self, frame: DataFrame, path: Path) -> None:
        """Write the picture."""
        panels = self.parts(frame)
        hues = dict.fromkeys(chain.from_iterable(cells[self.hue] for _, cells in panels))
        width = max(self.width(cells, len(hues)) for _, cells in panels)
        columns = min(len(panels), 4, max(1, int(10 / width)))
        rows = -(-len(panels) // columns)
        figure = new_figure(max(4.0, width * columns), 0.6 + 3.4 * rows)
        grid = figure.subplots(rows, columns, squeeze=False, sharey=isinstance(self, Bars)).ravel()
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        for axes, (title, cells) in zip(grid, panels, strict=False):
            self.draw(axes, cells, dict(zip(hues, cycle(COLOURS), strict=False)), frame)
            axes.set(title=title, xlabel="", yscale="log" if self.distance else "linear")
            axes.spines[["top", "right"]].set_visible(False)
        grid[0].set_ylabel(self.label or ("%" if self.percent else ""))
        figure.supxlabel(self.x_label, fontsize="medium")
        handles, names = grid[0].get_legend_handles_labels()
        if len(names) > 1:
            figure.legend(handles, names, loc="outside upper center", ncols=min(4, len(names)), frameon=False)
        figure.savefig(path, dpi=150)

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
                part = cells_of(frame, {"measure": measure} | ({self.panels: value} if self.panels else {}))
                if len(part):
                    found.append((" ".join(filter(None, (str(value), title))), part))
        return found


@dataclass(frozen=True)
class Bars(Panels):
    """Bars with their intervals: a group of bars for each value of `x`, a bar for each value of `hue`.

    Args:
        chance: the share that guessing gets, a dashed line.
    """

    chance: float | None = None

    def width(self, cells: DataFrame, hues: int) -> float:
        """The width of a panel in inches."""
        return max(3.0, 0.9 + cells[self.x].nunique() * (0.3 + 0.3 * hues))

    def draw(self, axes: Any, cells: DataFrame, colour_of: Mapping[Any, str], frame: DataFrame) -> None:
        """Draw the cells of one panel."""
        names = cells[self.x].unique()
        value, low, high = (
            cells.pivot(index=self.x, columns=self.hue, values=end).reindex(index=names, columns=[*colour_of])
            for end in ("value", "low", "high")
        )
        ends = [[(value - low)[hue].clip(lower=0), (high - value)[hue].clip(lower=0)] for hue in colour_of]
        upright = max(map(len, map(str, names))) * len(names) > 11 * self.width(cells, len(colour_of))
        style = {"capsize": 2, "error_kw": {"elinewidth": 0.8}, "rot": 90 if upright else 0}
        value.plot.bar(ax=axes, yerr=ends, width=0.8, color=[*colour_of.values()], legend=False, **style)
        if self.chance is not None:
            axes.axhline(
                self.chance * (100 if self.percent else 1), color="black", linestyle="--", linewidth=1
            )


@dataclass(frozen=True)
class Lines(Panels):
    """Lines with their intervals as bands, over the numbers of a dimension: a line for each value of `hue`.

    Args:
        level: the place of one cell for each value of `hue` (and its `measure`), drawn as a dashed level.
    """

    level: Mapping[str, Any] = field(default_factory=dict)

    def parts(self, frame: DataFrame) -> list[tuple[str, DataFrame]]:
        """Title and cells of every panel, those at a number alone."""
        import pandas as pd

        at = pd.to_numeric(frame[self.x], errors="coerce")
        return super().parts(frame.assign(**{self.x: at})[at.notna()])

    def draw(self, axes: Any, cells: DataFrame, colour_of: Mapping[Any, str], frame: DataFrame) -> None:
        """Draw the cells of one panel."""
        for (hue, colour), marker in zip(colour_of.items(), cycle(MARKERS), strict=False):
            line = cells[cells[self.hue] == hue].sort_values(self.x)
            axes.plot(line[self.x], line["value"], marker=marker, label=hue, color=colour)
            axes.fill_between(line[self.x], line["low"], line["high"], alpha=0.15, color=colour)
            for value in cells_of(frame, {**self.level, self.hue: hue})["value"] if self.level else ():
                share = value * (100 if self.percent else 1)
                axes.axhline(share, color=colour, linestyle="--", linewidth=1)
        axes.xaxis.get_major_locator().set_params(integer=(cells[self.x] % 1 == 0).all())
