"""Declared figures of reports: cells of the long table with their intervals, as points or lines.

Points("variant", {"em": "EM", "unknown": "says unknown"})
Lines("layer", {"cosine": "cosine"}, panels="variant")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, cycle
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from .views import cells_of, headings

if TYPE_CHECKING:
    from pandas import DataFrame

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#777777")
"""Okabe and Ito's colours for colour-blind readers (grey instead of black, which is for chance)."""
MARKERS = "osD^vPX"


@dataclass(frozen=True)
class Points:
    """A picture of cells, with a panel for each measure and value of `panels`: points with their
    intervals, a group for each value of `x`, a point for each value of `hue`.

    Args:
        x: the dimension of the horizontal axis.
        measures: measure to the title of its axes.
        hue: the dimension in which points of a group differ.
        panels: another dimension with its own panels.
        where: dimension to the displayed value or values; the default is that of a `View`.
        percent: the measures in percent; a protocol sets its shares.
        x_label: the title of the horizontal axis of all panels (default: its dimension).
        chance: the number reached by guessing, a dashed line.
    """

    x: str
    measures: Mapping[str, str]
    hue: str = "checkpoint"
    panels: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    percent: Sequence[str] | set[str] = ()
    x_label: str = ""
    chance: float | None = None

    one_scale = True
    """Whether all panels have the same vertical axis."""

    @property
    def fixed(self) -> list[str]:
        """The dimensions with one displayed value."""
        return [f"{name} {at}" for name, at in self.where.items() if at and isinstance(at, str)]

    @property
    def caption(self) -> str:
        """Describe the picture."""
        dimensions = " and ".join(filter(None, (self.x, self.panels)))
        return ", ".join([f"{'; '.join(self.measures.values())} by {dimensions}", *self.fixed])

    def __call__(self, frame: DataFrame, path: Path) -> None:
        """Write the picture, and the same as a PDF next to it."""
        from matplotlib.figure import Figure

        panels = self.parts(frame)
        hues = dict.fromkeys(chain.from_iterable(cells[self.hue] for _, cells in panels))
        colour_of = dict(zip(hues, cycle(COLOURS), strict=False))
        width = max(self.width(cells, len(hues)) for _, cells in panels)
        columns = min(len(panels), 4, max(1, int(10 / width)))
        rows = -(-len(panels) // columns)
        size = max(4.0, width * columns), 0.6 + 3.4 * rows
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, sharey=self.one_scale).ravel()
        drawn = grid[: len(panels)]
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        heading_of = headings(self.measures, self.percent)
        for axes, (title, cells) in zip(drawn, panels, strict=True):
            self.draw(axes, cells, colour_of, frame)
            axes.set_ylabel(fill(heading_of[cells["measure"].iloc[0]], 36))
            axes.set_title(fill(title, int(9 * width)), fontsize="medium")
            axes.spines[["top", "right"]].set_visible(False)
        if not any(axes.dataLim.intervaly.any() for axes in drawn):  # all is 0: no axis around it
            for axes in drawn:
                axes.set_ylim(0, 1)
        figure.supxlabel(self.x_label or self.x, fontsize="medium")
        handles, names = grid[0].get_legend_handles_labels()
        where = "outside upper center"
        columns = min(4, len(names))
        figure.legend(handles, names, loc=where, ncols=columns, frameon=False, title=self.hue)
        figure.savefig(path, dpi=150)
        undated = {"CreationDate": None}
        figure.savefig(path.with_suffix(".pdf"), metadata=undated)

    def parts(self, frame: DataFrame) -> list[tuple[str, DataFrame]]:
        """Return title and cells of every panel."""
        cells = cells_of(frame, {"against": "", **self.where, "measure": list(self.measures)})
        numbers = cells[["value", "low", "high"]].astype(float)
        numbers[cells["measure"].isin([*self.percent])] *= 100
        cells = cells.assign(**numbers).replace(r"\$", r"\\$", regex=True)  # no formulas
        by_panel = cells.groupby(self.panels, sort=False) if self.panels else [("", cells)]
        return [
            (", ".join(filter(None, [str(value), *self.fixed])), part)
            for value, panel in by_panel
            for measure in self.measures
            if len(part := panel[panel["measure"] == measure])
        ]

    def width(self, cells: DataFrame, hues: int) -> float:
        """Return the width of a panel in inches."""
        return max(3.0, 0.9 + cells[self.x].nunique() * (0.3 + 0.3 * hues))

    def draw(
        self, axes: Any, cells: DataFrame, colour_of: Mapping[Any, str], frame: DataFrame
    ) -> None:
        """Draw the cells of one panel; `frame` is the long table."""
        names = [*cells[self.x].unique()]
        step = 0.6 / len(colour_of)
        for h, ((hue, colour), marker) in enumerate(
            zip(colour_of.items(), cycle(MARKERS), strict=False)
        ):
            own = cells[cells[self.hue] == hue]
            at = [names.index(name) + step * (h - (len(colour_of) - 1) / 2) for name in own[self.x]]
            ends = [(own["value"] - own["low"]).clip(0), (own["high"] - own["value"]).clip(0)]
            axes.errorbar(
                at, own["value"], yerr=ends, fmt=marker, color=colour, label=hue, capsize=3
            )
        longest = max(map(len, map(str, names)))
        upright = longest * len(names) > 11 * self.width(cells, len(colour_of))
        axes.set_xticks(range(len(names)), names, rotation=90 if upright else 0)
        axes.set_xlim(-0.5, len(names) - 0.5)
        if self.chance is not None:
            axes.axhline(self.chance, color="black", linestyle="--", linewidth=1)


@dataclass(frozen=True)
class Lines(Points):
    """Lines with their intervals as bands, over the numbers of a dimension: a line for each value
    of `hue`.

    Args:
        level: the place of one cell for each value of `hue` (and its `measure`), drawn as a dashed
            line.
    """

    level: Mapping[str, Any] = field(default_factory=dict)

    one_scale = False

    def parts(self, frame: DataFrame) -> list[tuple[str, DataFrame]]:
        """Return title and cells of every panel, only those with a numerical x."""
        import pandas as pd

        at = pd.to_numeric(frame[self.x], errors="coerce")
        return super().parts(frame.assign(**{self.x: at})[at.notna()])

    def width(self, cells: DataFrame, hues: int) -> float:
        return 4.0

    def draw(
        self, axes: Any, cells: DataFrame, colour_of: Mapping[Any, str], frame: DataFrame
    ) -> None:
        for (hue, colour), marker in zip(colour_of.items(), cycle(MARKERS), strict=False):
            line = cells[cells[self.hue] == hue].sort_values(self.x)
            axes.plot(line[self.x], line["value"], marker=marker, label=hue, color=colour)
            axes.fill_between(line[self.x], line["low"], line["high"], alpha=0.15, color=colour)
            if self.level:
                for value in cells_of(frame, {**self.level, self.hue: hue})["value"]:
                    axes.axhline(value, color=colour, linestyle="--", linewidth=1)
        axes.xaxis.get_major_locator().set_params(integer=(cells[self.x] % 1 == 0).all())
