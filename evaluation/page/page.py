"""One self-contained HTML page of runs and reports, to read and to send.

interventune report runs/ot/version_0 after=DIR --output report.html

A report is shown as its report.md; one table compares the numbers that several folders share. The
content of folders is text, never markup: HTML in it is escaped, there are no external links, and
the page loads nothing.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typing_extensions import TypedDict

from interventune.evaluation.results import ALWAYS, NUMBERS
from interventune.evaluation.shown.figures import COLOURS
from interventune.evaluation.shown.views import number, shown
from interventune.storage.command_line import split_name
from interventune.storage.documents import (
    DataError,
    json_lines,
    load_json,
    read_bytes,
    read_text,
    refuse_existing,
    write_text,
)

if TYPE_CHECKING:
    from pandas import DataFrame

GENERATOR = b'<meta name="generator" content="interventune report">'
"""Marks pages of this command, the only files that it replaces."""
MARKDOWN = ["heading", "table", "list", "emphasis", "backticks", "escape", "image"]
"""Markdown features allowed in report.md; everything else is shown verbatim."""
CURVES = 12
"""Limit on the curves of a run."""
EXAMPLES = 100
LONGEST = 300
"""Limits on displayed rows of examples.jsonl, and on characters of a cell."""


class _Report(TypedDict):
    about: dict[str, Any]
    title: str
    headline: str
    figures: list[str]
    by: list[str]
    results: list[dict[str, Any]]


@dataclass(frozen=True)
class Section:
    """A folder's part of the page; `body` and `examples` are HTML, and `texts` are shown by
    heading.
    """

    label: str
    kind: str
    """A report's title, or `training`; numbers of one kind are compared."""
    numbers: DataFrame
    """Columns where (the dimensions), measure, checkpoint and value, all as text."""
    body: str
    texts: Mapping[str, str]
    headline: str = ""
    examples: str = ""


def run(
    results: list[Annotated[str, "[NAME=]DIR"]],
    *,
    output: Annotated[Path, "FILE.html"],
    overwrite: bool = False,
) -> None:
    """Put runs and reports on one HTML page, with a table of the numbers that several of them
    share.

    Example: interventune report runs/squad_ot runs/squad_ibt after=reports/shift \\
        --output report.html

    Args:
        results: folders of runs and reports, or folders that contain some. The page uses NAME.
        output: the file to write.
        overwrite: replace the page if it exists.
    """
    refuse_existing(output, overwrite=overwrite)
    if output.exists() and GENERATOR not in output.read_bytes():
        raise ValueError(f"--output {output}: is not a page of this command; choose another name")
    sections = find_results(results)
    write_text(output, page(sections))
    print(f"{len(sections)} runs and reports on one page: {output}")


def find_results(arguments: Sequence[str]) -> list[Section]:
    """Find all runs and reports in the folders of `[NAME=]FOLDER` arguments, or anywhere below
    them, each once. ValueError for a folder without any, two folders with one name, or a damaged
    file.
    """
    kinds = dict[Path, str]()
    label_of = dict[Path, str]()
    for argument in arguments:
        name, source = split_name(argument)
        marks = sorted(mark for kind in READERS for mark in Path(source).rglob(kind))
        if not marks:
            raise ValueError(
                f"{source}: has no report and no run; name a folder of evaluate or train"
            )
        for mark in marks:
            if links := [path for path in mark.parent.iterdir() if path.is_symlink()]:
                raise DataError(f"{links[0]}: a link; copy the file itself into this folder")
            folder = mark.parent.resolve()
            kinds.setdefault(folder, mark.name)
            label = name and str(Path(name, mark.parent.relative_to(source)))
            label_of.setdefault(folder, label)
    unnamed = [folder for folder, label in label_of.items() if not label]
    depth = 2
    while len({folder.parts[-depth:] for folder in unnamed}) < len(unnamed):
        depth += 1
    label_of |= {folder: "/".join(folder.parts[-depth:]) for folder in unnamed}
    labels = [*label_of.values()]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise ValueError(f"{twice[0]}: two folders have this name; write NAME=DIR to rename one")
    return [READERS[kinds[folder]](label, folder) for folder, label in label_of.items()]


def report_section(label: str, folder: Path) -> Section:
    """Read the report in a folder; DataError for a damaged file."""
    import pandas as pd

    content = load_json(folder / "report.json", _Report)
    figures = {name: read_bytes(folder / Path(name).name) for name in content["figures"]}
    number_of = dict[str, int]()
    # Variants and checkpoints of a question are next to each other.
    rows = nsmallest(
        EXAMPLES,
        (row for _, row in json_lines(folder / "examples.jsonl")),
        lambda row: number_of.setdefault(str(row.get("id")), len(number_of)),
    )
    examples = pd.DataFrame([*map(readable, rows)], dtype=object)
    about = json.dumps(content["about"], indent=1, ensure_ascii=False)
    return Section(
        label,
        kind=content["title"],
        numbers=long_table(content),
        body=report_html(read_text(folder / "report.md"), figures),
        texts={"Inputs, settings, versions": about},
        headline=content["headline"],
        examples=table_html(examples),
    )


