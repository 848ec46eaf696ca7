"""One HTML page of runs and reports, which needs nothing but itself: to read, to send, to print.

python -m evaluation report runs/NAME/0 REPORT_DIR ... --output report.html

Whatever users and models wrote is text on this page, never markup: the template escapes all, notes know
emphasis, code and lists only, and the page forbids itself to load anything and to run any script
but its own.
"""

from __future__ import annotations

import argparse
import shlex
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaluation.page.example_rows import ExampleRows
    from evaluation.page.found_results import Found, FoundRun
    from evaluation.page.html_tables import ShownTable

HOME = Path(__file__).parent
LONG = 240
"""Characters of a cell that are shown at once; the rest is one click away."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of this command."""
    parser.add_argument(
        "results",
        nargs="+",
        metavar="[NAME=]DIR",
        help="folders of runs and reports, or folders above them",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.html", help="the page")
    parser.add_argument("--title", default="Results", help="heading of the page (default: Results)")
    parser.add_argument(
        "--examples",
        type=int,
        default=200,
        metavar="N",
        help="rows of each report's examples.jsonl on the page (default: 200)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace FILE.html if it exists")


def run(args: argparse.Namespace) -> None:
    """Read everything, then write the page whole.

    Raises:
        ValueError: nothing found, a damaged file, a place that cannot be written.
    """
    from evaluation.page.found_results import find_results
    from storage.files import atomic_text

    if args.examples < 0:
        raise ValueError(f"--examples: must be 0 or more, found {args.examples}")
    if args.output.is_dir():
        raise ValueError(f"--output {args.output}: is a folder; name a file such as report.html")
    if args.output.exists() and not args.overwrite:
        raise ValueError(f"--output {args.output}: exists; choose another name or add --overwrite")
    if not args.output.absolute().parent.is_dir():
        raise ValueError(f"--output {args.output}: its folder does not exist; create it first")
    results = find_results(args.results)
    text = page(results, title=args.title, examples=args.examples)
    with atomic_text(args.output) as file:
        file.write(text)
    print(f"{len(results)} runs and reports on one page: {args.output}")


def page(results: Sequence[Found], *, title: str, examples: int = 200) -> str:
    """The page as text; the same folders give the same page."""
    from evaluation.page.found_results import FoundRun
    from evaluation.page.html_tables import compared, settings_table
    from evaluation.page.side_by_side import comparisons, differences

    runs = [found for found in results if isinstance(found, FoundRun)]
    names = [f"s{number}" for number in range(1, len(results) + 1)]
    sections = [section(found, name, examples) for found, name in zip(results, names, strict=True)]
    by_found = {id(shown.found): (shown.id, shown.examples) for shown in sections}
    script = (HOME / "html_report.js").read_text(encoding="utf-8")
    text = _template().render(
        title=title,
        sections=sections,
        comparisons=[compared(found, by_found) for found in comparisons(results)],
        differences=settings_table(runs, differences(runs)),
        curves=curve_pictures(runs),
        undrawn=undrawn(runs),
        script=script,
        script_hash=b64encode(sha256(script.encode()).digest()).decode(),
        long=LONG,
    )
    # Half of a surrogate pair, which JSON can hold and UTF-8 cannot, is shown as JSON's own escape.
    return text.lstrip().encode("utf-8", "backslashreplace").decode("utf-8")


@dataclass(frozen=True)
class Section:
    """A run or a report on the page."""

    id: str
    kind: str
    found: Found
    title: str
    about: ShownTable
    numbers: ShownTable
    examples: ExampleRows
    tables: tuple[ShownTable, ...] = ()
    pictures: tuple[tuple[str, str], ...] = ()
    lost: tuple[str, ...] = ()
    """Figures that report.json names and the folder lacks."""
    example_table: ShownTable | None = None
    config: str = ""


def section(found: Found, name: str, limit: int) -> Section:
    """Everything about one folder."""
    from evaluation.page import html_tables
    from evaluation.page.example_rows import ExampleRows, read_rows
    from evaluation.page.found_results import FoundRun

    if isinstance(found, FoundRun):
        return run_section(found, name, ExampleRows())
    rows = read_rows(found.folder / "examples.jsonl", found.metrics, limit)
    figures = [(figure, found.folder / figure) for figure in found.figures]
    return Section(
        id=name,
        kind=found.protocol,
        found=found,
        title=found.title,
        about=html_tables.pairs_table("Made from", found.about),
        numbers=html_tables.numbers_table(found, name, rows),
        examples=rows,
        tables=tuple(html_tables.protocol_table(table, name, rows) for table in found.tables),
        pictures=tuple((figure, data_uri(path)) for figure, path in figures if path.is_file()),
        lost=tuple(figure for figure, path in figures if not path.is_file()),
        example_table=html_tables.example_table(rows) if rows.rows else None,
    )


def run_section(run: FoundRun, name: str, rows: ExampleRows) -> Section:
    """A run: what it was made with, its last numbers, its whole configuration."""
    from evaluation.page import html_tables

    environment = dict(run.environment)
    if isinstance(environment.get("command"), list):
        environment["command"] = shlex.join(map(str, environment["command"]))
    return Section(
        id=name,
        kind="training",
        found=run,
        title=run.label,
        about=html_tables.pairs_table("Made with", environment),
        numbers=html_tables.numbers_table(run, name, rows),
        examples=rows,
        config=run.config_text,
    )


def data_uri(path: Path) -> str:
    """A picture's bytes as an address."""
    from evaluation.page.found_results import PICTURES

    return inline(path.read_bytes(), PICTURES[path.suffix])


def inline(content: bytes, kind: str) -> str:
    """Bytes as a data URI.

    >>> inline(b"a", "image/png")
    'data:image/png;base64,YQ=='
    """
    return f"data:{kind};base64,{b64encode(content).decode()}"


def curve_pictures(runs: Sequence[FoundRun]) -> list[tuple[str, str]]:
    """(which metrics, picture) of the runs' curves."""
    curves = {run.label: run.curves for run in runs if run.curves}
    if not curves:
        return []
    from evaluation.page.curve_figures import curve_figures

    return [(keys, inline(content, "image/svg+xml")) for keys, content in curve_figures(curves)]


def undrawn(runs: Sequence[FoundRun]) -> list[str]:
    """Metrics with curves that are not drawn, because there are so many."""
    if not runs:
        return []
    from evaluation.page.curve_figures import MOST, curve_keys

    return curve_keys({run.label: run.curves for run in runs})[MOST:]


def markdown(text: str) -> Any:
    """Paragraphs with emphasis, code and lists; links, pictures and markup stay text."""
    from markupsafe import Markup

    return Markup(_renderer().render(text))


@cache
def _template() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(HOME),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["markdown"] = markdown
    return environment.get_template("html_report.html.j2")


@cache
def _renderer() -> Any:
    from markdown_it import MarkdownIt

    return MarkdownIt("zero", {"html": False}).enable(["backticks", "emphasis", "list", "escape"])
