"""What a protocol is, and the tables of all protocols and of the commands beside them.

A new protocol is a module of this room with two functions, `add_arguments(parser)` and `run(args)`, and one
row in PROTOCOLS. Its top level imports neither torch nor transformers, so that `--help` answers at once;
`run` may. The command line adds `--output` and `--overwrite`, and writes and prints the report.

A command that leaves no report is a row in COMMANDS: the same two functions, but it declares all its flags
and writes what it writes itself. Mistakes are told in the same way.
"""

from __future__ import annotations

import argparse
import importlib
from typing import NamedTuple, Protocol, cast

from evaluation.report import Report


class EvaluationProtocol(Protocol):
    """The interface that every protocol module satisfies."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the protocol's own flags."""

    def run(self, args: argparse.Namespace) -> Report:
        """Evaluate. ValueError (or DataError, OSError) in the user's words for what the user can mend."""


class EvaluationCommand(Protocol):
    """The interface of a module behind a row of COMMANDS."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare all flags but `--traceback`."""

    def run(self, args: argparse.Namespace) -> None:
        """Do it. ValueError (or DataError, OSError) in the user's words for what the user can mend."""


class Row(NamedTuple):
    """A protocol's name on the command line, its module, and one line of help."""

    name: str
    module: str
    summary: str
    keeps_report: bool = True
    """Whether `--output` is required; otherwise the table on the console may be all."""
    parallel: bool = False
    """Whether torchrun may start it in several processes."""


PROTOCOLS: tuple[Row, ...] = (
    Row(
        "bias",
        "evaluation.protocols.bias.command",
        "group bias: gamma, eta, mu per class of advice (UnQover, LEI)",
    ),
    Row(
        "faithfulness",
        "evaluation.protocols.faithfulness.command",
        "F1, EM and unknown after deleting the rationale",
    ),
    Row(
        "shift",
        "evaluation.protocols.shift.command",
        "cosine similarity and CKA: under interventions, by layer, between checkpoints",
        parallel=True,
    ),
    Row(
        "negation",
        "evaluation.protocols.negation",
        "whether answers turn when the story is negated (CondaQA, own pairs)",
    ),
    Row(
        "predicate-argument",
        "evaluation.protocols.predicate_argument.command",
        "yes/no questions on which thing has which colour",
    ),
    Row(
        "consistency",
        "evaluation.protocols.consistency.command",
        "whether debiasing does what its specifications say, and nothing else does",
    ),
    Row(
        "confusion",
        "evaluation.protocols.confusion.command",
        "prior bias and choice paralysis of multiple-choice models (four probes)",
    ),
    Row(
        "feature-bias",
        "evaluation.protocols.feature_bias.command",
        "which of two features is learned, in context or by fine-tuning",
    ),
    Row(
        "ask",
        "evaluation.protocols.ask",
        "one question, answered with and without advice",
        keeps_report=False,
    ),
)


class Command(NamedTuple):
    """A command that is no protocol: its name, its module, and one line of help."""

    name: str
    module: str
    summary: str


COMMANDS: tuple[Command, ...] = (
    Command("report", "evaluation.page.html_report", "one HTML page of runs and reports, side by side"),
    Command("train-scorer", "evaluation.scorers.train", "a scorer of toxicity from labelled texts"),
)


def load_protocol(row: Row) -> EvaluationProtocol:
    """Import the module behind a row."""
    return cast(EvaluationProtocol, importlib.import_module(row.module))


def load_command(command: Command) -> EvaluationCommand:
    """Import the module behind a command."""
    return cast(EvaluationCommand, importlib.import_module(command.module))
