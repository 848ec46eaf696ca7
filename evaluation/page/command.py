"""One HTML page of runs and reports, which needs nothing but itself: to read, to send, to print.

interventune report runs/ot/version_0 after=DIR --output report.html
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from storage.command_line import AtLeast


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
        examples: lines of each report's examples on the page, a question with all its answers each.
        overwrite: replace the page if it exists.

    Raises:
        ValueError: nothing found, a damaged file, a place that cannot be written.
    """
    from evaluation.page.folders import find_results
    from evaluation.page.page import page
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
