"""The output of an evaluation: a folder that gets its name only when complete.

report.md       a summary, tables, figures: two pages at most
report.tex      the tables in LaTeX (booktabs); figures are also there as PDF
results.csv     the long table in full precision (evaluation/results.py)
examples.jsonl  one row per example
report.json     all of this but the examples as data, with the command, the code's revision and
versions
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interventune.storage.documents import atomic, plain_json, source_digest
from interventune.storage.provenance import revision, versions

from .results import Results, Row
from .shown.views import Table, about_intervals, latex_table, markdown_table, markdown_text

if TYPE_CHECKING:
    from pandas import DataFrame

log = logging.getLogger(__name__)

FILES = ("report.json", "report.md", "report.tex", "results.csv", "examples.jsonl")
MANY = 0.03
"""Share of failures of a checkpoint above which they are a warning."""
Figure = tuple[Callable[["DataFrame", Path], None], "DataFrame"]
"""Draws cells into a file; and the cells."""


@dataclass(frozen=True)
class Evaluation:
    """The outcome of a protocol, before it is written.

    Args:
        title: heading of report.md.
        results: the long table.
        views: tables, as functions of the cells of `shown`, in the order of report.md.
        about: origin of the numbers beyond the flags, as plain JSON values.
        headline: the conclusion in a sentence, last on the console.
        notes: paragraphs of Markdown under the summary; empty ones are omitted.
        figures: file name to figure.
        examples: one JSON object per example; fields named like dimensions give its cell.
        console: number of tables on the console, from the first on.
        shown: the numbers that views show (default: all).
        summary: tables before the notes, and after those on the console; without any, report.md
            opens with the headline.
    """

    title: str
    results: Results
    views: Sequence[Callable[[DataFrame], Table]]
    about: Mapping[str, Any] = field(default_factory=dict)
    headline: str = ""
    notes: Sequence[str] = ()
    figures: Mapping[str, Figure] = field(default_factory=dict)
    examples: Iterable[Row] = ()
    console: int = 1
    shown: Results | None = None
    summary: Sequence[Table] = ()

    def tables(self) -> list[Table]:
        """All tables with rows but the summary."""
        frame = (self.shown or self.results).frame
        return [table for view in self.views if (table := view(frame)).rows]


@contextmanager
def claimed(output: Path, *, overwrite: bool) -> Iterator[None]:
    """Reserve a folder for one report. It is created at the start and locked, so that two commands
    never write to one folder; if nothing is written, it is removed. ValueError: the folder is not
    empty, or another command writes to it.

    Args:
        output: the folder, which must be empty.
        overwrite: accept a folder that contains only a report, so that a mistyped path never
            deletes anything else.
    """
    output = output.resolve()
    new = not output.exists()
    output.mkdir(parents=True, exist_ok=True)
    handle = os.open(output, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"--output {output}: another command writes there; choose another"
            ) from None
        others = {entry.name for entry in output.iterdir()}
        problem = "the folder is not empty; choose another, or add --overwrite to replace a report"
        if overwrite and others:
            problem = (
                "--overwrite only replaces a report, and the folder has other files; choose another"
            )
            with suppress(OSError, ValueError, KeyError, TypeError):
                report = json.loads((output / "report.json").read_text(encoding="utf-8"))
                others -= set(report["about"]["files"])
        if others:
            raise ValueError(f"--output {output}: {problem} ({', '.join(sorted(others)[:3])})")
        yield
    finally:
        os.close(handle)
        if new:
            with suppress(OSError):  # it contains the report
                output.rmdir()


def write_report(evaluation: Evaluation, output: Path, *, command: Sequence[str] = ()) -> None:
    """Write the folder, replacing an existing one; on any error nothing changes. DataError if it
    cannot be written, for example on a full disk.
    """
    from interventune.metrics.intervals import LEVEL

    output = output.resolve()
    output.parent.mkdir(parents=True, exist_ok=True)
    results = evaluation.results
    tables = [*evaluation.summary, *evaluation.tables()]
    frame = results.frame
    sections = [
        [f"## {markdown_text(table.title)}", markdown_table(table), markdown_text(table.caption)]
        for table in tables
    ]
    opening = len(evaluation.summary)
    parts = [f"# {markdown_text(evaluation.title)}"]
    if evaluation.headline and not opening:
        parts.append(f"**{markdown_text(evaluation.headline)}**")
    parts += chain(*sections[:opening], evaluation.notes, *sections[opening:])
    for name, (figure, _) in evaluation.figures.items():
        parts.append(f"![{getattr(figure, 'caption', Path(name).stem)}]({name})")
    changes = frame[(frame["against"] != "") & frame["low"].notna()]
    if len(changes):
        chance = (1 - LEVEL) * len(changes)
        excluding = (changes["low"] * changes["high"] > 0).sum()
        what = f"By chance about {chance:.1f} of {len(changes)} intervals of changes exclude 0"
        parts.append(f"{what}; here {excluding} do.")
    parts.append(
        f"{about_intervals(frame)} results.csv has "
        "the unit of each number, how many there are, and full precision. Changes (`against` "
        "there) use the questions that both answered. One line per example: examples.jsonl. "
        "Inputs, settings, command and versions: report.json."
    )
    pictures = [str(Path(name).with_suffix(".pdf")) for name in evaluation.figures]
    content = {
        "title": evaluation.title,
        "headline": evaluation.headline,
        "notes": list(filter(None, evaluation.notes)),
        "about": {
            **evaluation.about,
            "command": command,
            "revision": revision(),
            "versions": versions(),
            "interval": {"level": LEVEL, "unit": results.unit},
            "files": sorted([*evaluation.figures, *pictures, *FILES]),
        },
        "by": results.by,
        "results": frame.to_dict("records"),
        "tables": [asdict(table) for table in tables],
        "figures": list(evaluation.figures),
    }

    def as_json(value: Any, **layout: Any) -> str:
        return json.dumps(plain_json(value), ensure_ascii=False, **layout) + "\n"

    # A lone surrogate, which JSON can contain and UTF-8 cannot, is written as JSON's own escape.
    how: dict[str, Any] = {"encoding": "utf-8", "errors": "backslashreplace"}
    with atomic(output) as folder:
        folder.mkdir()
        with open(folder / "examples.jsonl", "w", **how) as file:
            file.writelines(map(as_json, evaluation.examples))
        frame.to_csv(folder / "results.csv", index=False, **how)
        for name, (figure, cells) in evaluation.figures.items():
            figure(cells, folder / name)
        latex = "\n".join(
            [
                "% in the preamble: \\usepackage[T1]{fontenc} \\usepackage{booktabs}\n",
                *(latex_table(table, evaluation.title, output.resolve().name) for table in tables),
            ]
        )
        (folder / "report.tex").write_text(latex, **how)
        (folder / "report.md").write_text("\n\n".join(filter(None, parts)) + "\n", **how)
        (folder / "report.json").write_text(as_json(content, indent=1), **how)


def source_record(source: str | Path) -> dict[str, str]:
    """Return a source's name and, for a file, its SHA-256."""
    return {"path": str(source), "sha256": source_digest(source)}


