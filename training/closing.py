"""What a command says when it ends: `fit` where the run is, its main metrics and the command that probes it;
`validate` and `test` their metrics in one table for each family."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from data_modules.batching.data_module import MAIN
from data_modules.sources import read_choices

MAIN_METRICS = (
    "qa/f1",
    "qa/em",
    "choices/accuracy",
    "bias/ethical/mu",
    "bias/adversarial/mu",
    "bias/none/mu",
)
"""Named behind the one that best.ckpt goes by, where the main sets have them."""

Metrics = Mapping[str, float | None]


def closing_lines(folder: Path, metrics: Metrics, monitor: str, data: Any) -> list[str]:
    """The last three lines of `fit`.

    Args:
        folder: of the run.
        metrics: what its metrics.json holds.
        monitor: the metric that best.ckpt goes by.
        data: the DataModule.
    """
    wanted = [monitor, *(f"val/{name}" for name in MAIN_METRICS)]
    found = [name for name in dict.fromkeys(wanted) if name in metrics]
    found = found or [name for name in metrics if name.startswith(("val/", "train/loss/"))][:6]
    shown = ", ".join(f"{name} {number(metrics[name])}" for name in found) or "none was logged"
    best, last = folder / "checkpoints" / "best.ckpt", folder / "checkpoints" / "last.ckpt"
    probe = next_command(best if best.exists() else last, folder, data)
    return [
        f"run: {folder}, {metrics.get('step', 0)} steps",
        f"metrics: {shown}",
        f"next: {shlex.join(probe)}",
    ]


def next_command(checkpoint: Path, folder: Path, data: Any) -> list[str]:
    """The command that probes what the run was for: choices, groups, answers without their evidence; of other
    models of questions, the bias in the embedded groups."""
    reports = Path("reports") / folder.parent.name / folder.name
    command = ["interventune", "evaluate"]

    def sources(sets: Mapping[str, Mapping[str, str]], train: Any) -> Mapping[str, str]:
        trained = train[0] if isinstance(train, list) and train else train
        return sets["val"] or sets["test"] or ({MAIN: trained} if trained else {})

    if "choices" in data.kinds:
        source = next(iter(sources(data.choice_sources, data.train_choices).values()), "stories:choices_dev")
        of, flags = "confusion", ["--input", source]
        if next(iter(read_choices(source))).benchmark == "bbq":
            metadata = Path(source).with_name("additional_metadata.csv")
            of, flags = "bbq", ["--data", source, "--metadata", str(metadata)]
    elif groups := sources(data.group_sources, getattr(data, "train_groups", [])):
        of, flags = "bias", ["--data", *(f"{name}={source}" for name, source in groups.items())]
    elif _deletes(data.interventions):
        of, flags = "faithfulness", ["--data", *list(sources(data.qa_sources, data.train_qa).values())[:1]]
    else:
        of, flags = "bias", ["--data", "stories:heldout"]
    return [*command, of, "--checkpoint", str(checkpoint), *flags, "--output", str(reports / of)]


def _deletes(interventions: Any) -> bool:
    """Whether rationales are deleted: those of the data, or sentences with the answer, which `faithfulness`
    takes where there are none."""
    return {*interventions.train, *interventions.watch, *interventions.shift} != {"os"}


def print_metrics(metrics: Metrics) -> None:
    """A table for each family of metrics: a line for each set, class or variant, n last; three digits."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    families: dict[tuple[str, tuple[str, ...]], dict[str, dict[str, float | None]]] = {}
    lines: dict[tuple[str, str], dict[str, float | None]] = {}
    for key, value in metrics.items():
        stage, *rest = key.split("/")
        if len(rest) > 1:
            line = lines.setdefault((f"{stage}/{rest[0]}", "/".join(rest[1:-1]) or MAIN), {})
            line[rest[-1]] = value
    for (family, name), line in lines.items():
        columns = (*(column for column in line if column != "n"), *(("n",) if "n" in line else ()))
        families.setdefault((family, columns), {})[name] = line
    console = Console(highlight=False)
    for (family, columns), rows in families.items():
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column(Text(family), overflow="fold")
        for column in columns:
            table.add_column(column.replace("_", " "), justify="right")
        for name, line in rows.items():
            table.add_row(Text(name), *(number(line[column]) for column in columns))
        console.print(table)
        console.print()


def number(value: float | None) -> str:
    """Three digits behind the point; whole numbers as they are.

    >>> number(0.12345), number(13.0), number(None)
    ('0.123', '13', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    return str(int(value)) if value == int(value) else f"{value:.3f}"
