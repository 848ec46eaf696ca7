"""Commands from typed functions: the signature is the schema, the docstring the help.

    def length(*, checkpoint: list[Named], limit: Count | None = None, options: Options = Options()) -> None:
        '''How long answers are.

        Args:
            checkpoint: who is asked.
            limit: use the first N questions only.
            options: how they are asked.
        '''

    arguments = make_parser(length, "interventune evaluate length").parse_args()
    call(length, arguments)

A keyword-only parameter is a flag, any other a positional argument; `list[...]` takes one value or more, a
tuple as many as it has types, a `Literal` one of its choices, and a `bool` none. The fields of a dataclass
are flags too, in a group of their own. `Annotated[str, "[NAME=]PATH"]` names the value in the help;
`Annotated[int, AtLeast(1)]` bounds it.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from inspect import Parameter, signature
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, cast, get_args, get_origin, get_type_hints

from docstring_parser.google import parse as parse_docstring

Named = Annotated[str, "[NAME=]PATH"]
"""A path with the name that tables and figures call it by."""


def split_name(argument: str) -> tuple[str, str]:
    """Name and source of `[NAME=]SOURCE`; the name is empty where there is none, as of a path that exists
    and has an equals sign in it.

    >>> split_name("ot=runs/best.ckpt"), split_name("hub:squad?a=b"), split_name("runs/a=1/best.ckpt")
    (('ot', 'runs/best.ckpt'), ('', 'hub:squad?a=b'), ('', 'runs/a=1/best.ckpt'))
    """
    name, _, source = argument.partition("=")
    named = name.isprintable() and name and source and not {":", "/"} & {*name}
    return (name, source) if named and not os.path.exists(argument) else ("", argument)


class AtLeast(NamedTuple):
    """The smallest value that a number may have."""

    low: float


Count = Annotated[int, AtLeast(1)]
"""A whole number from 1 on."""


class Parser(argparse.ArgumentParser):
    """A parser that tells a mistake in one line."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} (see {self.prog} --help)\n")


def make_parser(function: Callable[..., Any], prog: str) -> Parser:
    """A parser of the arguments of `function`, which may be a dataclass."""
    parser = Parser(prog=prog, description=about(function))
    add_arguments(parser, function)
    return parser


def add_arguments(parser: argparse.ArgumentParser, function: Callable[..., Any]) -> None:
    """Add the parameters of `function` to a parser, and `--debug`."""
    _add(parser, function, {})
    parser.add_argument("--debug", action="store_true", help="show where in the code an error arose")


def call(function: Callable[..., Any], arguments: argparse.Namespace) -> Any:
    """Call `function` with what its parser found."""
    positional, named = [], {}
    for parameter, kind in parameters(function):
        if is_dataclass(kind):
            value = call(cast(type, kind), arguments)
        else:
            value = getattr(arguments, parameter.name)
            value = tuple(value) if get_origin(kind) is tuple and value is not None else value
        if parameter.kind is Parameter.KEYWORD_ONLY or is_dataclass(function):
            named[parameter.name] = value
        else:
            positional.append(value)
    return function(*positional, **named)


def run(function: Callable[..., Any], prog: str, argv: list[str] | None = None) -> int:
    """Parse and call; returns the exit code of `guarded`."""
    arguments = make_parser(function, prog).parse_args(argv)
    return guarded(lambda: call(function, arguments), arguments.debug)


def guarded(action: Callable[[], Any], debug: bool = False) -> int:
    """0, or 2 after one line on stderr for a ValueError or an OSError of `action`; with `debug` these are
    raised."""
    try:
        action()
    except (ValueError, OSError) as error:
        if debug:
            raise
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 2
    return 0


def one_line(error: Exception) -> str:
    """What went wrong, and with which file."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _add(parser: Any, function: Callable[..., Any], defaults: Mapping[str, Any]) -> None:
    help_of = _parameter_help(function)
    for parameter, kind in parameters(function):
        name, default = parameter.name, defaults.get(parameter.name, parameter.default)
        if is_dataclass(kind):
            title = help_of.get(name) or about(cast(type, kind))
            base = (
                {} if default is Parameter.empty else {f.name: getattr(default, f.name) for f in fields(kind)}
            )
            _add(parser.add_argument_group(title.rstrip(".")), cast(type, kind), base)
            continue
        flag = parameter.kind is Parameter.KEYWORD_ONLY or is_dataclass(function)
        settings = _settings(kind, default)
        if flag and default is Parameter.empty:
            settings["required"] = True
        elif not flag and default is not Parameter.empty:
            settings.setdefault("nargs", "?")
        text = help_of.get(name, "")
        if default not in (Parameter.empty, None, False, (), "") and default != []:
            shown = " ".join(map(str, default)) if isinstance(default, list | tuple) else default
            text += f" (default: {shown})"
        name = f"--{name.replace('_', '-')}" if flag else name
        parser.add_argument(name, help=text.replace("%", "%%"), **settings)


def _settings(kind: Any, default: Any) -> dict[str, Any]:
    """What argparse must know of a type."""
    found: dict[str, Any] = {} if default is Parameter.empty else {"default": default}
    if kind is bool:
        return found | {"action": argparse.BooleanOptionalAction if default is True else "store_true"}
    if get_origin(kind) is list:
        found["nargs"] = "+"
        (kind,) = get_args(kind)
    elif get_origin(kind) is tuple:
        found["nargs"] = len(get_args(kind))
        kind = get_args(kind)[0]
    low, metavar = -math.inf, ""
    if get_origin(kind) is Annotated:
        kind, *marks = get_args(kind)
        metavar = next((mark for mark in marks if isinstance(mark, str)), "")
        low = next((mark.low for mark in marks if isinstance(mark, AtLeast)), low)
    if get_origin(kind) is Literal:
        found["choices"] = get_args(kind)
        found["metavar"] = metavar or "{" + ",".join(get_args(kind)) + "}"
    else:
        found["type"] = _number(kind, low) if kind in (int, float) else kind
        metavar = metavar or {int: "N", float: "X", Path: "PATH"}.get(kind, "")
        if metavar:
            found["metavar"] = metavar
    return found


def _number(kind: type[int] | type[float], low: float) -> Callable[[str], int | float]:
    """A number from `low` on; NaN compares with nothing, and would silently decide."""
    word = "whole number" if kind is int else "number"

    def parse(text: str) -> int | float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise argparse.ArgumentTypeError(f"must be a {word}, got {text!r}")
        if value < low:
            raise argparse.ArgumentTypeError(f"must be at least {low:g}, got {value}")
        return value

    return parse


def parameters(function: Callable[..., Any]) -> Iterator[tuple[Parameter, Any]]:
    """The parameters with their types; `X | None` is X."""
    hints = get_type_hints(function, include_extras=True)
    for parameter in signature(function).parameters.values():
        kind = hints[parameter.name]
        alternatives = [one for one in get_args(kind) if one is not NoneType]
        yield parameter, alternatives[0] if NoneType in get_args(kind) and len(alternatives) == 1 else kind


def about(function: Callable[..., Any]) -> str:
    """The docstring without its sections."""
    return (parse_docstring(function.__doc__ or "").description or "").strip()


def _parameter_help(function: Callable[..., Any]) -> dict[str, str]:
    """The section Args of a docstring, by parameter; of a class also those of its bases."""
    found: dict[str, str] = {}
    for documented in reversed(function.__mro__) if isinstance(function, type) else [function]:
        for item in parse_docstring(documented.__doc__ or "").params:
            found[item.arg_name] = " ".join((item.description or "").split())
    return found
