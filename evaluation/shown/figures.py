"""Declared figures of reports: cells of the long table with their intervals, as bars or lines.

Bars("variant", {"em": "EM", "unknown": "says unknown"}, label="share of questions")
Lines("layer", {"cosine": "cosine"}, panels="variant")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interventune.evaluation.shown.views import cells_of

if TYPE_CHECKING:
    from pandas import DataFrame

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#777777")
"""Okabe and Ito's colours for colour-blind readers (grey instead of black, which is for chance)."""
LEAST_DISTANCE = 1e-7
"""Below this distance, float32 cannot distinguish a cosine from 1."""
MARKERS = "osD^vPX"


@dataclass(frozen=True)
class Bars:
    """A picture of cells, with a panel for each measure and value of `panels`: bars with their
    intervals, a group for each value of `x`, a bar for each value of `hue`.

    Args:
        x: the dimension of the horizontal axis.
        measures: measure to title of its panels.
        hue: the dimension in which bars of a group differ.
        panels: another dimension with its own panels.
        where: dimension to the displayed value or values; the default is that of a `View`.
        percent: show percent; a protocol sets this if all measures are shares.
        distance: show 1 - value, on a log axis, for cosines near 1.
        label: the title of the vertical axis.
        x_label: the title of the horizontal axis of all panels.
        chance: the share reached by guessing, a dashed line.
    """

    x: str
    measures: Mapping[str, str]
    hue: str = "checkpoint"
    panels: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    percent: bool = False
    distance: bool = False
    label: str = ""
    x_label: str = ""
    chance: float | None = None

    one_scale = True
    """Whether all panels have the same vertical axis."""

    @property
    def caption(self) -> str:
        """Describe the picture in words."""
        shown, by = filter(None, self.measures.values()), filter(None, (self.x, self.panels))
        return f"{', '.join(shown) or self.label} by {' and '.join(by)}"

    def __call__(self, frame: DataFrame, path: Path) -> None:
        """Write the picture."""
        from matplotlib.figure import Figure

        panels = self.parts(frame)
        hues = dict.fromkeys(chain.from_iterable(cells[self.hue] for _, cells in panels))
        width = max(self.width(cells, len(hues)) for _, cells in panels)
        columns = min(len(panels), 4, max(1, int(10 / width)))
        rows = -(-len(panels) // columns)
        size = max(4.0, width * columns), 0.6 + 3.4 * rows
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, sharey=self.one_scale).ravel()
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        for axes, (title, cells) in zip(grid, panels, strict=False):
            self.draw(axes, cells, dict(zip(hues, cycle(COLOURS), strict=False)), frame)
            axes.set(title=title, xlabel="", yscale="log" if self.distance else "linear")
            axes.spines[["top", "right"]].set_visible(False)
        drawn = grid[: len(panels)]
        if not any(axes.dataLim.intervaly.any() for axes in drawn):  # all is 0: no axis around it
            for axes in drawn:
                axes.set_ylim(0, 100 if self.percent else 1)
        grid[0].set_ylabel(self.label or ("%" if self.percent else ""))
        figure.supxlabel(self.x_label, fontsize="medium")
        handles, names = grid[0].get_legend_handles_labels()
        if len(names) > 1:
            figure.legend(
                handles, names, loc="outside upper center", ncols=min(4, len(names)), frameon=False
            )
        figure.savefig(path, dpi=150)

    def parts(self, frame: DataFrame) -> list[tuple[str, DataFrame]]:
        """Return title and cells of every panel, in percent or as distances if requested."""
        frame = cells_of(frame, {"against": "", **self.where, "measure": list(self.measures)})
        numbers = frame[["value", "low", "high"]].astype(float) * (100 if self.percent else 1)
        if self.distance:
            swapped = numbers.rename(columns={"low": "high", "high": "low"})
            numbers = (1 - swapped).clip(lower=LEAST_DISTANCE)
        frame = frame.assign(**numbers).replace(r"\$", r"\\$", regex=True)  # no formulas
        return [
            (" ".join(filter(None, (str(value), title))), part)
            for value, cells in (
                frame.groupby(self.panels, sort=False) if self.panels else [("", frame)]
            )
            for measure, title in self.measures.items()
            if len(part := cells[cells["measure"] == measure])
        ]

    def width(self, cells: DataFrame, hues: int) -> float:
        """Return the width of a panel in inches."""
        return max(3.0, 0.9 + cells[self.x].nunique() * (0.3 + 0.3 * hues))

    def draw(
        self, axes: Any, cells: DataFrame, colour_of: Mapping[Any, str], frame: DataFrame
    ) -> None:
        """Draw the cells of one panel; `frame` is the long table."""
        names = cells[self.x].unique()
        value, low, high = (
            cells.pivot(index=self.x, columns=self.hue, values=end).reindex(
                index=names, columns=[*colour_of]
            )
            for end in ("value", "low", "high")
        )
        ends = [
            [(value - low)[hue].clip(lower=0), (high - value)[hue].clip(lower=0)]
            for hue in colour_of
        ]
        upright = max(map(len, map(str, names))) * len(names) > 11 * self.width(
            cells, len(colour_of)
        )
        style = {"capsize": 2, "error_kw": {"elinewidth": 0.8}, "rot": 90 if upright else 0}
        value.plot.bar(
            ax=axes, yerr=ends, width=0.8, color=[*colour_of.values()], legend=False, **style
        )
        if self.chance is not None:
            chance = self.chance * (100 if self.percent else 1)
            axes.axhline(chance, color="black", linestyle="--", linewidth=1)


@dataclass(frozen=True)
class Lines(Bars):
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
            for value in (
                cells_of(frame, {**self.level, self.hue: hue})["value"] if self.level else ()
            ):
                share = value * (100 if self.percent else 1)
                axes.axhline(share, color=colour, linestyle="--", linewidth=1)
        axes.xaxis.get_major_locator().set_params(integer=(cells[self.x] % 1 == 0).all())
