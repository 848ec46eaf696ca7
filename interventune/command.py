"""interventune COMMAND ...: everything that the project does, under one name.

    interventune train fit -c lei_few_shot -c roberta_base --data.train_groups=[train.json]
    interventune evaluate bias --checkpoint ot=best.ckpt --data dev.json --output reports/bias
    eval "$(interventune completion bash)"

Each command is the main function of a room, which `python -m ROOM` runs too.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple


class Command(NamedTuple):
    """A command's room, what stands before the user's arguments there, and its line in the help."""

    module: str
    before: tuple[str, ...]
    summary: str


COMMANDS = {
    "train": Command("training.__main__", (), "fit, plan, validate, test, predict: one run of a model"),
    "sweep": Command("training.__main__", ("sweep",), "many runs over the values that a file names"),
    "select": Command("training.__main__", ("select",), "the best runs of a sweep, tested"),
    "evaluate": Command("evaluation.__main__", (), "probe a checkpoint: bias, faithfulness, shift, ..."),
    "report": Command("evaluation.__main__", ("report",), "one HTML page of runs and reports"),
    "reproduce": Command("evaluation.__main__", ("reproduce",), "a paper's table: ours beside theirs"),
    "data": Command("data_modules.__main__", (), "write data sets, perturbed stories, advised questions"),
    "export": Command("models.__main__", ("export",), "a checkpoint as a Hugging Face folder"),
    "demo": Command("training.__main__", ("demo",), "both halves of the project in minutes, no download"),
    "completion": Command("interventune.completion", (), "completion of these commands for a shell"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; a user's mistake is one line on stderr and exit code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name, rest = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    if name in ("-h", "--help"):
        print(overview())
        return 0
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(COMMANDS)}"
        print(f"error: {name}: no such command; {hint}", file=sys.stderr)
        return 2
    command = COMMANDS[name]
    # What is below a command is listed where nothing follows it.
    rest = rest or ([] if command.before or name == "completion" else ["--help"])
    code: int = import_module(command.module).main([*command.before, *rest])
    return code


def overview() -> str:
    """The help: a line for every command."""
    lines = [f"  {name:12}{command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(["interventune COMMAND ...", "", *lines, "", "Each command has its own --help."])