def readable(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of examples.jsonl for reading: a story comes last, with what was deleted and
    appended marked.
    """
    from markupsafe import Markup, escape

    shown = dict(row)
    story = shown.pop("story", "")
    parts = list[Any]()
    at = 0
    for start, end in shown.pop("deleted", ()):
        parts += [escape(story[at:start]), Markup("<del>{}</del>").format(story[start:end])]
        at = end
    parts += [escape(story[at:]), Markup("<ins>{}</ins>").format(shown.pop("appended", ""))]
    return shown | {"story": Markup("").join(parts)} if story else shown


def long_table(content: _Report) -> DataFrame:
    """Return the numbers themselves, without changes, in the form of `Section`."""
    import pandas as pd

    frame = pd.DataFrame(content["results"], columns=[*content["by"], "measure", *NUMBERS])
    frame = frame[frame["against"] == ""].astype(dict.fromkeys(NUMBERS, float))
    rows = frame.to_dict("records")
    dimensions = content["by"][len(ALWAYS) :]
    places = [
        ", ".join(f"{name}={row[name]}" for name in dimensions if row[name] != "") for row in rows
    ]
    return frame[["measure", "checkpoint"]].assign(where=places, value=[*map(shown, rows)])


def run_section(label: str, folder: Path) -> Section:
    """Read the run in a folder: its last metrics, if any, and its settings."""
    import pandas as pd

    path = folder / "metrics.json"
    metrics = pd.Series(load_json(path) if path.exists() else {}, dtype=float).map(number)
    table = metrics.rename_axis("measure").reset_index(name="value")
    body = f"{curves_html(folder / 'metrics.csv')}{table_html(table)}"
    texts = {name: read_text(folder / name) for name in ("config.yaml", "environment.json")}
    numbers = table.assign(where="", checkpoint="")
    return Section(label, "training", numbers, body, texts)


def curves_html(path: Path) -> str:
    """Draw the curves of a run, a panel for each metric; nothing without any."""
    import pandas as pd
    from matplotlib.figure import Figure

    if not path.exists():
        return ""
    frame = pd.read_csv(path).groupby("metric").filter(lambda curve: len(curve) > 1)
    curves = list(frame.groupby("metric"))[:CURVES]
    if not curves:
        return ""
    rows = -(-len(curves) // 4)
    figure = Figure(figsize=(12, 0.4 + 2.2 * rows), layout="constrained")
    for i, (name, curve) in enumerate(curves, 1):
        axes = figure.add_subplot(rows, 4, i)
        axes.plot(curve["step"], curve["value"], marker=".", color=COLOURS[0])
        axes.set_title(name, fontsize="small")
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("step", fontsize="medium")
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=150)
    return image_html(picture.getvalue(), "curves by step")


READERS = {"report.json": report_section, "environment.json": run_section}
"""The file that identifies a folder of each kind."""


def report_html(text: str, figures: Mapping[str, bytes]) -> str:
    """Convert report.md to HTML, with its figures embedded."""
    from markdown_it import MarkdownIt
    from markupsafe import escape

    def image(_: Any, tokens: Sequence[Any], at: int, *__: Any) -> str:
        name = str(tokens[at].attrs["src"])
        words = escape(tokens[at].content)
        return image_html(figures[name], words) if name in figures else words

    markdown = MarkdownIt("zero").enable(MARKDOWN)
    markdown.add_render_rule("image", image)
    return str(markdown.render(text))


def image_html(picture: bytes, words: str) -> str:
    """Embed a PNG with escaped words below it."""
    data = b64encode(picture).decode()
    return f'<img src="data:image/png;base64,{data}" alt="{words}"><em>{words}</em>'


def table_html(frame: DataFrame) -> str:
    """Convert a table to escaped HTML, but for cells of markup, without empty columns; an empty one
    to nothing.
    """
    import pandas as pd
    from markupsafe import Markup, escape

    def cell(value: Any) -> str:
        text = value if isinstance(value, Markup) else str(value)
        long = len(text) > LONGEST and text is not value
        return escape(f"{text[:LONGEST]}..." if long else text)

    if frame.empty:
        return ""
    frame = frame.replace("", None).dropna(axis=1, how="all").fillna("")
    frame = frame.rename(columns=escape).map(cell)
    with pd.option_context("display.max_colwidth", None):
        return str(frame.to_html(index=False, border=0, escape=False))


def comparison(sections: Sequence[Section]) -> dict[str, DataFrame]:
    """By kind, return the numbers that at least two folders share: a row for each place and
    measure, a column for each checkpoint of each folder.
    """
    import pandas as pd

    frame = pd.concat([s.numbers.assign(kind=s.kind, label=s.label) for s in sections])
    shared = frame.groupby(["kind", "where", "measure"])["label"].transform("nunique") > 1
    columns = (frame["label"] + ": " + frame["checkpoint"]).str.removesuffix(": ")
    layout = {"values": "value", "index": ["where", "measure"], "columns": "column"}
    return {
        str(kind): part.pivot_table(**layout, aggfunc="first", fill_value="", sort=False)
        .reset_index()
        .rename_axis(columns=None)
        for kind, part in frame.assign(column=columns)[shared].groupby("kind", sort=False)
    }


def page(sections: Sequence[Section]) -> str:
    """Return the page as text; the same folders give the same page."""
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(
        sections=sections,
        compared={kind: table_html(table) for kind, table in comparison(sections).items()},
        most=EXAMPLES,
    )
