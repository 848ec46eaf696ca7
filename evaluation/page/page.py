"""One HTML page of runs and reports, which needs nothing but itself: to read, to send, to print.

python -m evaluation report runs/ot/version_0 after=DIR --output report.html

Whatever the folders hold is text, never markup: the template escapes all, notes know emphasis, code and lists
only, and the page forbids itself to load anything and to run any script but its own.
"""

from __future__ import annotations

import shlex
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from storage.command_line import AtLeast

if TYPE_CHECKING:
    from evaluation.page.cells import ShownTable
    from evaluation.page.examples import ExampleRows
    from evaluation.page.folders import Found, FoundRun

HOME = Path(__file__).parent
LONG = 240
"""Characters of a cell that are shown at once; the rest is one click away."""


def run(
    results: list[Annotated[str, "[NAME=]DIR"]],
    *,
    output: Annotated[Path, "FILE.html"],
    title: str = "Results",
    examples: Annotated[int, AtLeast(0)] = 200,
    overwrite: bool = False,
) -> None:
    """One HTML page of runs and reports, side by side, with the examples behind each number.

    Args:
        results: folders of runs and reports, or folders above them.
        output: the page.
        title: heading of the page.
        examples: rows of each report's examples.jsonl on the page.
        overwrite: replace the page if it exists.

    Raises:
        ValueError: nothing found, a damaged file, a place that cannot be written.
    """
    from evaluation.page.folders import find_results
    from storage.files import atomic_text

    if output.is_dir():
        raise ValueError(f"--output {output}: is a folder; name a file such as report.html")
    if output.exists() and not overwrite:
        raise ValueError(f"--output {output}: exists; choose another name or add --overwrite")
    if not output.absolute().parent.is_dir():
        raise ValueError(f"--output {output}: its folder does not exist; create it first")
    found = find_results(results)
    text = page(found, title=title, examples=examples)
    with atomic_text(output) as file:
        file.write(text)
    print(f"{len(found)} runs and reports on one page: {output}")


@dataclass(frozen=True)
class Section:
    """A run or a report on the page."""

    id: str
    kind: str
    found: Found
    title: str
    numbers: ShownTable
    about: ShownTable
    examples: ExampleRows
    headline: str = ""
    notes: tuple[str, ...] = ()
    tables: tuple[ShownTable, ...] = ()
    pictures: tuple[tuple[str, str], ...] = ()
    lost: tuple[str, ...] = ()
    """Figures that report.json names and the folder lacks."""
    example_table: ShownTable | None = None
    config: str = ""


def page(results: Sequence[Found], *, title: str, examples: int = 200) -> str:
    """The page as text; the same folders give the same page."""
    from evaluation.page.cells import metrics_table, settings_table
    from evaluation.page.curves import MOST, curve_figures, curve_keys
    from evaluation.page.folders import FoundRun

    sections = [section(found, f"s{number}", examples) for number, found in enumerate(results, start=1)]
    runs = [found for found in results if isinstance(found, FoundRun)]
    curves = [(keys, inline(content, "image/svg+xml")) for keys, content in curve_figures(runs)]
    script = (HOME / "page.js").read_text(encoding="utf-8")
    text = _template().render(
        title=title,
        sections=sections,
        comparisons=[*([metrics_table("training", runs)] if len(runs) > 1 else []), *comparisons(sections)],
        differences=settings_table(runs),
        curves=curves,
        undrawn=curve_keys(runs)[MOST:],
        script=script,
        script_hash=b64encode(sha256(script.encode()).digest()).decode(),
        long=LONG,
    )
    # Half of a surrogate pair, which JSON can hold and UTF-8 cannot, is shown as JSON's own escape.
    return text.lstrip().encode("utf-8", "backslashreplace").decode("utf-8")


def comparisons(sections: Sequence[Section]) -> list[ShownTable]:
    """The numbers that several reports of one protocol share, a table for each protocol."""
    from evaluation.page.cells import long_table
    from evaluation.page.folders import FoundReport

    protocols: dict[str, list[tuple[FoundReport, str, ExampleRows]]] = {}
    for shown in sections:
        if isinstance(shown.found, FoundReport):
            protocols.setdefault(shown.kind, []).append((shown.found, shown.id, shown.examples))
    tables = [long_table(kind, sources) for kind, sources in protocols.items() if len(sources) > 1]
    return [table for table in tables if table.rows]


def section(found: Found, name: str, limit: int) -> Section:
    """Everything about one folder."""
    from evaluation.page.cells import example_table, long_table, pairs_table, protocol_table
    from evaluation.page.examples import read_rows
    from evaluation.page.folders import PICTURES, FoundRun

    if isinstance(found, FoundRun):
        return run_section(found, name)
    content = found.content
    rows = read_rows(found.folder / "examples.jsonl", content["by"], limit)
    paths = [found.folder / figure for figure in found.figures]
    return Section(
        id=name,
        kind=found.protocol,
        found=found,
        title=content["title"],
        numbers=long_table("All numbers", [(found, name, rows)]),
        about=pairs_table("Made from", content["about"]),
        examples=rows,
        headline=content["headline"],
        notes=tuple(content["notes"]),
        tables=tuple(protocol_table(table, name, rows) for table in found.tables),
        pictures=tuple((p.name, inline(p.read_bytes(), PICTURES[p.suffix])) for p in paths if p.is_file()),
        lost=tuple(path.name for path in paths if not path.is_file()),
        example_table=example_table(rows) if rows.rows else None,
    )


def run_section(found: FoundRun, name: str) -> Section:
    """A run: what it was made with, its last numbers, its whole configuration."""
    from evaluation.page.cells import metrics_table, pairs_table
    from evaluation.page.examples import ExampleRows

    environment = dict(found.environment)
    if isinstance(environment.get("command"), list):
        environment["command"] = shlex.join(map(str, environment["command"]))
    return Section(
        id=name,
        kind="training",
        found=found,
        title=found.label,
        numbers=metrics_table("All numbers", [found]),
        about=pairs_table("Made with", environment),
        examples=ExampleRows(),
        config=found.config_text,
    )


def inline(content: bytes, kind: str) -> str:
    """Bytes as a data URI.

    >>> inline(b"a", "image/png")
    'data:image/png;base64,YQ=='
    """
    return f"data:{kind};base64,{b64encode(content).decode()}"


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
    return environment.get_template("page.html.j2")


@cache
def _renderer() -> Any:
    from markdown_it import MarkdownIt

    return MarkdownIt("zero", {"html": False}).enable(["backticks", "emphasis", "list", "escape"])
