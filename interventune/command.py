"""usage: interventune COMMAND ...

Fine-tune question-answering and language models with interventions, and measure the effect.

commands:
{}

interventune COMMAND --help describes a command, interventune --version says which this is.

example:
  interventune train fit -c stories_ibt -c tiny_roberta
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version

from interventune.storage.command_line import did_you_mean

COMMANDS = {
    "train": ("training", "fit a model, or validate, test and predict with one"),
    "sweep": ("training sweep", "train once for each combination of some settings"),
    "select": ("training select", "test the best models of a sweep"),
    "evaluate": ("evaluation", "measure a model: bias, faithfulness, embedding shift, ..."),
    "watch": ("evaluation watch", "evaluate the checkpoints of a run as they appear"),
    "report": ("evaluation report", "put runs and reports on one HTML page"),
    "reproduce": ("evaluation reproduce", "compute a paper's table and compare"),
    "data": ("data_modules", "write data sets: perturbed stories, questions with advice, ..."),
    "export": ("models", "write a checkpoint as a Hugging Face folder"),
}
"""The package that runs each command, with its own name for it, and its line in the help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; a user's mistake prints one line on stderr and returns exit code 2."""
    name, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in ("-h", "--help"):
        lines = [f"  {name:12}{summary}" for name, (_, summary) in COMMANDS.items()]
        print(str(__doc__).format("\n".join(lines)).strip())
        return 0
    if name == "--version":
        print(version("interventune"))
        return 0
    if name not in COMMANDS:
        listed = f"; choose from {', '.join(COMMANDS)} (protocols: interventune evaluate --help)"
        hint = did_you_mean(name, COMMANDS) or listed
        print(f"error: {name}: no such command{hint}", file=sys.stderr)
        return 2
    package, *arguments = [*COMMANDS[name][0].split(), *rest]
    return int(import_module(f"interventune.{package}.__main__").main(arguments or ["--help"]))
