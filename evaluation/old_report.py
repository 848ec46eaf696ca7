"""What an evaluation leaves behind: a folder with report.json, report.md, figures and examples.jsonl.

The folder appears under its name only when complete: it is written beside it and renamed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evaluation.old_tables import Table, markdown_table
from storage.files import sync

FIXED_FILES = ("report.json", "report.md", "examples.jsonl")


@dataclass(frozen=True)
class Report:
    """The outcome of a protocol, before it is written.

    Args:
        title: heading of report.md.
        metrics: flat metric keys (`ethical/mu`) to numbers; NaN becomes null in report.json.
        tables: shown in report.md, and on the console unless `console` says otherwise.
        about: where the numbers come from: protocol, inputs, settings. The key `about` of report.json.
        notes: paragraphs of Markdown under the title.
        figures: file name to a function that writes that file.
        examples: one JSON object per example, written to examples.jsonl as they come.
        console: how many of the tables the console shows, from the first on.
    """

    title: str
    metrics: Mapping[str, float | int]
    tables: tuple[Table, ...]
    about: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    figures: Mapping[str, Callable[[Path], None]] = field(default_factory=dict)
    examples: Iterable[Mapping[str, Any]] = ()
    console: int = 1


def check_output(output: Path, *, overwrite: bool) -> None:
    """Raise ValueError unless a report may be written at `output`.

    A folder that holds something is refused; with `overwrite`, one that holds a report and nothing else is
    accepted, so that a mistyped path never costs anything but a report.
    """
    if output.exists() and not output.is_dir():
        raise ValueError(f"--output {output}: is a file; name a folder")
    home = next(parent for parent in output.absolute().parents if parent.exists())
    if not home.is_dir() or not os.access(home, os.W_OK | os.X_OK):
        what = "cannot be written to" if home.is_dir() else "is a file"
        raise ValueError(f"--output {output}: {home} {what}; name another folder")
    present = {entry.name for entry in output.iterdir()} if output.exists() else set()
    if not present:
        return
    if not overwrite:
        raise ValueError(
            f"--output {output}: holds another run ({_some(present)}); name a new folder or add --overwrite"
        )
    strangers = present - _files_of_report(output)
    if strangers:
        raise ValueError(
            f"--output {output}: --overwrite replaces a report only, but here are other files "
            f"({_some(strangers)}); name another folder"
        )


def write_report(report: Report, output: Path, *, overwrite: bool = False) -> None:
    """Write the folder; on any error nothing changes. ValueError as in `check_output`, and where it cannot be
    written (a full disk)."""
    check_output(output, overwrite=overwrite)
    try:
        with staged_directory(output) as folder:
            _write_files(report, folder)
    except OSError as error:
        raise ValueError(f"--output {output}: cannot be written: {error.strerror or error}") from error


def _write_files(report: Report, folder: Path) -> None:
    # Half of a surrogate pair, which JSON can hold and UTF-8 cannot, is written as JSON's own escape.
    with open(folder / "examples.jsonl", "w", encoding="utf-8", errors="backslashreplace") as file:
        for example in report.examples:
            file.write(json.dumps(plain_json(example), ensure_ascii=False, allow_nan=False) + "\n")
    for name, draw in report.figures.items():
        draw(folder / name)
    (folder / "report.md").write_text(markdown(report), encoding="utf-8", errors="backslashreplace")
    files = sorted({*FIXED_FILES, *report.figures})
    content = {**report.metrics, "about": {**report.about, "page": page(report), "files": files}}
    text = json.dumps(plain_json(content), indent=1, ensure_ascii=False, allow_nan=False)
    (folder / "report.json").write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
    for name in files:
        sync(folder / name)
    sync(folder)


@contextmanager
def staged_directory(output: Path) -> Iterator[Path]:
    """A temporary folder beside `output` that takes its place, and that of an older one, on success."""
    output = output.absolute()
    output.parent.mkdir(parents=True, exist_ok=True)
    staged = output.with_name(f".{output.name}.{os.getpid()}.tmp")
    older = output.with_name(f".{output.name}.{os.getpid()}.old")
    staged.mkdir()
    try:
        yield staged
        if output.exists():
            output.rename(older)
        staged.rename(output)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
        if older.exists() and not output.exists():
            older.rename(output)
        shutil.rmtree(older, ignore_errors=True)


def markdown(report: Report) -> str:
    """report.md: title, notes, figures, tables, and what it was made from."""
    parts = [f"# {report.title}", *report.notes]
    parts += [f"![{name}]({name})" for name in report.figures]
    for table in report.tables:
        parts += [f"## {table.title}", markdown_table(table)]
        parts += [table.caption] if table.caption else []
    about = json.dumps(plain_json(report.about), indent=1, ensure_ascii=False)
    parts += ["## Made from", f"```json\n{about}\n```"]
    parts.append("All numbers in full precision: report.json. One line per example: examples.jsonl.")
    return "\n\n".join(parts) + "\n"


def page(report: Report) -> dict[str, Any]:
    """The key `about.page` of report.json: all that report.md shows, for other pages."""
    tables = [
        {"title": table.title, "header": table.header, "rows": table.rows, "caption": table.caption}
        for table in report.tables
    ]
    return {"title": report.title, "notes": report.notes, "figures": list(report.figures), "tables": tables}


def plain_json(value: Any) -> Any:
    """The same with NaN and infinities as None, and tuples as lists: what strict JSON can hold."""
    if isinstance(value, Mapping):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def fingerprint(path: Path) -> str:
    """SHA-256 of a file, for `about`: which data the numbers come from."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files_of_report(output: Path) -> set[str]:
    """The names that the report in `output` says it wrote; empty where there is none."""
    try:
        files = json.loads((output / "report.json").read_text(encoding="utf-8"))["about"]["files"]
        return {str(name) for name in files}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _some(names: Iterable[str], limit: int = 3) -> str:
    names = sorted(names)
    return ", ".join(names[:limit]) + (f", ... {len(names)} in all" if len(names) > limit else "")
