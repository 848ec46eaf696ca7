"""The table of protocols, and of the commands beside them.

A protocol is a module with one typed function, `evaluate(*, ...) -> Evaluation`: its signature declares the
flags, its docstring the help (`storage.command_line`). A row in PROTOCOLS makes it a command. Its top level
imports neither torch nor transformers, so that `--help` answers at once; `evaluate` may. The command line
adds `--output` and `--overwrite`, and writes and prints the report. A parameter `work: Path | None` is the
file of finished pieces of a long protocol: beside the report unless given.

A command that leaves no report is a row in COMMANDS: a module with a typed function `run`.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any, NamedTuple


class Row(NamedTuple):
    """A protocol's name on the command line, its module, and one line of help."""

    name: str
    module: str
    summary: str
    keeps_report: bool = True
    """Whether `--output` is required; otherwise the table on the console may be all."""
    function: str = "evaluate"


P = "evaluation.protocols."

PROTOCOLS: tuple[Row, ...] = (
    Row("bias", P + "bias.command", "group bias: gamma, eta, mu per class of advice (UnQover, LEI)"),
    Row("faithfulness", P + "faithfulness", "F1, EM and unknown after deleting the rationale"),
    Row("shift", P + "shift.command", "cosine similarity and CKA of embeddings"),
    Row("negation", P + "negation", "whether answers turn when the story is negated"),
    Row("predicate-argument", P + "predicate_argument", "which thing has which colour: yes or no"),
    Row("sensitivity", P + "sensitivity.command", "how far a word moves when another word changes"),
    Row("consistency", P + "consistency.command", "whether debiasing does what its specifications say"),
    Row("confusion", P + "confusion.command", "prior bias and choice paralysis of multiple-choice models"),
    Row("bbq", P + "bbq", "whom a model names when the text does not tell (BBQ)"),
    Row("feature-bias", P + "feature_bias.command", "which of two features is learned"),
    Row("ask", P + "ask", "one question, answered with and without advice", keeps_report=False),
)

COMMANDS: tuple[Row, ...] = (
    Row(
        "confusion-questions",
        P + "confusion.command",
        "what confusion asks, as rows to score elsewhere",
        function="write_questions",
    ),
    Row(
        "feature-bias-prompts",
        P + "feature_bias.command",
        "what feature-bias asks, as rows to answer elsewhere",
        function="write_prompts",
    ),
    Row("report", "evaluation.page.command", "one HTML page of runs and reports", function="run"),
    Row(
        "reproduce",
        "evaluation.reproduce.command",
        "a paper's table, ours beside theirs",
        function="run",
    ),
    Row(
        "train-scorer", "evaluation.scorers.train", "a scorer of toxicity from labelled texts", function="run"
    ),
)


def launched() -> tuple[int, int]:
    """Rank and number of processes, as torchrun tells them; (0, 1) without it."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def load_function(row: Row) -> Callable[..., Any]:
    """Import the function behind a row."""
    function: Callable[..., Any] = getattr(importlib.import_module(row.module), row.function)
    return function
