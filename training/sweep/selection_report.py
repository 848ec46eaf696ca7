"""What a selection leaves: selection.json with everything, .csv with all metrics, .md to read, .png."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from scipy.stats import t as student_t

from data_modules.schema import ADVICE_CLASSES
from storage.files import write_text
from training.sweep.file import Scalar, flag_text
from training.sweep.results import save_figure

SHOWN = (*(f"bias/{name}/mu" for name in ADVICE_CLASSES), "qa/f1", "qa/em", "choices/accuracy")
"""Metrics in the table that is shown; the files hold all."""
LEGEND = (
    "std: sample standard deviation over models; low, high: 95 % interval of the mean, by Student's t over "
    "models. A single model has neither. n: groups or questions of the set."
)


@dataclass(frozen=True)
class TestSet:
    """A named source to test on.

    Args:
        name: in tables and files.
        source: as everywhere: a file, `hub:NAME:SPLIT`, `stories:SPLIT`.
        kind: questions about a text, groups of underspecified ones, or multiple-choice questions.
    """

    __test__ = False  # not one of pytest's

    name: str
    source: str
    kind: Literal["qa", "groups", "choices"]


def summarise(values: Sequence[float]) -> dict[str, Any]:
    """Mean, sample standard deviation, and the mean's 95 % interval by Student's t; None for a single model.

    >>> summarise([1.0, 2.0, 3.0])["std"]
    1.0
    """
    n, mean = len(values), math.fsum(values) / len(values)
    std = low = high = None
    if n > 1 and all(map(math.isfinite, values)):
        std = statistics.stdev(values)
        half = float(student_t.ppf(0.975, n - 1)) * std / math.sqrt(n)
        low, high = mean - half, mean + half
    return {"mean": mean, "std": std, "low": low, "high": high, "models": n, "values": list(values)}


def summaries(models: Sequence[dict[str, float]]) -> dict[str, dict[str, Any]]:
    """`summarise` of every metric over several models, those that are shown first."""
    keys = sorted(models[0], key=lambda key: (SHOWN.index(key) if key in SHOWN else len(SHOWN), key))
    return {key: summarise([metrics[key] for metrics in models if key in metrics]) for key in keys}


def write_report(
    folder: Path, selections: Sequence[dict[str, Any]], tests: Sequence[TestSet], about: dict[str, Any]
) -> None:
    """Show the table and write the files.

    Args:
        folder: of the files.
        selections: the best models among those that share a `value` of a swept key (None: among all): their
            `models`, the best first, and `results`, for every test set the `summaries`.
        tests: the sets.
        about: how the models were selected.
    """
    by, rows = about["by"], list[dict[str, Any]]()
    for selection in selections:
        for test, results in selection["results"].items():
            for metric, found in results.items():
                count = results.get(metric.rpartition("/")[0] + "/n")
                row: dict[str, Any] = {by: flag_text(selection["value"])} if by else {}
                row |= {"test_set": test, "metric": metric, **found}
                del row["values"]
                row["n"] = round(count["mean"]) if count else None
                rows.append(row | {"values": " ".join(map(str, found["values"]))})
    table = pd.DataFrame(rows).astype({"n": "Int64"})
    write_text(folder / "selection.csv", table.to_csv(index=False))
    shown = table[table["metric"].isin(SHOWN)].drop(columns="values")
    shown = shown.map(lambda x: "" if pd.isna(x) else f"{x:.4f}" if isinstance(x, float) else str(x))
    print(shown.to_string(index=False), LEGEND, folder, sep="\n")
    best = "lowest" if about["mode"] == "min" else "highest"
    models = pd.DataFrame(
        {"model": model["name"], about["metric"]: f"{model['score']:.6g}", **model["parameters"]}
        for selection in selections
        for model in selection["models"]
    )
    title = f"# {about['study']}: the {about['top']} models of {best} {about['metric']}"
    parts = [title, _markdown(shown), LEGEND, "## Models", _markdown(models)]
    write_text(folder / "selection.md", "\n\n".join(parts) + "\n")
    content = {"about": about, "tests": [asdict(test) for test in tests], "selections": selections}
    write_text(folder / "selection.json", json.dumps(_without_nan(content), indent=1) + "\n")
    if by:
        _draw(folder / "selection.png", selections, tests, by)


def _markdown(table: pd.DataFrame) -> str:
    rows = [list(table), ["---"] * table.shape[1], *table.values.tolist()]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows)


def _without_nan(value: Any) -> Any:
    """NaN, which is no JSON, as null."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def is_size(value: Scalar) -> bool:
    """Whether a value has a place on a logarithmic axis."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _draw(path: Path, selections: Sequence[dict[str, Any]], tests: Sequence[TestSet], by: str) -> None:
    """A panel for each set of groups, with mu of every class of advice against a swept key; a last one for
    questions (Figure 5 of Zhao et al. 2021, with the size of the training set as the key).

    The axis is logarithmic where all values are numbers above 0. Bars are 95 % intervals over models.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lines: list[tuple[str, str, str, str]] = [
        (test.name, test.name, f"bias/{name}/mu", name)
        for test in tests
        if test.kind == "groups"
        for name in ADVICE_CLASSES
    ]
    score = {"qa": "qa/f1", "choices": "choices/accuracy"}
    lines += [("questions", test.name, score[test.kind], test.name) for test in tests if test.kind in score]
    panels = list(dict.fromkeys(panel for panel, *_ in lines))
    size = (4 * len(panels), 3.4)
    figure, axes = plt.subplots(1, len(panels), figsize=size, squeeze=False, layout="constrained")
    logarithmic = all(is_size(selection["value"]) for selection in selections)
    for panel, test, metric, label in lines:
        axis = axes[0][panels.index(panel)]
        axis.set(title=panel, xlabel=by, ylabel=metric.rpartition("/")[2], ylim=(0, None))
        points = [
            (s["value"], s["results"][test][metric]) for s in selections if metric in s["results"][test]
        ]
        ticks = [flag_text(value) for value, _ in points]
        x = [value for value, _ in points] if logarithmic else ticks
        half = [0.0 if found["low"] is None else found["mean"] - found["low"] for _, found in points]
        axis.errorbar(
            x, [found["mean"] for _, found in points], yerr=half, marker="o", capsize=3, label=label
        )
        if logarithmic:
            axis.set_xscale("log")
            axis.set_xticks(x, ticks)
            axis.minorticks_off()
        axis.legend(fontsize="small")
    save_figure(figure, path)
