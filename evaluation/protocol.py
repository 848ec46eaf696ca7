"""The tables of protocols and of other commands.

A protocol is a typed function that returns an `Evaluation`: its signature declares the flags, its
docstring the help (storage/command_line.py). Its module imports neither torch nor transformers at
its top level, so that `--help` is fast. A command without a report is a row in COMMANDS.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any, NamedTuple

from interventune.evaluation.answering.asking import named_sources
from interventune.evaluation.report import Evaluation, source_record
from interventune.storage.command_line import call, flags, value_of
from interventune.storage.json_files import plain_json

SOURCES = {"SOURCE", "FILE", "CSV"}
NAMED_SOURCES = {"[NAME=]PATH", "[NAME=]FILE", "[NAME=]SOURCE"}
"""Names of values in the help that are sources, whose digests are recorded."""


class Row(NamedTuple):
    """A command's name, its function, and one line of help."""

    name: str
    function: str
    summary: str
    keeps_report: bool = True
    """Whether `--output` is required; otherwise the command may only print a table."""


ROOM = "interventune.evaluation."
P = f"{ROOM}protocols."

PROTOCOLS: tuple[Row, ...] = (
    Row(
        "bias",
        P + "bias.command:evaluate",
        "which of two people a model prefers, by class of advice",
    ),
    Row(
        "faithfulness",
        P + "faithfulness.command:evaluate",
        "whether it answers without the evidence",
    ),
    Row("shift", P + "shift:evaluate", "how far edits of the text, and training, move embeddings"),
    Row(
        "negation", P + "yes_or_no:negation", "whether the answer changes when the story is negated"
    ),
    Row(
        "predicate-argument",
        P + "yes_or_no:predicate_argument",
        "whether it binds colours to objects",
    ),
    Row("sensitivity", P + "sensitivity:evaluate", "how far one word moves when another changes"),
    Row(
        "consistency-write",
        P + "consistency.command:write",
        "write debiased texts for `consistency`",
    ),
    Row(
        "consistency",
        P + "consistency.command:evaluate",
        "whether debiasing does what its specification says",
    ),
    Row(
        "confusion",
        P + "confusion.command:evaluate",
        "prior bias and choice paralysis in multiple choice",
    ),
    Row("bbq", P + "bbq:evaluate", "whom it names when the text does not give the answer (BBQ)"),
    Row(
        "feature-bias",
        P + "feature_bias.command:evaluate",
        "which feature ambiguous examples teach it",
    ),
    Row(
        "ask",
        P + "ask:evaluate",
        "answer one question, with and without advice",
        keeps_report=False,
    ),
)

COMMANDS: tuple[Row, ...] = (
    Row("report", f"{ROOM}page.page:run", "put runs and reports on one HTML page"),
    Row(
        "reproduce",
        f"{ROOM}reproduce.run:run",
        "compute a paper's table and compare it with the paper",
    ),
)


def evaluated(row: Row, values: Mapping[str, Any], **here: Any) -> Evaluation:
    """Run a protocol; the evaluation's `about` has the protocol's name and all flags, as plain
    JSON, with the digests of files that they name.

    Args:
        row: the protocol.
        values: of every flag; others are ignored.
        here: other values for this process, such as its device; not recorded.
    """
    function = resolve_name(row.function)
    about: dict[str, Any] = {"protocol": row.name}
    for flag, *_ in flags(function):
        value, (_, metavar) = values[flag.name], value_of(flag.annotation)
        if value is not None and metavar in NAMED_SOURCES:
            named = named_sources(value, f"--{flag.name}")
            value = {name: source_record(path) for name, path in named.items()}
        elif value is not None and metavar in SOURCES:
            value = (
                [*map(source_record, value)] if isinstance(value, list) else source_record(value)
            )
        about[flag.name] = plain_json(value)
    evaluation: Evaluation = call(function, {**values, **here})
    return replace(evaluation, about={**about, **evaluation.about})
