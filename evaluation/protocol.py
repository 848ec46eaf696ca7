"""The table of protocols, and of the commands beside them.

A protocol is a module with one typed function, `evaluate(*, ...) -> Evaluation`: its signature declares the
flags, its docstring the help (`storage.command_line`). A row in PROTOCOLS makes it a command. Its top level
imports neither torch nor transformers, so that `--help` answers at once; `evaluate` may. The command line
adds `--output` and `--overwrite`, records the flags, and writes and prints the report.

A command that leaves no report is a row in COMMANDS: a module with a typed function `run`.
"""

from __future__ import annotations

import importlib
import json
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_args

from storage.command_line import call, parameters

if TYPE_CHECKING:
    from evaluation.report import Evaluation

SOURCES = {"SOURCE", "FILE", "CSV"}
NAMED_SOURCES = {"[NAME=]PATH", "[NAME=]FILE", "[NAME=]SOURCE"}
"""What help calls a value that names a source, whose digest is recorded."""


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
    Row("shift", P + "shift", "cosine similarity and CKA of embeddings"),
    Row("negation", P + "yes_or_no", "whether answers turn when the story is negated", function="negation"),
    Row(
        "predicate-argument",
        P + "yes_or_no",
        "which thing has which colour: yes or no",
        function="predicate_argument",
    ),
    Row("sensitivity", P + "sensitivity", "how far a word moves when another word changes"),
    Row("consistency-write", P + "consistency.command", "texts of debiased models", function="write"),
    Row("consistency", P + "consistency.command", "whether debiasing does what its specifications say"),
    Row("confusion", P + "confusion.command", "prior bias and choice paralysis of multiple-choice models"),
    Row("bbq", P + "bbq", "whom a model names when the text does not tell (BBQ)"),
    Row("feature-bias", P + "feature_bias.command", "which of two features is learned"),
    Row("ask", P + "ask", "one question, answered with and without advice", keeps_report=False),
)

COMMANDS: tuple[Row, ...] = (
    Row("report", "evaluation.page.page", "one HTML page of runs and reports", function="run"),
    Row("reproduce", "evaluation.reproduce.run", "a paper's table, ours next to it", function="run"),
)


def load_function(row: Row) -> Callable[..., Any]:
    """Import the function of a row."""
    function: Callable[..., Any] = getattr(importlib.import_module(row.module), row.function)
    return function


def evaluated(row: Row, flags: Mapping[str, Any], *, device: str | None = None) -> Evaluation:
    """Run a protocol; `about` of its evaluation has the protocol's name and all flags.

    Args:
        row: which one.
        flags: a value for every flag; others are ignored.
        device: the device of this process, in place of the flag's; not recorded.
    """
    function = load_function(row)
    about = {"protocol": row.name, **flags_record(function, flags)}
    arguments = {**flags} if device is None else {**flags, "device": device}
    evaluation: Evaluation = call(function, Namespace(**arguments))
    return replace(evaluation, about={**about, **evaluation.about})


def flags_record(function: Callable[..., Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Every flag of a typed function with its value as plain JSON, and the digests of files that it names."""
    from evaluation.answering.asking import named_sources
    from evaluation.report import source_record

    record: dict[str, Any] = {}
    for parameter, kind in parameters(function):
        if is_dataclass(kind):
            record |= flags_record(cast(type, kind), flags)
            continue
        value = flags[parameter.name]
        marks = {mark for part in (kind, *get_args(kind)) for mark in getattr(part, "__metadata__", ())}
        if value is not None and marks & NAMED_SOURCES:
            named = named_sources(value, f"--{parameter.name}")
            value = {name: source_record(path) for name, path in named.items()}
        elif value is not None and marks & SOURCES:
            value = list(map(source_record, value)) if isinstance(value, list) else source_record(value)
        record[parameter.name] = json.loads(json.dumps(value, default=str))
    return record
