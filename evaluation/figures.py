"""How figures of reports look: one palette, dashes and marks for more lines than it has colours."""

from __future__ import annotations

from typing import Any

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
