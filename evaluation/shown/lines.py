"""Lines instead of bars, for a numerical horizontal axis.

Lines("layer", {"cosine": "cosine"}, panels="variant")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import cycle
from typing import TYPE_CHECKING, Any

from evaluation.shown.bars import Bars
from evaluation.shown.views import cells_of

if TYPE_CHECKING:
    from pandas import DataFrame

MARKERS = "osD^vPX"


@dataclass(frozen=True)
class Lines(Bars):
    """Lines with their intervals as bands, over the numbers of a dimension: a line for each value of `hue`.

    Args:
        level: the place of one cell for each value of `hue` (and its `measure`), drawn as a dashed line.
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

    def draw(self, axes: Any, cells: DataFrame, colour_of: Mapping[Any, str], frame: DataFrame) -> None:
        for (hue, colour), marker in zip(colour_of.items(), cycle(MARKERS), strict=False):
            line = cells[cells[self.hue] == hue].sort_values(self.x)
            axes.plot(line[self.x], line["value"], marker=marker, label=hue, color=colour)
            axes.fill_between(line[self.x], line["low"], line["high"], alpha=0.15, color=colour)
            for value in cells_of(frame, {**self.level, self.hue: hue})["value"] if self.level else ():
                share = value * (100 if self.percent else 1)
                axes.axhline(share, color=colour, linestyle="--", linewidth=1)
        axes.xaxis.get_major_locator().set_params(integer=(cells[self.x] % 1 == 0).all())
