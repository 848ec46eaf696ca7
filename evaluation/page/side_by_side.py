"""Numbers of several runs and reports beside each other: columns of metrics, and where settings differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluation.page.found_results import Found, FoundReport, FoundRun

Number = float | int | None


@dataclass(frozen=True)
class Column:
    """The metrics of one checkpoint of a report, or of one run.

    Args:
        found: what they are from.
        name: the checkpoint; empty where the report is about one thing only.
        keys: metric key without the checkpoint's name to the key in report.json.
    """

    found: Found
    name: str
    keys: Mapping[str, str]

    def __getitem__(self, key: str) -> Number:
        return self.found.metrics[self.keys[key]]

    @property
    def label(self) -> str:
        """What it is called beside columns of other folders."""
        return f"{self.found.label}: {self.name}" if self.name else self.found.label


def columns(found: Found) -> list[Column]:
    """A column for each checkpoint whose name begins metric keys, and one for the keys that name none."""
    names = checkpoint_names(found.about) if isinstance(found, FoundReport) else []
    names = [name for name in names if any(key.startswith(f"{name}/") for key in found.metrics)]
    parts: dict[str, dict[str, str]] = {name: {} for name in names}
    for key in found.metrics:
        owners = [name for name in names if key.startswith(f"{name}/")]
        owner = max(owners, key=len, default="")
        parts.setdefault(owner, {})[key.removeprefix(f"{owner}/") if owner else key] = key
    return [Column(found, name, keys) for name, keys in parts.items()]


def checkpoint_names(about: Mapping[str, Any]) -> list[str]:
    """Who was asked, as `about` tells it."""
    for field in ("checkpoints", "models", "checkpoint", "model", "runs"):
        value = about.get(field)
        if isinstance(value, (dict, list)):
            return [str(name) for name in value]
        if isinstance(value, str):
            return [value]
    return []


@dataclass(frozen=True)
class Comparison:
    """The keys that at least two columns share, in the order in which they appear."""

    title: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    others: int
    """Keys that one column alone has."""


def comparisons(results: Sequence[Found]) -> Iterator[Comparison]:
    """A comparison for the runs and one for each protocol, where several folders have the same metrics.

    (Checkpoints of one report stand side by side in its own table.)
    """
    groups: dict[str, list[Column]] = {}
    for found in results:
        title = found.protocol if isinstance(found, FoundReport) else "training"
        groups.setdefault(title, []).extend(columns(found))
    for title, found_columns in groups.items():
        counts: dict[str, int] = {}
        for column in found_columns:
            for key in column.keys:
                counts[key] = counts.get(key, 0) + 1
        shared = tuple(key for key, count in counts.items() if count > 1)
        kept = tuple(column for column in found_columns if any(key in column.keys for key in shared))
        if len({id(column.found) for column in kept}) > 1:
            yield Comparison(title, kept, shared, len(counts) - len(shared))


def differences(runs: Sequence[FoundRun]) -> list[tuple[str, ...]]:
    """Settings that are not the same in all runs: (key, its value in each run)."""
    flats = [dict(flat(run.config)) for run in runs]
    keys = dict.fromkeys(key for values in flats for key in values)
    rows = [(key, *(values.get(key, "–") for values in flats)) for key in keys]
    return [row for row in rows if len(set(row[1:])) > 1]


def flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Nested keys joined by dots to their values as text; a list of plain values is one value.

    >>> list(flat({"a": {"b": 1, "c": [1, 2]}, "d": None, "e": [{"f": True}]}))
    [('a.b', '1'), ('a.c', '1, 2'), ('d', '–'), ('e[0].f', 'true')]
    """
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from flat(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        for i, item in enumerate(value):
            yield from flat(item, f"{name}[{i}]")
    else:
        items = value if isinstance(value, list) else [value]
        yield name, ", ".join(map(_plain, items)) or "–"


def _plain(value: Any) -> str:
    if value is None or value == "" or isinstance(value, Mapping):
        return "–"
    return str(value).lower() if isinstance(value, bool) else str(value)
