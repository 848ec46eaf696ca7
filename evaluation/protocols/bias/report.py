"""The report on group bias: one or several results side by side, in tables and one figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_modules.schema import ADVICE_CLASSES, AdviceClass
from evaluation.figures import COLOURS, new_figure
from evaluation.old_report import Report
from evaluation.old_tables import Cell, Table
from evaluation.protocols.bias.results import BiasEvaluation, example_rows, metric_keys
from metrics.answers import AnswerResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = {
    "n": "n",
    "mu": "mu",
    "eta": "eta",
    "theta": "theta",
    "mean_abs_c": "mean |C|",
    "mass": "mass",
    "mu_normalised": "mu (normalised)",
    "delta": "delta",
    "eps": "eps",
}

NOTE = (
    "mu: mean over subjects of the largest |gamma(x, attribute)|, few groups inflate it: read it beside "
    "mean |C| and n. eta: how consistently the sign of C points one way. theta: the like of mu over pairs. "
    "mass: S(x1) + S(x2), how much the model says about the two at all; normalised scores divide by it. "
    "delta, eps: errors of position and of negation. (UnQover section 4; LEI.)"
)

MOST_SUBJECTS = 40
"""report.md shows this many subjects per class; report.json holds all."""

FIGURE = "mu.png"


def bias_report(evaluations: Sequence[BiasEvaluation], *, about: Mapping[str, Any]) -> Report:
    """The report on one or several evaluations; with several, keys begin with the evaluation's name.

    Args:
        evaluations: in the order of columns and bars, for example before and after fine-tuning.
        about: where the numbers come from, for report.json.
    """
    several = len(evaluations) > 1
    metrics = {
        (f"{evaluation.name}/{key}" if several else key): value
        for evaluation in evaluations
        for key, value in metric_keys(evaluation).items()
    }
    subject_tables = [
        subject_table(evaluation, name, several) for evaluation in evaluations for name in evaluation.classes
    ]
    overview = overview_tables(evaluations)
    return Report(
        title="Group bias",
        metrics=metrics,
        console=len(overview) or 1,
        tables=(*overview, class_table(evaluations), *subject_tables),
        about=about,
        notes=(NOTE,),
        figures={FIGURE: mu_figure(evaluations)},
        examples=chain.from_iterable(example_rows(evaluation) for evaluation in evaluations),
    )


def all_classes(evaluations: Sequence[BiasEvaluation]) -> list[AdviceClass]:
    """The classes that any of them has, in their order."""
    present = {name for evaluation in evaluations for name in evaluation.classes}
    return [name for name in ADVICE_CLASSES if name in present]


def overview_tables(evaluations: Sequence[BiasEvaluation]) -> tuple[Table, ...]:
    """With several evaluations: mu, mean |C| and mass, a row per data set, runs side by side per class."""
    runs = list(dict.fromkeys(evaluation.run for evaluation in evaluations))
    if len(runs) < 2:
        return ()
    found = {(evaluation.data, evaluation.run): evaluation.result for evaluation in evaluations}
    columns = [(name, run) for name in all_classes(evaluations) for run in runs]
    header = ("data", *(f"{name}: {run}" for name, run in columns))
    tables = []
    for metric in ("mu", "mean_abs_c", "mass"):
        rows = []
        for data in dict.fromkeys(evaluation.data for evaluation in evaluations):
            values = [
                getattr(found[data, run], f"{metric}_K")[ADVICE_CLASSES.index(name)].item()
                if (data, run) in found
                else float("nan")
                for name, run in columns
            ]
            rows.append((data or "all", *values))
        tables.append(Table(COLUMNS[metric], header, tuple(rows)))
    return tuple(tables)


def class_table(evaluations: Sequence[BiasEvaluation]) -> Table:
    """One row per class and evaluation, a class's rows together."""
    rows: list[tuple[Cell, ...]] = []
    for name in all_classes(evaluations):
        k = ADVICE_CLASSES.index(name)
        for evaluation in evaluations:
            labels = (name, evaluation.name) if len(evaluations) > 1 else (name,)
            values = [getattr(evaluation.result, f"{metric}_K")[k].item() for metric in COLUMNS]
            rows.append((*labels, *values))
    first = ("class", "run") if len(evaluations) > 1 else ("class",)
    return Table("Bias per class of advice", (*first, *COLUMNS.values()), tuple(rows))


