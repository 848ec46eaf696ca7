"""Curves of runs' metrics.csv as small figures: a panel a metric, a line a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO

from evaluation.figures import bare, new_figure, style
from evaluation.page.folders import FoundRun

ACROSS, DOWN = 3, 4
"""Panels of one figure."""

MOST = 48
"""Metrics that are drawn; the others are named."""


def curve_keys(runs: Sequence[FoundRun]) -> list[str]:
    """Metrics that some run has two points of, without the numbers of examples; by stage, losses first."""
    keys = {key for run in runs for key in run.curves if run.curves[key].notna().sum() > 1}
    keys = {key for key in keys if key != "step" and not key.endswith("/n")}
    return sorted(keys, key=lambda key: (key.split("/")[0], "/loss" not in key, key))


def curve_figures(runs: Sequence[FoundRun]) -> Iterator[tuple[str, bytes]]:
    """Figures as (which metrics, SVG), a few panels each; the same runs give the same bytes."""
    keys = curve_keys(runs)[:MOST]
    for stage in dict.fromkeys(key.split("/")[0] for key in keys):
        mine = [key for key in keys if key.split("/")[0] == stage]
        for first in range(0, len(mine), ACROSS * DOWN):
            part = mine[first : first + ACROSS * DOWN]
            yield ", ".join(part), draw(part, runs)


def _literal(text: str) -> str:
    """A name as it is: a dollar would begin a formula, and an underline in front hide it from the legend."""
    return text.replace("$", r"\$").rjust(len(text) + text.startswith("_"))


def draw(keys: Sequence[str], runs: Sequence[FoundRun]) -> bytes:
    """One figure, as SVG."""
    import matplotlib as mpl

    lines = -(-len(keys) // ACROSS)
    shown = [(i, run) for i, run in enumerate(runs) if any(key in run.curves for key in keys)]
    buffer = BytesIO()
    with mpl.rc_context({"svg.hashsalt": "curves", "font.size": 8, "axes.linewidth": 0.6}):
        figure = new_figure(9.0, 0.35 + 1.75 * lines + 0.2 * -(-len(shown) // 3))
        grid = figure.subplots(lines, ACROSS, squeeze=False)
        for axes in grid.flat[len(keys) :]:
            axes.set_axis_off()
        for axes, key in zip(grid.flat, keys, strict=False):
            for i, run in shown:
                points = run.curves[["step", key]].dropna() if key in run.curves else run.curves[["step"]][:0]
                marker, name = "o" if len(points) < 3 else None, _literal(run.label)
                values = points.get(key, [])
                line = {"linewidth": 1.2, "marker": marker, "markersize": 3, **style(i)}
                axes.plot(points["step"], values, label=name, **line)
            axes.set_title(_literal(key), fontsize=8, loc="left")
            bare(axes)
            axes.grid(alpha=0.25, linewidth=0.5)
            axes.locator_params(nbins=5)
        for axes in grid[-1]:
            axes.set_xlabel("step")
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
