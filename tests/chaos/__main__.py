"""Does everything survive what users and machines do to it? Every attack of tests/chaos and tests/malformed.

python -m tests.chaos [--kills 20] [--sweep-kills 6] [--seed 0] [--only WORDS] [--table docs/reliability.md]

An attack is a test. Its docstring begins with the attack (with the test's parameters in braces) and, after
`Promise:`, says what is to come of it. Tests with the same beginning are one row of the table. Takes about
half an hour. Full and read-only disks need the right to mount one, sweeps on Ray need Ray; without, they are
skipped, and the table says so. Exit code 0 only if every promise holds.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten

import pytest

from tests.malformed.outcome import CODES

HERE = Path(__file__).resolve().parent
ATTACKS = (HERE.parent / "malformed", *(HERE / f"{name}.py" for name in ("disks", "attacks")))
KILLS = tuple(HERE / f"{name}_kills.py" for name in ("training", "sweep"))
REFUSED = "refused in one line, nothing written"
MARKS = "<!-- attacks -->", "<!-- end of attacks -->"
"""Lines of a page; the table stands between them."""


@dataclass
class Row:
    """All tries of one attack."""

    promise: str
    codes: list[int] = field(default_factory=list)
    tries: int = 0
    seconds: float = 0.0
    skipped: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        """The promise, if it holds."""
        if self.failed:
            return f"**FAILS** ({len(self.failed)}): {self.promise}"
        return self.promise if self.codes or not self.skipped else f"skipped: {self.skipped[0]}"


class Attacks:
    """Collects the outcome of each test; `options` is a fixture for tests."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.rows: dict[str, Row] = {}
        self._options = options
        self._row = Row("")

    @pytest.fixture
    def options(self) -> argparse.Namespace:
        """The flags of `python -m tests.chaos`."""
        return self._options

    def pytest_runtest_setup(self, item: pytest.Function) -> None:
        """Find the row."""
        about, _, promise = (item.function.__doc__ or item.originalname).partition("Promise: ")
        values = item.callspec.params if hasattr(item, "callspec") else {}
        attack, promise = (
            " ".join(text.format(**values).split()).rstrip(".") for text in (about.split("\n\n")[0], promise)
        )
        self._row = self.rows.setdefault(attack, Row(promise or REFUSED))
        CODES.clear()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add to the row."""
        self._row.seconds += report.duration
        self._row.codes += CODES
        self._row.tries += max(len(CODES), report.when == "call" and not report.skipped)  # or a Python call
        CODES.clear()
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = shorten(crash.message if crash else str(report.longrepr), 300)
            self._row.failed.append(f"{report.nodeid.rpartition('/')[2]}: {reason}")
        elif report.skipped:
            self._row.skipped.append(str(report.longrepr[2]) if report.longrepr else "")

    def table(self) -> str:
        """Markdown."""
        lines = ["| attack | tries | outcome | worst exit code | seconds |", "|---|--:|---|--:|--:|"]
        for attack, row in self.rows.items():
            worst = max(row.codes, default="")
            lines.append(f"| {attack} | {row.tries} | {row.outcome} | {worst} | {row.seconds:.0f} |")
        failures = [f"- {failure}" for row in self.rows.values() for failure in row.failed]
        return "\n".join([*lines, *[""] * bool(failures), *failures]).replace("Skipped: ", "")


def parser() -> argparse.ArgumentParser:
    """The flags."""
    found = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--kills", type=int, default=20, help="kills of training (default 20; 0: none)")
    found.add_argument("--sweep-kills", type=int, default=6, help="kills in each sweep (default 6; 0: none)")
    found.add_argument("--seed", type=int, default=0, help="of the moments")
    found.add_argument("--only", default="", help="attacks whose test has these words (pytest -k)")
    found.add_argument("--keep", type=Path, help="a folder for all that the runs leave (default: none)")
    found.add_argument("--table", type=Path, help=f"a page: the table is written between its lines {MARKS}")
    return found


def main(argv: list[str] | None = None) -> int:
    """Run all attacks; 0 if every promise holds."""
    arguments = sys.argv[1:] if argv is None else argv
    options = parser().parse_args(arguments)
    os.environ |= {"MALFORMED": "all", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    attacks, start = Attacks(options), time.monotonic()
    kills = [path for path, n in zip(KILLS, (options.kills, options.sweep_kills), strict=True) if n]
    flags = ["-p", "no:cacheprovider", "--tb=short", *(["-k", options.only] if options.only else [])]
    flags += [f"--basetemp={options.keep}"] if options.keep else []
    code = pytest.main([*map(str, (*ATTACKS, *kills)), *flags], plugins=[attacks])
    failed = sum(len(row.failed) for row in attacks.rows.values())
    held = f"{failed} tries FAIL" if failed else "all hold" if code == 0 else f"pytest ended with {int(code)}"
    command = " ".join(["python -m tests.chaos", *arguments])
    tries = sum(row.tries for row in attacks.rows.values())
    about = (
        f"{time.strftime('%Y-%m-%d')}, `{command}`, {os.cpu_count()} cores: "
        f"{len(attacks.rows)} attacks, {tries} tries, {(time.monotonic() - start) / 60:.0f} minutes: {held}."
    )
    print(f"\n{attacks.table()}\n\n{about}")
    if options.table:
        write_table(options.table, f"{about}\n\n{attacks.table()}")
    return int(code)


def write_table(page: Path, text: str) -> None:
    """Put `text` between the marks of a page."""
    begin, end = MARKS
    new, count = re.subn(
        f"{begin}.*{end}", lambda _: f"{begin}\n{text}\n{end}", page.read_text(encoding="utf-8"), flags=re.S
    )
    if count != 1:
        raise ValueError(f"{page}: has no lines {begin} and {end}")
    page.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