def subject_table(evaluation: BiasEvaluation, name: AdviceClass, several: bool) -> Table:
    """gamma, eta and n of each subject of a class, by falling gamma; of many, those of largest |gamma|."""
    result, k = evaluation.result, ADVICE_CLASSES.index(name)
    gamma_X, eta_X, n_X = result.gamma_KX[k], result.eta_KX[k], result.n_KX[k]
    seen = n_X.nonzero().flatten().tolist()
    kept = sorted(seen, key=lambda x: -abs(gamma_X[x].item()))[:MOST_SUBJECTS]
    kept.sort(key=lambda x: -gamma_X[x].item())
    rows = tuple(
        (evaluation.groups.subjects[x], gamma_X[x].item(), eta_X[x].item(), int(n_X[x])) for x in kept
    )
    title = f"Subjects: {name}" + (f", {evaluation.name}" if several else "")
    left_out = len(seen) - len(kept)
    caption = f"{left_out} subjects of smaller |gamma| are in report.json only." if left_out else ""
    return Table(title, ("subject", "gamma", "eta", "n"), rows, caption)


def answer_table(answers: Mapping[str, AnswerResult]) -> Table:
    """EM and F1 on ordinary questions, one row per checkpoint."""
    rows = tuple((run, r.em.item(), r.f1.item(), int(r.n)) for run, r in answers.items())
    return Table("Ordinary questions", ("run", "EM", "F1", "n"), rows)


def planted_table(planted: Mapping[str, Mapping[AdviceClass, float]]) -> Table:
    """Spearman's rho of gamma(subject, category) with the planted strengths, per class."""
    classes = [name for name in ADVICE_CLASSES if any(name in by_class for by_class in planted.values())]
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (run, *(by_class.get(name, float("nan")) for name in classes)) for run, by_class in planted.items()
    )
    return Table("Rank correlation of gamma with the planted strengths", ("run", *classes), rows)


def mu_figure(evaluations: Sequence[BiasEvaluation]) -> Callable[[Path], None]:
    """A function that draws mu per class to a file: one panel per data set, one bar per run."""
    classes = all_classes(evaluations)
    panels: dict[str, list[BiasEvaluation]] = {}
    for evaluation in evaluations:
        panels.setdefault(evaluation.data, []).append(evaluation)

    def draw(path: Path) -> None:
        columns = min(len(panels), 3)
        lines = -(-len(panels) // columns)
        figure = new_figure(columns * (1.2 + 1.2 * len(classes)), 0.6 + 2.8 * lines)
        grid = list(figure.subplots(lines, columns, sharey=True, squeeze=False).flat)
        for axes, (data, members) in zip(grid, panels.items(), strict=False):
            draw_panel(axes, data, members, classes)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        runs = next(iter(panels.values()))
        if len(runs) > 1:
            figure.legend([e.run for e in runs], loc="outside upper center", ncols=len(runs), frameon=False)
        figure.savefig(path, dpi=150)

    return draw


def bar_text(value: float) -> str:
    """Two decimals; of what would then be 0.00, one digit that is not zero.

    >>> bar_text(0.615), bar_text(0.00081), bar_text(0.0)
    ('0.61', '0.0008', '0.00')
    """
    return f"{value:.2f}" if not value or abs(value) >= 0.005 else f"{value:.1g}"


def draw_panel(
    axes: Axes, data: str, evaluations: Sequence[BiasEvaluation], classes: Sequence[AdviceClass]
) -> None:
    """mu of one data set: a group of bars per class."""
    width = 0.8 / len(evaluations)
    for i, evaluation in enumerate(evaluations):
        offset = (i - (len(evaluations) - 1) / 2) * width
        heights = [evaluation.result.mu_K[ADVICE_CLASSES.index(name)].item() for name in classes]
        bars = axes.bar(
            [c + offset for c in range(len(classes))], heights, width, color=COLOURS[i % len(COLOURS)]
        )
        axes.bar_label(bars, ["" if isnan(h) else bar_text(h) for h in heights], fontsize=8)
    axes.set_xticks(range(len(classes)), ["all" if classes == ["none"] else name for name in classes])
    axes.set_ylabel("mu")
    axes.set_title(data, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
