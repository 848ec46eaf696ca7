"""python -m evaluation PROTOCOL ...: run one protocol, write its report, print its first tables.

interventune evaluate bias --predictions FILE --output DIR
interventune report DIR... --output report.html
torchrun --nproc_per_node 2 -m evaluation shift --checkpoint PATH --data SOURCE --output DIR
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from evaluation.protocol import COMMANDS, PROTOCOLS, Row, launched, load_function
from storage.command_line import Parser, add_arguments, call, one_line

LATER_PROCESSES_WAIT_S = 10.0
"""Before another process than the first tells an error: most are everybody's, and torchrun then ends it."""


def build_parser(argv: Sequence[str]) -> Parser:
    """The parser; only the protocol or command that `argv` names is imported and declares its flags."""
    parser = Parser(prog="interventune evaluate", description="Probe a model or its predictions.")
    commands = parser.add_subparsers(dest="protocol", metavar="PROTOCOL", required=True)
    for row in (*PROTOCOLS, *COMMANDS):
        command = commands.add_parser(row.name, help=row.summary, description=row.summary)
        if row.name in argv[:1]:
            add_arguments(command, load_function(row))
        if row in PROTOCOLS:
            command.add_argument(
                "--output", type=Path, required=row.keeps_report, metavar="DIR", help="folder for the report"
            )
            command.add_argument("--overwrite", action="store_true", help="replace the report that DIR holds")
    return parser


def run(row: Row, arguments: argparse.Namespace, argv: Sequence[str]) -> None:
    """One protocol, from checked output folder to written report and printed tables.

    Of several processes the first alone checks, writes and prints.
    """
    from evaluation.report import check_output, write_report
    from evaluation.views import print_table

    rank, size = launched()
    if size > 1 and not row.parallel:
        raise ValueError(f"{row.name} runs in one process; start it with interventune evaluate, not torchrun")
    if row in COMMANDS:
        call(load_function(row), arguments)
        return
    output: Path | None = arguments.output
    if output is not None and rank == 0:
        check_output(output, overwrite=arguments.overwrite)
    if output is not None and getattr(arguments, "work", ...) is None:
        arguments.work = output.absolute().with_name(f"{output.name}.work.jsonl")
        arguments.work.parent.mkdir(parents=True, exist_ok=True)
    evaluation = call(load_function(row), arguments)
    if rank:
        return
    if output is not None:
        command = [part for part in argv if part != "--overwrite"]
        write_report(evaluation, output, command=command, overwrite=arguments.overwrite)
    for table in evaluation.tables()[: evaluation.console]:
        print_table(table)
    if output is not None:
        print(f"report: {output / 'report.md'}")
    if evaluation.headline:
        print(evaluation.headline)


def main(argv: Sequence[str] | None = None) -> int:
    """0 when the report is written, 2 for what the user can mend (told in one line on stderr)."""
    argv = sys.argv[1:] if argv is None else argv
    rank, _ = launched()
    level = logging.ERROR if rank else logging.WARNING  # what concerns the data is told once
    logging.basicConfig(format="%(levelname)s: %(message)s", level=level)
    arguments = build_parser(argv).parse_args(argv)
    row = next(row for row in (*PROTOCOLS, *COMMANDS) if row.name == arguments.protocol)
    try:
        run(row, arguments, argv)
    except (ValueError, OSError) as error:
        if arguments.debug:
            raise
        time.sleep(LATER_PROCESSES_WAIT_S * (rank > 0))
        print(f"error: {one_line(error)}" + (f" (process {rank})" if rank else ""), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        kept = "; the same command goes on from what is finished" if hasattr(arguments, "work") else ""
        print(f"error: interrupted; no report was written{kept}", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
