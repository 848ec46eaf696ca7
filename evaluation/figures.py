"""Figures of reports: one palette, and bars and lines of the long table with their intervals."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.views import cells_of

if TYPE_CHECKING:
    from pandas import DataFrame

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#777777")
"""Okabe and Ito's, which colour-blind readers tell apart (grey for black, which is for lines of chance);
lines beyond them repeat them in dashes."""

DASHES = ("-", "--", ":", "-.")
MARKERS = "osD^vPX"


def style(index: int) -> dict[str, Any]:
    """Colour and dashes of the line at `index`.

    >>> style(0), style(7)
    ({'color': '#0072b2', 'linestyle': '-'}, {'color': '#0072b2', 'linestyle': '--'})
    """
    return {"color": COLOURS[index % len(COLOURS)], "linestyle": DASHES[index // len(COLOURS) % len(DASHES)]}


def new_figure(width: float, height: float) -> Any:
    """A figure in inches that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def bare(axes: Any) -> None:
    """Axes without the lines above and on the right."""
    axes.spines[["top", "right"]].set_visible(False)


@dataclass(frozen=True)
class Bars:
    """Bars with their intervals: a panel for each measure and value of `panels`, a group of bars for each
    value of `x`, a bar for each value of `hue`.

    Args:
        x: the dimension under the bars.
        hue: the dimension that bars of a group differ in.
        measures: measure to title of its panels.
        panels: another dimension with panels of its own.
        where: dimension to the value or values that are shown.
        percent: shares in percent.
        label: of the vertical axis.
        chance: what guessing gets, as a share, or by value of `x`; a dashed line.
        starred: values of `x` that get a star, which `note` explains.
        note: under the figure.
    """

    x: str
    hue: str
    measures: Mapping[str, str]
    panels: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    percent: bool = False
    label: str = ""
    chance: float | Mapping[Any, float] | None = None
    starred: Collection[str] = ()
    note: str = ""

    def draw(self, frame: DataFrame, path: Path) -> None:
        """Write the picture."""
        frame = cells_of(frame, self.where)
        frame = frame[frame["measure"].isin(list(self.measures))]
        names, hues = list(dict.fromkeys(frame[self.x])), list(dict.fromkeys(frame[self.hue]))
        others = list(dict.fromkeys(frame[self.panels])) if self.panels else [""]
        shown = [(measure, other) for other in others for measure in self.measures]
        columns = min(3, len(shown))
        lines = -(-len(shown) // columns)
        width = 1.6 + len(names) * (0.5 + 0.35 * len(hues))
        figure = new_figure(max(4.0, width) * columns, 0.8 + 2.8 * lines)
        grid = list(figure.subplots(lines, columns, sharey=True, squeeze=False).flat)
        for axes, (measure, other) in zip(grid, shown, strict=False):
            part = frame[frame["measure"] == measure]
            part = part[part[self.panels] == other] if self.panels else part
            self._panel(axes, part, names, hues)
            titles = [str(other)] * bool(self.panels) + [self.measures[measure]] * (len(self.measures) > 1)
            axes.set_title(", ".join(titles), loc="left", fontsize=10)
        for axes in grid[len(shown) :]:
            axes.set_axis_off()
        grid[0].set_ylabel(self.label)
        handles, labels = grid[0].get_legend_handles_labels()
        if len(labels) > 1:
            figure.legend(
                handles, labels, loc="outside upper center", ncols=min(4, len(labels)), frameon=False
            )
        if self.note:
            figure.supxlabel(self.note, fontsize=8)
        figure.savefig(path, dpi=150)

    def _panel(self, axes: Any, part: DataFrame, names: list[Any], hues: list[Any]) -> None:
        scale, width = 100 if self.percent else 1, 0.8 / len(hues)
        for h, hue in enumerate(hues):
            its = part[part[self.hue] == hue].drop_duplicates(self.x).set_index(self.x)
            its = its.reindex(names)[["value", "low", "high"]].astype(float) * scale
            at = [i + (h - (len(hues) - 1) / 2) * width for i in range(len(names))]
            error = [(its["value"] - its["low"]).clip(lower=0), (its["high"] - its["value"]).clip(lower=0)]
            axes.bar(at, its["value"], width, label=str(hue), color=COLOURS[h % len(COLOURS)])
            axes.errorbar(at, its["value"], error, fmt="none", ecolor="black", elinewidth=0.8, capsize=2)
        if self.chance is not None:
            given = self.chance if isinstance(self.chance, Mapping) else dict.fromkeys(names, self.chance)
            shares = [given[name] * scale for name in names]
            ends = [i - 0.5 for i in range(len(names))], [i + 0.5 for i in range(len(names))]
            axes.hlines(shares, *ends, color="black", linestyle="--", linewidth=1)
        axes.set_xticks(
            range(len(names)), [f"{name} *" if name in self.starred else str(name) for name in names]
        )
        bare(axes)


@dataclass(frozen=True)
class Lines:
    """Lines with their intervals as bands, over a dimension of numbers: a panel for each measure and value of
    `panels`, a line for each value of `hue`.

    Args:
        x: a dimension whose values are numbers.
        hue: the dimension that lines differ in.
        measures: measure to title of its panels.
        panels: another dimension with panels of its own.
        where: dimension to the value or values that are shown.
        percent: shares in percent.
        label: of the vertical axis.
        x_label: of the horizontal axis (default: the dimension).
        log_x: a logarithmic horizontal axis.
    """

    x: str
    hue: str
    measures: Mapping[str, str]
    panels: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    percent: bool = False
    label: str = ""
    x_label: str = ""
    log_x: bool = False

    def draw(self, frame: DataFrame, path: Path) -> None:
        """Write the picture."""
        frame = cells_of(frame, self.where)
        frame = frame[frame["measure"].isin(list(self.measures))]
        others = list(dict.fromkeys(frame[self.panels])) if self.panels else [""]
        shown = [(measure, other) for other in others for measure in self.measures]
        figure = new_figure(4.4 * len(shown), 3.4)
        grid = list(figure.subplots(1, len(shown), squeeze=False).flat)
        scale = 100 if self.percent else 1
        for axes, (measure, other) in zip(grid, shown, strict=True):
            part = frame[frame["measure"] == measure]
            part = part[part[self.panels] == other] if self.panels else part
            title = " ".join(filter(None, (str(other), self.measures[measure])))
            for h, hue in enumerate(dict.fromkeys(part[self.hue])):
                its = part[part[self.hue] == hue].assign(at=lambda rows: rows[self.x].astype(float))
                its = its.sort_values("at")
                axes.plot(
                    its["at"], its["value"] * scale, marker=MARKERS[h % len(MARKERS)], label=hue, **style(h)
                )
                colour = style(h)["color"]
                axes.fill_between(
                    its["at"], its["low"] * scale, its["high"] * scale, alpha=0.15, color=colour
                )
            axes.set_title(title, loc="left", fontsize=10)
            axes.set_xlabel(self.x_label or self.x)
            if self.log_x:
                axes.set_xscale("log")
            bare(axes)
        grid[0].set_ylabel(self.label)
        handles, labels = grid[0].get_legend_handles_labels()
        if len(labels) > 1:
            figure.legend(
                handles, labels, loc="outside upper center", ncols=min(4, len(labels)), frameon=False
            )
        figure.savefig(path, dpi=150)
