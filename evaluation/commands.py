"""The tables of protocols and of other commands (commands.yaml).

A protocol is a typed function that returns an `Evaluation`: its signature declares the flags, its
docstring the help (storage/command_line.py). Its module imports neither torch nor transformers at
its top level, so that `--help` is fast.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from interventune.storage.command_line import Input, NamedInput, Parser, call, flags, value_of
from interventune.storage.documents import own_yaml, plain_json
from interventune.storage.provenance import logged_warnings

from .answering.interface import named_sources
from .answering.sources import by_label, named_models
from .report import Evaluation, source_record
from .shown.views import markdown_text


@dataclass(frozen=True)
class Command:
    """A command of this package.

    Args:
        path: its function, as `module:function` in this package.
        summary: a protocol's line of help; `interventune --help` has those of commands.
        writes_report: whether `--output` is required; otherwise it may only print a table.
    """

    path: str
    summary: str = ""
    writes_report: bool = True

    @property
    def function(self) -> Any:
        """The function; its module is imported now."""
        return resolve_name(f"{__package__}.{self.path}")


TABLES = own_yaml(__file__, dict[str, dict[str, Command]], "commands.yaml")
PROTOCOLS = TABLES["protocols"]
COMMANDS = TABLES["commands"]


ABOUT = (
    "Measure a model or its answers: `interventune evaluate PROTOCOL --help` describes a protocol."
)
EXAMPLE = (
    "example:\n  interventune evaluate shift --checkpoint best.ckpt --data dev.json --output report"
)


def build_parser(argv: Sequence[str]) -> Parser:
    """Build the parser; only the protocol or command named in `argv` is imported and declares its
    flags.
    """
    parser = Parser(prog="interventune evaluate", description=ABOUT, epilog=EXAMPLE)
    commands = parser.add_subparsers(
        title="protocols", dest="protocol", metavar="PROTOCOL", required=True
    )
    for name, row in (PROTOCOLS | COMMANDS).items():
        function = row.function if name in argv[:1] else None
        shown: Any = {"help": row.summary} if row.summary else {"prog": f"interventune {name}"}
        command = commands.add_parser(name, function=function, **shown)
        if name in PROTOCOLS:
            command.add_argument(
                "--output",
                type=Path,
                required=row.writes_report,
                metavar="DIR",
                help="write the report to this folder",
            )
            command.add_argument(
                "--overwrite", action="store_true", help="replace the report in DIR"
            )
    return parser


def evaluated(protocol: str, values: Mapping[str, Any], **here: Any) -> Evaluation:
    """Run a protocol; the evaluation's `about` has the protocol's name and all flags, as plain
    JSON, with the digests of files that they name, and its notes end with all warnings.

    Args:
        protocol: its name.
        values: of every flag; others are ignored.
        here: other values for this process, such as its device; not recorded.
    """
    about = recorded(protocol, values)
    with logged_warnings() as warnings:
        evaluation: Evaluation = call(PROTOCOLS[protocol].function, {**values, **here})
    return replace(
        evaluation,
        about={**about, **evaluation.about},
        notes=[*dict.fromkeys([*evaluation.notes, *map(markdown_text, warnings)])],
    )


def recorded(protocol: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a protocol's name and flags as plain JSON, files with their digests."""
    about: dict[str, Any] = {"protocol": protocol}
    for flag, *_ in flags(PROTOCOLS[protocol].function):
        value = values[flag.name]
        (_, name) = value_of(flag.annotation)
        if value is not None and isinstance(name, NamedInput):
            if flag.name == "checkpoint":
                models = by_label(named_models(value))
                paths = {label: model.path for label, model in models.items()}
            else:
                paths = named_sources(value, f"--{flag.name}")
            value = {key: source_record(path) for key, path in paths.items()}
        elif value is not None and isinstance(name, Input):
            many = isinstance(value, list)
            value = [*map(source_record, value)] if many else source_record(value)
        about[flag.name] = plain_json(value)
    return about
