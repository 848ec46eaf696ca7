"""interventune COMMAND ...: everything that the project does, under one name.

    interventune train fit -c lei_few_shot -c roberta_base --data.train_groups=[train.json]
    interventune evaluate bias --checkpoint ot=best.ckpt --data dev.json --output reports/bias

Each command is the main function of a room, which `python -m ROOM` runs too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

COMMANDS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "train": ("training.__main__", (), "fit, validate, test, predict: one run of a model"),
    "sweep": ("training.__main__", ("sweep",), "many runs over the values that a file names"),
    "select": ("training.__main__", ("select",), "the best runs of a sweep, tested"),
    "evaluate": ("evaluation.__main__", (), "probe a checkpoint: bias, faithfulness, shift, ..."),
    "report": ("evaluation.__main__", ("report",), "one HTML page of runs and reports"),
    "reproduce": ("evaluation.__main__", ("reproduce",), "a table or figure of a paper, compared with ours"),
    "data": ("data_modules.__main__", (), "write data sets, perturbed stories, advised questions"),
    "export": ("models.__main__", (), "a checkpoint as a Hugging Face folder"),
}
"""The module of each command, the arguments that come first there, and its line in the help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; a user's mistake is one line on stderr and exit code 2."""
    name, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in ("-h", "--help"):
        lines = [f"  {name:12}{summary}" for name, (_, _, summary) in COMMANDS.items()]
        print("interventune COMMAND ...", "", *lines, "", "Each command has its own --help.", sep="\n")
        return 0
    if name not in COMMANDS:
        near = get_close_matches(name, COMMANDS, n=1) or COMMANDS
        print(f"error: {name}: no such command; did you mean {' or '.join(near)}?", file=sys.stderr)
        return 2
    module, first, _ = COMMANDS[name]
    if not rest and not first:
        rest = ["--help"]
    code: int = import_module(module).main([*first, *rest])
    return code