def failure_note(rows: DataFrame, counted: str) -> str:
    """Describe unanswered questions, rows with a `failure`, the reason, in a paragraph;
    empty if there are none. A warning if a checkpoint has many. ValueError: none answered anything.

    Args:
        rows: all.
        counted: a plural noun for what the reasons count.
    """
    shares = tally(rows, "failure")
    if shares and rows["failure"].notna().all():
        parts = "; ".join(shares)
        raise ValueError(f"there is not one answer, so no report was written; {parts}")
    text = f"Some {counted} have no answer and are part of no share: {'; '.join(shares)}."
    if max(shares.values(), default=0) > MANY:
        log.warning(text)
    return markdown_text(text) if shares else ""


def tally(rows: DataFrame, field: str) -> dict[str, float]:
    """Count the values of a field by name: a text for each that has any, which says how many
    checkpoints (seeds, steps) it counts together; and the share of rows with a value.

    >>> from pandas import DataFrame
    >>> rows = DataFrame({"checkpoint": "ot", "run": [1, 2, 2], "x": ["none", None, "none"]})
    >>> [*tally(rows[:1], "x"), *tally(rows, "x")]
    ['ot: 1 none', 'ot, 2 checkpoints: 2 none']
    """
    shares = dict[str, float]()
    for name, part in rows.groupby("checkpoint", sort=False) if field in rows else ():
        models = len(part.filter(["checkpoint", "run", "step"]).drop_duplicates())
        over = f", {models} checkpoints" if models > 1 else ""
        counts = part[field].value_counts()
        if len(counts):
            values = ", ".join(f"{n} {value}" for value, n in counts.items())
            shares[f"{name}{over}: {values}"] = counts.sum() / len(part)
    return shares


def tally_note(rows: DataFrame, field: str, words: str) -> str:
    """Return a sentence with the counts of a field's values; empty if there are none."""
    text = markdown_text("; ".join(tally(rows, field)))
    return f"{words}: {text}." if text else ""
