"""What a selection leaves: selection.json with everything, .csv with all metrics, .md to read, .png."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import t as student_t

from data_modules.schema import ADVICE_CLASSES
from storage.files import write_text
from training.sweep.file import Parameters, Scalar, flag_text
from training.sweep.report import save_figure
from training.sweep.testing import Metrics, TestSet

SHOWN = (*(f"bias/{name}/mu" for name in ADVICE_CLASSES), "qa/f1", "qa/em", "choices/accuracy")
"""Metrics in the table that is shown; the files hold all."""
LEGEND = (
    "std: sample standard deviation over models; low, high: 95 % interval of the mean, by Student's t over "
    "models. A single model has neither. n: groups or questions of the set."
)


@dataclass(frozen=True)
class Summary:
    """A metric over several models, the best one first; a single model has no deviation and no interval."""

    mean: float
    std: float | None
    low: float | None
    high: float | None
    models: int
    values: tuple[float, ...]


def summarise(values: Sequence[float]) -> Summary:
    """Mean, sample standard deviation, and the mean's 95 % interval by Student's t.

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
    """A point that was selected, by its score."""

    name: str
    score: float
    parameters: Parameters
    run: str


@dataclass(frozen=True)
class Selection:
    """The best models among those that share a value of a swept key (None: among all), and their results.

    Args:
        value: the shared one.
        models: the best one first.
        results: for every test set what each of them reached.
    """

    value: Scalar
    models: list[Model]
    results: dict[str, list[Metrics]]

    def summaries(self, test: str) -> dict[str, Summary]:
        """Every metric of a test set, those that are shown first."""
        found = self.results[test]
        keys = sorted(found[0], key=lambda key: (SHOWN.index(key) if key in SHOWN else len(SHOWN), key))
        return {key: summarise([metrics[key] for metrics in found if key in metrics]) for key in keys}


def write_report(
    folder: Path, selections: Sequence[Selection], tests: Sequence[TestSet], about: dict[str, Any]
) -> None:
    """Show the table and write the files; `about` says how the models were selected."""
    by = str(about["by"])
    table = pd.DataFrame(_rows(selections, tests, by)).astype({"n": "Int64"})
    write_text(folder / "selection.csv", table.to_csv(index=False))
    shown = _as_text(table[table["metric"].isin(SHOWN)].drop(columns="values"))
    print(shown.to_string(index=False), LEGEND, folder, sep="\n")
    best = "lowest" if about["mode"] == "min" else "highest"
    models = pd.DataFrame(
        {"model": model.name, about["metric"]: f"{model.score:.6g}", **model.parameters}
        for selection in selections
        for model in selection.models
    )
    title = f"# {about['study']}: the {about['top']} models of {best} {about['metric']}"
    parts = [title, _markdown(shown), LEGEND, "## Models", _markdown(models)]
    write_text(folder / "selection.md", "\n\n".join(parts) + "\n")
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
    if by:
        _draw(folder / "selection.png", selections, tests, by)


def _rows(selections: Sequence[Selection], tests: Sequence[TestSet], by: str) -> Iterator[dict[str, Any]]:
    """One row for each value, set and metric."""
    for selection in selections:
        for test in tests:
            summaries = selection.summaries(test.name)
            for metric, found in summaries.items():
                count = summaries.get(metric.rpartition("/")[0] + "/n")
                yield {
                    **({by: flag_text(selection.value)} if by else {}),
                    "test_set": test.name,
                    "metric": metric,
                    **{key: getattr(found, key) for key in ("mean", "std", "low", "high", "models")},
                    "n": round(count.mean) if count else None,
                    "values": " ".join(map(str, found.values)),
                }


def _as_text(table: pd.DataFrame) -> pd.DataFrame:
    return table.map(
        lambda cell: "" if pd.isna(cell) else f"{cell:.4f}" if isinstance(cell, float) else str(cell)
    )


def _markdown(table: pd.DataFrame) -> str:
    rows = [list(table), ["---"] * table.shape[1], *table.values.tolist()]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows)


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
    """A panel for each set of groups, with mu of every class of advice against a swept key; a last one for
    questions (Figure 5 of Zhao et al. 2021, with the size of the training set as the key).

    The axis is logarithmic where all values are numbers above 0. Bars are 95 % intervals over models.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lines: list[tuple[TestSet, str, str]] = [
        (test, f"bias/{name}/mu", name) for test in tests if test.kind == "groups" for name in ADVICE_CLASSES
    ]
    lines += [(test, "qa/f1", test.name) for test in tests if test.kind == "qa"]
    lines += [(test, "choices/accuracy", test.name) for test in tests if test.kind == "choices"]
    panels = list(dict.fromkeys(test.name if test.kind == "groups" else "questions" for test, _, _ in lines))
    figure, axes = plt.subplots(
        1, len(panels), figsize=(4 * len(panels), 3.4), squeeze=False, layout="constrained"
    )
    for test, metric, label in lines:
        panel = test.name if test.kind == "groups" else "questions"
        axis = axes[0][panels.index(panel)]
        axis.set(title=panel, xlabel=by, ylabel=metric.rpartition("/")[2], ylim=(0, None))
        _line(axis, {s.value: s.summaries(test.name).get(metric) for s in selections}, label)
        axis.legend(fontsize="small")
    save_figure(figure, path)


def _line(axis: Any, summaries: dict[Scalar, Summary | None], label: str) -> None:
    logarithmic = all(map(is_size, summaries))
    points = [(value, found) for value, found in summaries.items() if found]
    x = [value if logarithmic else flag_text(value) for value, _ in points]
    half = [0.0 if found.low is None else found.mean - found.low for _, found in points]
    axis.errorbar(x, [found.mean for _, found in points], yerr=half, marker="o", capsize=3, label=label)
    if logarithmic:
        axis.set_xscale("log")
        axis.set_xticks(x, [flag_text(value) for value, _ in points])
        axis.minorticks_off()
