"""python -m interventune.evaluation PROTOCOL ...: run one protocol, write its report, print its
first tables.

interventune evaluate bias --predictions FILE --output DIR
interventune report DIR... --output report.html
torchrun --standalone --nproc_per_node 2 -m interventune.evaluation PROTOCOL ... --output DIR
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from interventune.storage.command_line import call, guarded

from .answering.work import current, launched, process_group
from .commands import COMMANDS, build_parser, evaluated
from .report import claimed, write_report
from .shown.views import print_table


def run(name: str, arguments: argparse.Namespace, argv: Sequence[str]) -> None:
    """Run one command. For a protocol: check the output folder, write the report, print its tables;
    of several processes, only the first checks, writes and prints.
    """
    rank, _ = launched()
    if name in COMMANDS:
        call(COMMANDS[name].function, vars(arguments))
        return
    report: Path | None = None if rank else arguments.output
    work = report and Path(f"{report.resolve()}.work.jsonl")
    with claimed(report, overwrite=arguments.overwrite) if report else nullcontext():
        with process_group(arguments.device, work) as device:
            evaluation = evaluated(name, vars(arguments), device=device)
            finished = current.get().work
        if report:
            if reused := len(finished.asked - finished.new):
                note = f"{reused} answers from {work}, of an earlier command"
                print(note, file=sys.stderr)
                evaluation = replace(evaluation, about={**evaluation.about, "reused": note})
            write_report(
                evaluation, report, command=[part for part in argv if part != "--overwrite"]
            )
    if rank:
        return
    for table in [*evaluation.tables()[: evaluation.console], *evaluation.summary]:
        print_table(table)
    if report:
        print(f"report: {report / 'report.md'}")
    if evaluation.headline:
        print(evaluation.headline)


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 after writing the report, 2 after one line on stderr for a mistake that the user can
    fix.
    """
    argv = sys.argv[1:] if argv is None else argv
    rank, _ = launched()
    # Only the first process warns.
    logging.basicConfig(
        format="%(levelname)s: %(message)s", level=logging.ERROR if rank else logging.WARNING
    )
    try:
        if argv[:1] == ["watch"]:
            from .watch import main as watch

            return guarded(lambda: watch(argv[1:]))
        arguments = build_parser(argv).parse_args(argv)
        return guarded(lambda: run(arguments.protocol, arguments, argv), arguments.debug)
    except KeyboardInterrupt:
        if not rank:
            print("error: interrupted; run the same command to resume", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
