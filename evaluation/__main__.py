"""python -m evaluation PROTOCOL ...: run one protocol, write its report, print its first table.

python -m evaluation bias --predictions FILE --output DIR
python -m evaluation report DIR... --output report.html
torchrun --nproc_per_node 2 -m evaluation shift --checkpoint PATH --data SOURCE --output DIR
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from evaluation.protocol import COMMANDS, PROTOCOLS, Command, Row, load_command, load_protocol
from evaluation.protocols.shift.distributed import launched
from evaluation.report import check_output, write_report
from evaluation.tables import print_table

ALONE = 3.0
"""Seconds that another process than the first waits before it tells its own error."""


def build_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser; only the protocol or command that `argv` names is imported and declares its flags."""
    parser = argparse.ArgumentParser(
        prog="python -m evaluation", description="Probe a model or its predictions."
    )
    commands = parser.add_subparsers(dest="protocol", metavar="PROTOCOL", required=True)
    for row in PROTOCOLS:
        command = commands.add_parser(row.name, help=row.summary, description=row.summary)
        if row.name in argv[:1]:
            load_protocol(row).add_arguments(command)
        command.add_argument(
            "--output", type=Path, required=row.keeps_report, metavar="DIR", help="folder for the report"
        )
        command.add_argument("--overwrite", action="store_true", help="replace the report that DIR holds")
    for other in COMMANDS:
        command = commands.add_parser(other.name, help=other.summary, description=other.summary)
        if other.name in argv[:1]:
            load_command(other).add_arguments(command)
    for command in commands.choices.values():
        command.add_argument("--traceback", action="store_true", help="show where in the code an error arose")
    return parser


def run(row: Row, args: argparse.Namespace) -> None:
    """One protocol, from checked output folder to written report and printed tables.

    Of several processes the first alone checks, writes and prints.
    """
    rank, size = launched()
    if size > 1 and not row.parallel:
        raise ValueError(f"{row.name} runs in one process; start it with python -m evaluation, not torchrun")
    if args.output is not None and rank == 0:
        check_output(args.output, overwrite=args.overwrite)
    report = load_protocol(row).run(args)
    if rank:
        return
    if args.output is not None:
        write_report(report, args.output, overwrite=args.overwrite)
    for table in report.tables[: report.console]:
        print_table(table)
    if args.output is not None:
        print(f"report: {args.output / 'report.md'}")


def run_command(command: Command, args: argparse.Namespace) -> None:
    """A command that writes what it writes by itself."""
    if launched()[1] > 1:
        raise ValueError(
            f"{command.name} runs in one process; start it with python -m evaluation, not torchrun"
        )
    load_command(command).run(args)


def main(argv: Sequence[str] | None = None) -> int:
    """0 when the report is written, 2 for what the user can mend (told in one line on stderr)."""
    argv = sys.argv[1:] if argv is None else argv
    rank, _ = launched()
    level = logging.ERROR if rank else logging.WARNING  # what concerns the data is told once
    logging.basicConfig(format="%(levelname)s: %(message)s", level=level)
    args = build_parser(argv).parse_args(argv)
    try:
        if command := next((row for row in COMMANDS if row.name == args.protocol), None):
            run_command(command, args)
        else:
            run(next(row for row in PROTOCOLS if row.name == args.protocol), args)
    except (ValueError, OSError) as error:
        if args.traceback:
            raise
        # Most mistakes are everybody's: when the first process has told one, torchrun ends the others.
        time.sleep(ALONE * (rank > 0))
        told = (
            f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
        )
        print(f"error: {told}" + (f" (process {rank})" if rank else ""), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        kept = "; the same command goes on from what is finished" if hasattr(args, "work") else ""
        print(f"error: interrupted; no report was written{kept}", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
