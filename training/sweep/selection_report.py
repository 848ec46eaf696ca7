"""What a selection shows and leaves: a table, selection.json, .md and .csv, and a figure over a swept key."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table
from scipy.stats import t as student_t

from data_modules.schema import ADVICE_CLASSES
from storage.json_files import write_text
from training.sweep.file import Parameters, Scalar, flag_text
from training.sweep.report import print_wide, save_figure
from training.sweep.testing import Metrics, TestSet

SHOWN = (*(f"bias/{name}/mu" for name in ADVICE_CLASSES), "qa/f1", "qa/em", "choices/accuracy")
"""Metrics in the table; the files hold all."""
LEGEND = (
    "std: sample standard deviation over models; low, high: 95 % interval of the mean, by Student's t over "
    "models. A single model has neither."
)


@dataclass(frozen=True)
class Summary:
    """A metric over several models.

    Args:
        mean: arithmetic mean.
        std: sample standard deviation (n - 1); None for a single model.
        low, high: 95 % interval of the mean, by Student's t over models; None for a single model.
        models: how many there are.
        values: one for each model, the best model first.
    """

    mean: float
    std: float | None
    low: float | None
    high: float | None
    models: int
    values: tuple[float, ...]


def summarise(values: Sequence[float]) -> Summary:
    """Mean, sample standard deviation and interval.

    >>> summarise([1.0, 2.0, 3.0]).std
    1.0
    """
    n, mean = len(values), math.fsum(values) / len(values)
    if n < 2 or not all(map(math.isfinite, values)):
        return Summary(mean, None, None, None, n, tuple(values))
    std = statistics.stdev(values)
    half = float(student_t.ppf(0.975, n - 1)) * std / math.sqrt(n)
    return Summary(mean, std, mean - half, mean + half, n, tuple(values))


@dataclass(frozen=True)
class Model:
    """A point that was selected.

    Args:
        name: of its folder.
        score: by which it was chosen.
        parameters: swept keys and their values.
        run: folder of its run.
    """

    name: str
    score: float
    parameters: Parameters
    run: str


@dataclass(frozen=True)
class Selection:
    """The best models among those that share a value of a swept key, or among all.

    Args:
        value: the shared value; None where there is no such key.
        models: the best one first.
        results: for every test set what each of them reached.
    """

    value: Scalar
    models: list[Model]
    results: dict[str, list[Metrics]]

    def summaries(self, test: str) -> dict[str, Summary]:
        """Every metric of a test set."""
        found = self.results[test]
        return {
            key: summarise([metrics[key] for metrics in found if key in metrics]) for key in sorted(found[0])
        }


def write_report(
    folder: Path, selections: Sequence[Selection], tests: Sequence[TestSet], about: dict[str, Any]
) -> None:
    """Show the table; write selection.json with everything, selection.csv with all metrics, selection.md to
    read, and selection.png where a swept key is named."""
    by = str(about["by"])
    table = pd.DataFrame(_rows(selections, tests, by))
    shown = _shown(table)
    console = Table()
    for column in shown:
        console.add_column(column, overflow="fold")
    for row in shown.itertuples(index=False):
        console.add_row(*row)
    print_wide(console)
    if any(len(selection.models) < 2 for selection in selections):
        print("no standard deviation over fewer than 2 models")
    content = {
        "about": about,
        "tests": [asdict(test) for test in tests],
        "selections": [
            {
                "value": selection.value,
                "models": [asdict(model) for model in selection.models],
                "results": {
                    test.name: {key: asdict(found) for key, found in selection.summaries(test.name).items()}
                    for test in tests
                },
            }
            for selection in selections
        ],
    }
    write_text(folder / "selection.json", json.dumps(_without_nan(content), indent=1) + "\n")
    write_text(folder / "selection.csv", table.to_csv(index=False))
    write_text(folder / "selection.md", _markdown(shown, selections, about))
    if by:
        _draw(folder / "selection.png", selections, tests, by)
    print(folder)


def _rows(selections: Sequence[Selection], tests: Sequence[TestSet], by: str) -> Iterator[dict[str, Any]]:
    """One row for each value, set and metric; n: groups or questions behind the number."""
    for selection in selections:
        for test in tests:
            summaries = selection.summaries(test.name)
            for metric in sorted(summaries, key=lambda key: SHOWN.index(key) if key in SHOWN else len(SHOWN)):
                found = summaries[metric]
                count = summaries.get(metric.rpartition("/")[0] + "/n")
                yield {
                    **({by: flag_text(selection.value)} if by else {}),
                    "test_set": test.name,
                    "metric": metric,
                    **{key: getattr(found, key) for key in ("mean", "std", "low", "high", "models")},
                    "n": count.mean if count else None,
                    "values": " ".join(map(str, found.values)),
                }


def _shown(table: pd.DataFrame) -> pd.DataFrame:
    """The metrics that are shown, as text."""
    shown = table[table["metric"].isin(SHOWN)].drop(columns="values")
    for column in ("mean", "std", "low", "high"):
        shown[column] = ["–" if pd.isna(value) else f"{value:.4f}" for value in shown[column]]
    shown["n"] = ["–" if pd.isna(value) else f"{value:.0f}" for value in shown["n"]]
    return shown.astype(str)


def _markdown(shown: pd.DataFrame, selections: Sequence[Selection], about: dict[str, Any]) -> str:
    """Results, and which models they are of."""
    best = "lowest" if about["mode"] == "min" else "highest"
    keys = list(selections[0].models[0].parameters)
    models = [
        [model.name, f"{model.score:.6g}", *(flag_text(model.parameters.get(key)) for key in keys)]
        for selection in selections
        for model in selection.models
    ]
    lines = [f"# {about['study']}: the {about['top']} models of {best} {about['metric']}", ""]
    lines += [*_markdown_table(list(shown), shown.values.tolist()), "", LEGEND, "", "## Models", ""]
    lines += _markdown_table(["model", str(about["metric"]), *keys], models)
    return "\n".join(lines) + "\n"


def _markdown_table(header: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    rows = [header, ["---"] * len(header), *body]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]


def _without_nan(value: Any) -> Any:
    """NaN, which is no JSON, as null."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def is_size(value: Scalar) -> bool:
    """Whether a value has a place on a logarithmic axis."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _draw(path: Path, selections: Sequence[Selection], tests: Sequence[TestSet], by: str) -> None:
    """mu of every class of advice against a swept key, a panel for each set of groups; a last one for
    questions.

    The axis is logarithmic where all values are numbers above 0. Error bars are 95 % intervals of the mean
    over models. (Figure 5 of Zhao et al. 2021, with the size of the training set as the key.)
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    domains = [test for test in tests if test.kind == "groups"]
    others = [test for test in tests if test.kind != "groups"]
    panels = len(domains) + bool(others)
    figure, axes = plt.subplots(1, panels, figsize=(4 * panels, 3.4), squeeze=False, layout="constrained")
    for axis, test in zip(axes[0], domains, strict=False):
        for name in ADVICE_CLASSES:
            _line(axis, selections, test.name, f"bias/{name}/mu", name)
        axis.set(title=test.name, ylabel="mu")
    for test in others:
        metric = "qa/f1" if test.kind == "qa" else "choices/accuracy"
        _line(axes[0][-1], selections, test.name, metric, test.name)
        axes[0][-1].set(title="questions", ylabel=metric.partition("/")[2])
    for axis in axes[0]:
        axis.set(xlabel=by, ylim=(0, None))
        axis.legend(fontsize="small")
    save_figure(figure, path)
    plt.close(figure)


def _line(axis: Any, selections: Sequence[Selection], test: str, metric: str, label: str) -> None:
    summaries = {s.value: s.summaries(test).get(metric) for s in selections}
    points = [(value, found) for value, found in summaries.items() if found]
    logarithmic = all(map(is_size, summaries))
    x = [value if logarithmic else flag_text(value) for value, _ in points]
    half = [found.mean - found.low if found.low is not None else 0.0 for _, found in points]
    axis.errorbar(x, [found.mean for _, found in points], yerr=half, marker="o", capsize=3, label=label)
    if logarithmic:
        axis.set_xscale("log")
        axis.set_xticks(x, [flag_text(value) for value, _ in points])
        axis.minorticks_off()
