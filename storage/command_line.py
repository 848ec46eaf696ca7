"""Commands from typed functions: the signature is the schema, the docstring the help.

    def length(*, checkpoint: list[Named], limit: Count | None = None, options: Options = Options()) -> None:
        '''How long answers are.

        Args:
            checkpoint: who is asked.
            limit: use the first N questions only.
            options: how they are asked.
        '''

    sys.exit(run(length, "interventune evaluate length"))

A keyword-only parameter is a flag, any other a positional argument; `list[...]` takes one value or more, a
`Literal` one of its choices, and a `bool` none. The fields of a dataclass are flags too, in a group of their
own. `Annotated[str, "[NAME=]PATH"]` names the value in the help; `Annotated[int, AtLeast(1)]` bounds it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, get_args, get_origin, get_type_hints

from annotated_types import Ge as AtLeast
from docstring_parser.google import parse as parse_docstring

Count = Annotated[int, AtLeast(1)]
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


class Flag(NamedTuple):
    """A parameter of a typed function, or a field of a dataclass that is one."""

    name: str
    kind: Any
    """Its type; X for `X | None`."""
    default: Any
    """`Parameter.empty` where it must be given."""
    help: str
    group: str
    """What its dataclass is about; empty outside one."""
    positional: bool

    @property
    def value(self) -> tuple[Any, str | None]:
        """The type of one value, and what the help calls it."""
        kind = get_args(self.kind)[0] if get_origin(self.kind) is list else self.kind
        bare, *marks = get_args(kind) if get_origin(kind) is Annotated else [kind]
        usual = {int: "N", float: "X", Path: "PATH"}.get(bare)
        if get_origin(bare) is Literal:
            usual = "{" + ",".join(get_args(bare)) + "}"
        return kind, next((mark for mark in marks if isinstance(mark, str)), usual)


def flags(function: Callable[..., Any], defaults: Any = None, group: str = "") -> Iterator[Flag]:
    """All flags of a function, or of a dataclass with other `defaults`."""
    documented = reversed(function.__mro__) if isinstance(function, type) else [function]
    items = [item for one in documented for item in parse_docstring(one.__doc__ or "").params]
    help_of = {item.arg_name: " ".join((item.description or "").split()) for item in items}
    for name, (parameter, kind, nested) in _parameters(function).items():
        default, text = getattr(defaults, name, parameter.default), help_of.get(name, "")
        if nested:
            yield from flags(kind, default, (text or _about(kind)).rstrip("."))
        else:
            positional = not group and parameter.kind is not Parameter.KEYWORD_ONLY
            yield Flag(name, kind, default, text, group, positional)


def call(function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    """Call `function` with the values of its flags; others are ignored."""
    found = _parameters(function).items()
    given = {name: call(kind, values) if nested else values[name] for name, (_, kind, nested) in found}
    return function(**given)


class Parser(argparse.ArgumentParser):
    """A parser of the flags of `function`, and `--debug`; a mistake is told in one line."""

    def __init__(self, function: Callable[..., Any] | None = None, **settings: Any) -> None:
        settings = {"description": function and _about(function)} | settings
        layout = argparse.RawDescriptionHelpFormatter
        super().__init__(allow_abbrev=False, formatter_class=layout, **settings)
        groups: dict[str, Any] = {"": self}
        for flag in flags(function) if function else ():
            groups[flag.group] = groups.get(flag.group) or self.add_argument_group(flag.group)
            _add_flag(groups[flag.group], flag)
        if function:
            self.add_argument("--debug", action="store_true", help="show where in the code an error arose")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} (see {self.prog} --help)\n")


def _add_flag(parser: Any, flag: Flag) -> None:
    (kind, metavar), optional = flag.value, flag.default is not Parameter.empty
    default, text = flag.default if optional else None, flag.help.replace("%", "%%")
    if default not in (None, False, "") and default != []:
        text += f" (default: {' '.join(map(str, default)) if isinstance(default, list) else default})"
    settings: dict[str, Any] = {"default": default, "help": text}
    if kind is bool:
        settings["action"] = argparse.BooleanOptionalAction if default else "store_true"
    else:
        many, one = ("*", "?") if optional and flag.positional else ("+", None)
        nargs = many if get_origin(flag.kind) is list else one
        settings |= {"type": partial(_read, kind), "metavar": metavar, "nargs": nargs}
    if flag.positional:
        parser.add_argument(flag.name, **settings)
    else:
        parser.add_argument(f"--{flag.name.replace('_', '-')}", required=not optional, **settings)


def run(function: Callable[..., Any], prog: str, argv: list[str] | None = None) -> int:
    """Parse and call; returns the exit code of `guarded`."""
    arguments = Parser(function, prog=prog).parse_args(argv)
    return guarded(lambda: call(function, vars(arguments)), arguments.debug)


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


def _about(function: Callable[..., Any]) -> str:
    """The docstring without its sections."""
    return (parse_docstring(function.__doc__ or "").description or "").strip()


def _parameters(function: Callable[..., Any]) -> dict[str, tuple[Parameter, Any, bool]]:
    """The parameters, with their types (X for `X | None`), and whether these are dataclasses."""
    found, hints = {}, get_type_hints(function, include_extras=True)
    for name, parameter in signature(function).parameters.items():
        kinds = [kind for kind in get_args(hints[name]) if kind is not NoneType]
        kind = kinds[0] if NoneType in get_args(hints[name]) else hints[name]
        found[name] = parameter, kind, is_dataclass(kind)
    return found


def _read(kind: Any, text: str) -> Any:
    """The value that a text stands for; NaN compares with nothing, and would silently decide."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind, config={"allow_inf_nan": False}).validate_strings(text)
    except ValidationError as error:
        raise argparse.ArgumentTypeError(f"{error.errors()[0]['msg']}, found {text!r}") from None
