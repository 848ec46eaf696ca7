"""What a selection shows and leaves: a table, selection.json, .md and .csv, and a figure over a swept key."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from data_modules.schema import ADVICE_CLASSES
from storage.json_files import write_text
from training.sweep.file import Scalar, flag_text
from training.sweep.selection_tests import Metrics, TestSet

SHOWN = (*(f"bias/{name}/mu" for name in ADVICE_CLASSES), "qa/f1", "qa/em")
"""Metrics in the table; the files hold all."""


@dataclass(frozen=True)
class Summary:
    """A metric over several models.

    Args:
        mean: arithmetic mean.
        std: sample standard deviation (n - 1); None for a single model.
        models: how many there are.
        values: one for each model, the best model first.
    """

    mean: float
    std: float | None
    models: int
    values: tuple[float, ...]


def summarise(values: Sequence[float]) -> Summary:
    """Mean and sample standard deviation.

    >>> summarise([1.0, 2.0, 3.0]).std
    1.0
    """
    std = statistics.stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else None
    return Summary(math.fsum(values) / len(values), std, len(values), tuple(values))


@dataclass(frozen=True)
class Model:
    """A trial that was selected.

    Args:
        name: of its folder.
        score: by which it was chosen.
        parameters: swept keys and their values.
        run: folder of its run.
    """

    name: str
    score: float
    parameters: dict[str, Scalar]
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

    def summary(self, test: str, metric: str) -> Summary | None:
        """None where the set has no such metric."""
        values = [metrics[metric] for metrics in self.results[test] if metric in metrics]
        return summarise(values) if values else None


Row = tuple[Scalar, str, str, Summary]
"""Value of the swept key, test set, metric, numbers."""


def rows(
    selections: Sequence[Selection], tests: Sequence[TestSet], shown: Sequence[str] = ()
) -> Iterator[Row]:
    """One row for each value, set and metric; only those `shown`, if any are named."""
    for selection in selections:
        for test in tests:
            known = selection.results[test.name][0]
            for metric in [m for m in shown if m in known] if shown else sorted(known):
                found = selection.summary(test.name, metric)
                if found is not None:
                    yield selection.value, test.name, metric, found


HEADER = ("test set", "metric", "mean", "std", "models", "n")


def cells(selections: Sequence[Selection], tests: Sequence[TestSet], by: str) -> list[list[str]]:
    """The table as text; n is how many groups or questions of the set are behind the number."""
    texts = []
    for value, test, metric, found in rows(selections, tests, SHOWN):
        selection = next(s for s in selections if s.value == value)
        count = selection.summary(test, metric.rpartition("/")[0] + "/n")
        std = "–" if found.std is None else f"{found.std:.4f}"
        n = f"{count.mean:.0f}" if count else "–"
        text = [test, metric, f"{found.mean:.4f}", std, str(found.models), n]
        texts.append([flag_text(value), *text] if by else text)
    return texts


def print_selection(selections: Sequence[Selection], tests: Sequence[TestSet], by: str) -> None:
    """The table on standard output."""
    table = Table()
    for column in (*([by] if by else []), *HEADER):
        table.add_column(column, overflow="fold")
    for row in cells(selections, tests, by):
        table.add_row(*row)
    Console(width=None if Console().is_terminal else 200).print(table)


def write_selection(
    folder: Path, selections: Sequence[Selection], tests: Sequence[TestSet], about: dict[str, Any]
) -> None:
    """selection.json with everything, selection.csv with all metrics, selection.md to read."""
    by = str(about["by"])
    content = {
        "about": about,
        "tests": [asdict(test) for test in tests],
        "selections": [
            {
                "value": selection.value,
                "models": [asdict(model) for model in selection.models],
                "results": {
                    test.name: {m: asdict(found) for _, _, m, found in rows([selection], [test])}
                    for test in tests
                },
            }
            for selection in selections
        ],
    }
    write_text(folder / "selection.json", json.dumps(_plain(content), indent=1) + "\n")
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow([*([by] if by else []), "test_set", "metric", "mean", "std", "models", "values"])
    for value, test, metric, found in rows(selections, tests):
        values = " ".join(map(str, found.values))
        std = "" if found.std is None else found.std
        writer.writerow([*([value] if by else []), test, metric, found.mean, std, found.models, values])
    write_text(folder / "selection.csv", table.getvalue())
    write_text(folder / "selection.md", markdown(selections, tests, about))


def _plain(value: Any) -> Any:
    """Without NaN, which is no JSON."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def markdown(selections: Sequence[Selection], tests: Sequence[TestSet], about: dict[str, Any]) -> str:
    """Results, and which models they are of."""
    by = str(about["by"])
    best = "lowest" if about["mode"] == "min" else "highest"
    lines = [f"# {about['study']}: the {about['top']} models of {best} {about['metric']}", ""]
    lines += _markdown_table([*([by] if by else []), *HEADER], cells(selections, tests, by))
    lines += ["", "std: sample standard deviation over models; a single model has none.", "", "## Models", ""]
    keys = list(selections[0].models[0].parameters)
    models = [
        [model.name, f"{model.score:.6g}", *(flag_text(model.parameters.get(key)) for key in keys)]
        for selection in selections
        for model in selection.models
    ]
    lines += _markdown_table(["model", str(about["metric"]), *keys], models)
    return "\n".join(lines) + "\n"


def _markdown_table(header: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    texts = [header, ["---"] * len(header), *body]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in texts]


def draw_figure(path: Path, selections: Sequence[Selection], tests: Sequence[TestSet], by: str) -> None:
    """mu of every class of advice against a swept key, a panel for each set of groups; F1 in a last panel.

    The axis is logarithmic where all values are numbers above 0. Error bars are sample standard deviations
    over models. (Figure 5 of Zhao et al. 2021, with the size of the training set as the key.)
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    domains, questions = ([t for t in tests if t.kind == kind] for kind in ("groups", "qa"))
    panels = len(domains) + bool(questions)
    figure, axes = plt.subplots(1, panels, figsize=(4 * panels, 3.4), squeeze=False, layout="constrained")
    for axis, test in zip(axes[0], domains, strict=False):
        for name in ADVICE_CLASSES:
            _line(axis, selections, test.name, f"bias/{name}/mu", name)
        axis.set(title=test.name, ylabel="mu")
    for test in questions:
        _line(axes[0][-1], selections, test.name, "qa/f1", test.name)
        axes[0][-1].set(title="questions", ylabel="F1")
    for axis in axes[0]:
        axis.set(xlabel=by, ylim=(0, None))
        axis.legend(fontsize="small")
    temporary = path.with_name(f".{path.name}")
    figure.savefig(temporary, dpi=150, format="png")
    plt.close(figure)
    temporary.replace(path)


def is_size(value: Scalar) -> bool:
    """Whether a value has a place on a logarithmic axis."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _line(axis: Any, selections: Sequence[Selection], test: str, metric: str, label: str) -> None:
    points = [(s.value, found) for s in selections if (found := s.summary(test, metric)) is not None]
    if not points:
        return
    logarithmic = all(is_size(selection.value) for selection in selections)
    x = [value if logarithmic else flag_text(value) for value, _ in points]
    spread = [found.std or 0.0 for _, found in points]
    axis.errorbar(x, [found.mean for _, found in points], yerr=spread, marker="o", capsize=3, label=label)
    if logarithmic:
        axis.set_xscale("log")
        axis.set_xticks(x, [flag_text(value) for value, _ in points])
        axis.minorticks_off()
