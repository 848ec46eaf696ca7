"""One HTML page of runs and reports, which needs nothing but itself: to read, to send.

interventune report runs/ot/version_0 after=DIR --output report.html

A report is shown as its report.md; numbers that several folders have are compared in one table. What the
folders hold is text, never markup: HTML in it is escaped, there are no links out, and the page loads nothing.
"""

from __future__ import annotations

import json
import math
import os
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typing_extensions import TypedDict  # pydantic asks for it below Python 3.12

from evaluation.report import SCHEMA
from evaluation.results import ALWAYS, NUMBERS
from evaluation.views import View, number, shown
from storage.command_line import split_name
from storage.errors import DataError
from storage.files import atomic_text, read_bytes, read_text
from storage.json_files import check, json_lines, load_json

if TYPE_CHECKING:
    from pandas import DataFrame

HOME = Path(__file__).parent
GENERATOR = '<meta name="generator" content="interventune report">'
"""Tells a page of this command from other files: only such a page is replaced."""
MARKDOWN = ["heading", "table", "list", "emphasis", "backticks", "escape", "image"]
"""What report.md may use; all else is shown as it is written."""
EXAMPLES, LONGEST = 100, 300
"""Rows of examples.jsonl, and characters of a cell, that are shown."""


class ReportContent(TypedDict):
    """The fields of report.json that a page shows."""

    headline: str
    about: dict[str, Any]
    by: list[str]
    results: list[dict[str, str | int | float | None]]
    figures: list[str]


@dataclass(frozen=True)
class Section:
    """What the page shows of a folder.

    Args:
        label: the folder's name on the page.
        kind: the protocol, or `training`; numbers of one kind are compared.
        numbers: columns cell, measure, checkpoint and value, all texts.
        body: HTML of the report, or of the run's metrics.
        headline: the conclusion.
        examples: HTML of the first examples.
        texts: heading to text, such as a configuration.
    """

    label: str
    kind: str
    numbers: DataFrame
    body: str
    headline: str = ""
    examples: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)


def run(
    results: list[Annotated[str, "[NAME=]DIR"]],
    *,
    output: Annotated[Path, "FILE.html"],
    overwrite: bool = False,
) -> None:
    """One HTML page of runs and reports, with a table of the numbers that several of them have.

    Args:
        results: folders of runs and reports, or folders above them.
        output: the page.
        overwrite: replace the page if it exists.

    Raises:
        ValueError: nothing found, a damaged file, a place that cannot be written.
    """
    if output.exists() and not overwrite:
        raise ValueError(f"--output {output}: exists; choose another name or add --overwrite")
    if output.exists() and GENERATOR.encode() not in read_bytes(output):
        raise ValueError(f"--output {output}: is no page of this command; choose another name")
    sections = find_results(results)
    text = page(sections)
    with atomic_text(output) as file:
        file.write(text)
    print(f"{len(sections)} runs and reports on one page: {output}")


def find_results(arguments: Sequence[str]) -> list[Section]:
    """All runs and reports in the folders of `[NAME=]FOLDER` arguments, or anywhere below them, each once.

    Raises:
        ValueError: a folder that holds nothing of ours, a name of two folders, a damaged file.
    """
    sections: dict[Path, Section] = {}
    for argument in arguments:
        name, source = split_name(argument)
        count = 0
        for place, below, files in os.walk(source):
            below[:] = sorted(part for part in below if not part.startswith(".") and part != "checkpoints")
            is_run = {"config.yaml", "environment.json"} <= set(files)
            if is_run or "report.json" in files:
                count += 1
                folder, label = Path(place), Path(name or source, os.path.relpath(place, source))
                read = run_section if is_run else report_section
                if folder.resolve() not in sections:
                    sections[folder.resolve()] = read(str(label), folder)
        if not count:
            raise ValueError(f"{source}: holds no report of `evaluate --output` and no run of `train fit`")
    labels = [section.label for section in sections.values()]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise ValueError(f"{twice[0]}: names two folders; write another NAME=DIR")
    return list(sections.values())


