"""The tables of protocols and of other commands.

A protocol is a typed function that returns an `Evaluation`: its signature declares the flags, its
docstring the help (storage/command_line.py). Its module imports neither torch nor transformers at
its top level, so that `--help` is fast.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import Any

from interventune.storage.command_line import Input, NamedInput, call, flags, value_of
from interventune.storage.json_files import plain_json

from .answering.asking import named_sources
from .report import Evaluation, source_record


@dataclass(frozen=True)
class Command:
    """A command of this package.

    Args:
        path: its function, as `module:function` in this package.
        summary: one line of help.
        writes_report: whether `--output` is required; otherwise it may only print a table.
    """

    path: str
    summary: str
    writes_report: bool = True

    @property
    def function(self) -> Any:
        """The function; its module is imported now."""
        return resolve_name(f"{__package__}.{self.path}")


PROTOCOLS: dict[str, Command] = {
    "bias": Command(
        "protocols.bias.command:evaluate", "which of two people a model prefers, by class of advice"
    ),
    "faithfulness": Command(
        "protocols.faithfulness.command:evaluate", "whether it answers without the evidence"
    ),
    "shift": Command(
        "protocols.shift:evaluate", "how far edits of the text, and training, move embeddings"
    ),
    "negation": Command(
        "protocols.yes_or_no:negation", "whether the answer changes when the story is negated"
    ),
    "predicate-argument": Command(
        "protocols.yes_or_no:predicate_argument", "whether it binds colours to objects"
    ),
    "sensitivity": Command(
        "protocols.sensitivity:evaluate", "how far one word moves when another changes"
    ),
    "consistency-write": Command(
        "protocols.consistency.command:write", "write debiased texts for `consistency`"
    ),
    "consistency": Command(
        "protocols.consistency.command:evaluate", "whether debiasing does what it specifies"
    ),
    "confusion": Command(
        "protocols.confusion.command:evaluate", "prior bias and choice paralysis in multiple choice"
    ),
    "bbq": Command(
        "protocols.bbq:evaluate", "whom it names when the text does not give the answer (BBQ)"
    ),
    "feature-bias": Command(
        "protocols.feature_bias.command:evaluate", "which feature ambiguous examples teach it"
    ),
    "ask": Command(
        "protocols.single_question:evaluate",
        "answer one question, with and without advice",
        writes_report=False,
    ),
}
COMMANDS: dict[str, Command] = {
    "report": Command("page.page:run", "put runs and reports on one HTML page"),
    "reproduce": Command("reproduce.run:run", "compute a paper's table and compare it"),
}
"""Commands that do not write a report."""


def evaluated(protocol: str, values: Mapping[str, Any], **here: Any) -> Evaluation:
    """Run a protocol; the evaluation's `about` has the protocol's name and all flags, as plain
    JSON, with the digests of files that they name.

    Args:
        protocol: its name.
        values: of every flag; others are ignored.
        here: other values for this process, such as its device; not recorded.
    """
    function = PROTOCOLS[protocol].function
    about: dict[str, Any] = {"protocol": protocol}
    for flag, *_ in flags(function):
        value, (_, name) = values[flag.name], value_of(flag.annotation)
        if value is not None and isinstance(name, NamedInput):
            named = named_sources(value, f"--{flag.name}")
            value = {key: source_record(path) for key, path in named.items()}
        elif value is not None and isinstance(name, Input):
            many = isinstance(value, list)
            value = [*map(source_record, value)] if many else source_record(value)
        about[flag.name] = plain_json(value)
    evaluation: Evaluation = call(function, {**values, **here})
    return replace(evaluation, about={**about, **evaluation.about})