def report_section(label: str, folder: Path) -> Section:
    """The report in a folder. DataError names the file, and the field that is wrong."""
    import pandas as pd

    path = own_file(folder, "report.json")
    document = load_json(path, dict[str, Any])
    if document.get("schema") != SCHEMA:
        raise DataError(f"{path}: not of this version (schema {SCHEMA}); run the protocol again")
    content = check(document, ReportContent, str(path))
    figures = {name: read_bytes(own_file(folder, name)) for name in content["figures"]}
    rows = own_file(folder, "examples.jsonl")
    examples = [row for _, row in islice(json_lines(rows, dict[str, Any]), EXAMPLES)] if rows.exists() else []
    table = pd.DataFrame(examples, dtype=object).replace("", None).dropna(axis=1, how="all")
    return Section(
        label,
        kind=str(content["about"].get("protocol", "")),
        numbers=long_table(content),
        body=report_html(read_text(own_file(folder, "report.md")), figures),
        headline=content["headline"],
        examples=table_html(table),
        texts={"Inputs, settings, versions": json.dumps(content["about"], indent=1, ensure_ascii=False)},
    )


def long_table(content: ReportContent) -> DataFrame:
    """The numbers themselves, without changes, as `Section` has them."""
    import pandas as pd

    frame = pd.DataFrame(content["results"], columns=[*content["by"], "measure", *NUMBERS])
    frame = frame[frame["against"] == ""].astype(dict.fromkeys(NUMBERS, float))
    rows, dimensions = frame.to_dict("records"), [name for name in content["by"] if name not in ALWAYS]
    cells = [", ".join(f"{name}={row[name]}" for name in dimensions if row[name] != "") for row in rows]
    values = [shown(row, View("", ())) for row in rows]
    return frame[["measure", "checkpoint"]].assign(cell=cells, value=values)


def run_section(label: str, folder: Path) -> Section:
    """The run in a folder: its last metrics, if there are any yet, and what it was started with."""
    import pandas as pd

    path = own_file(folder, "metrics.json")
    metrics = load_json(path, dict[str, float | None]) if path.exists() else {}
    values = [number(math.nan if value is None else value) for value in metrics.values()]
    table = pd.DataFrame({"measure": list(metrics), "value": values})
    texts = {name: read_text(own_file(folder, name)) for name in ("config.yaml", "environment.json")}
    return Section(label, "training", table.assign(cell="", checkpoint=""), table_html(table), texts=texts)


def own_file(folder: Path, name: str) -> Path:
    """A file that stands in the folder itself; DataError for one that could show what is elsewhere."""
    path = folder / name
    if Path(name).name != name or path.is_symlink():
        raise DataError(f"{path}: leads out of the folder of the report; copy the file there")
    return path


def report_html(text: str, figures: Mapping[str, bytes]) -> str:
    """report.md as HTML, with its figures in it."""
    from markdown_it import MarkdownIt
    from markupsafe import escape

    def image(_: Any, tokens: Sequence[Any], at: int, *__: Any) -> str:
        name = str(tokens[at].attrs["src"])
        if name not in figures:
            return escape(tokens[at].content)
        return f'<img src="data:image/png;base64,{b64encode(figures[name]).decode()}" alt="{escape(name)}">'

    markdown = MarkdownIt("zero").enable(MARKDOWN)
    markdown.add_render_rule("image", image)
    return str(markdown.render(text))


def table_html(frame: DataFrame, **options: Any) -> str:
    """A table as HTML, all of it escaped; nothing for an empty one."""
    import pandas as pd

    with pd.option_context("display.max_colwidth", LONGEST):
        options = {"index": False, "escape": True, "border": 0, "na_rep": "", **options}
        return "" if frame.empty else str(frame.to_html(**options))


def comparison(sections: Sequence[Section]) -> dict[str, DataFrame]:
    """By kind, the numbers that at least two folders have: a row for each cell and measure, a column for each
    checkpoint of each folder."""
    import pandas as pd

    frame = pd.concat([s.numbers.assign(kind=s.kind, label=s.label) for s in sections])
    shared = frame.groupby(["kind", "cell", "measure"])["label"].transform("nunique") > 1
    layout = {"values": "value", "index": ["cell", "measure"], "columns": ["label", "checkpoint"]}
    return {
        str(kind): part.pivot_table(**layout, aggfunc="first", fill_value="", sort=False)
        for kind, part in frame[shared].groupby("kind", sort=False)
    }


def page(sections: Sequence[Section]) -> str:
    """The page as text; the same folders give the same page."""
    from jinja2 import Environment

    template, style = ((HOME / name).read_text(encoding="utf-8") for name in ("page.html.j2", "page.css"))
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(
        generator=GENERATOR,
        style=style,
        sections=sections,
        compared={kind: table_html(table, index=True) for kind, table in comparison(sections).items()},
        most=EXAMPLES,
    )
