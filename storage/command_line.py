"""Commands from typed functions: the signature defines the flags, the docstring the help.

    def length(*, checkpoint: list[Named], limit: Count | None = None) -> None:
        '''How long answers are.   Example: interventune evaluate length   Args: checkpoint: ...'''

    sys.exit(run(length, "interventune evaluate length"))

A keyword-only parameter is a flag, any other a positional argument. `list[...]` takes one or more
values, a `Literal` one of its choices, and a `bool`, which is false by default, no value. The
fields of a dataclass are flags too, in their own group. `Annotated[str, "KEY=VALUE"]` sets the
value's name in the help; `Annotated[int, AtLeast(1)]` limits it. A paragraph "Example: COMMAND" of
the docstring is printed at the end of the help.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from difflib import get_close_matches
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from annotated_types import Ge as AtLeast
from annotated_types import Le as AtMost
from docstring_parser.google import parse as parse_docstring

Command = Callable[..., Any]
Count = Annotated[int, AtLeast(1), AtMost(10**9)]
CountOrZero = Annotated[int, AtLeast(0), AtMost(10**9)]


class Input(str):
    """The name in the help of a value that is read, as a file or another source: reports record it
    with its digest.
    """


class NamedInput(Input):
    """The name in the help of a list of such values, `[NAME=]VALUE`."""


Source = Annotated[str, Input("SOURCE")]
"""A source of questions, groups or choices."""
InputFile = Annotated[str, Input("FILE")]
FilePath = Annotated[Path, "FILE"]
Named = Annotated[str, NamedInput("[NAME=]PATH")]
"""A path with its name in tables and figures."""
NamedFile = Annotated[str, NamedInput("[NAME=]FILE")]


def split_name(argument: str) -> tuple[str, str]:
    """Split `[NAME=]SOURCE` into name and source; the name is empty if absent, also for an existing
    path that contains an equals sign.

    >>> split_name("ot=runs/best.ckpt"), split_name("hub:squad?a=b")
    (('ot', 'runs/best.ckpt'), ('', 'hub:squad?a=b'))
    """
    named = re.fullmatch("([^=:/]+)=(.+)", argument)
    if named and named[1].isprintable() and not os.path.exists(argument):
        return named[1], named[2]
    return "", argument


def flags(
    function: Command, defaults: Any = None, about: str = ""
) -> Iterator[tuple[Parameter, str, str]]:
    """Yield the flags of a function, or of a dataclass with other `defaults` (`X | None` gives X),
    each with its help and its dataclass's description.
    """
    documented = reversed(function.__mro__) if isinstance(function, type) else [function]
    help_of = {
        item.arg_name: " ".join((item.description or "").split())
        for part in documented
        for item in parse_docstring(part.__doc__ or "").params
    }
    for flag, nested in _parameters(function):
        text = help_of.get(flag.name, "")
        flag = flag.replace(default=getattr(defaults, flag.name, flag.default))
        if nested:
            title = text or _about(flag.annotation)
            yield from flags(flag.annotation, flag.default, title.rstrip("."))
        else:
            yield flag.replace(kind=Parameter.KEYWORD_ONLY) if about else flag, text, about


def value_of(kind: Any) -> tuple[Any, str | None]:
    """Return the type of one value of a flag of this type, and its name in the help."""
    kind = get_args(kind)[0] if get_origin(kind) is list else kind
    bare, *marks = get_args(kind) if get_origin(kind) is Annotated else [kind]
    usual = {int: "N", float: "X", Path: "PATH"}.get(bare)
    if get_origin(bare) is Literal:
        usual = "{" + ",".join(get_args(bare)) + "}"
    return kind, next((mark for mark in marks if isinstance(mark, str)), usual)


def call(function: Command, values: Mapping[str, Any]) -> Any:
    """Call `function` with the values of its flags; other values are ignored."""
    arguments = {
        flag.name: call(flag.annotation, values) if nested else values[flag.name]
        for flag, nested in _parameters(function)
    }
    return function(**arguments)


class HelpLayout(argparse.HelpFormatter):
    """Help whose usage line shows required flags only. Paragraphs are filled; examples keep their
    layout.
    """

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
        shown = [action for action in actions if action.required or not action.option_strings]
        if len(shown) + 1 < len(actions):  # more than --help
            self._prog += " [options]"
        super().add_usage(usage, shown, (), prefix)

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        return re.sub(r" \[.* \.\.\.]$", " ...", super()._format_args(action, default_metavar))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        paragraphs = text.split("\n\n")
        return "\n\n".join(x if "\n  " in x else fill(x, width, indent) for x in paragraphs)


class Parser(argparse.ArgumentParser):
    """A parser for the flags of `function`, and `--debug`; a mistake is reported in one line."""

    def __init__(self, function: Command | None = None, **settings: Any) -> None:
        if function:
            about, _, example = _about(function).partition("\n\nExample: ")
            settings |= {"description": about, "epilog": example and f"example:\n  {example}"}
        super().__init__(allow_abbrev=False, formatter_class=HelpLayout, **settings)
        if function:
            groups: dict[str, Any] = {"": self}
            for flag, text, title in flags(function):
                groups[title] = groups.get(title) or self.add_argument_group(title)
                _add_flag(groups[title], flag, text)
            self.add_argument("--debug", action="store_true", help="show the traceback of an error")
        self.set_defaults(parser=self)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse all arguments; the error for one that a subcommand lacks names its flags."""
        known, others = self.parse_known_args(args, namespace)
        if others:
            near = did_you_mean(others[0].partition("=")[0], known.parser._option_string_actions)
            known.parser.error(f"unrecognized arguments: {' '.join(others)}{near}")
        return known

    def error(self, message: str) -> NoReturn:
        if wrong := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message):
            message += did_you_mean(wrong[1], re.findall(r"[\w-]+", wrong[2]))
        self.exit(2, f"error: {message} (see {self.prog} --help)\n")


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return the question whether one of `names` was meant, as the end of an error; "" if none is
    similar.
    """
    near = get_close_matches(name, names, n=3)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _add_flag(parser: Any, flag: Parameter, text: str) -> None:
    kind, metavar = value_of(flag.annotation)
    positional = flag.kind is not Parameter.KEYWORD_ONLY
    required = flag.default is Parameter.empty
    many = get_origin(flag.annotation) is list
    default = None if required else flag.default
    if default:
        text += f" (default: {' '.join(map(str, default)) if many else default})"
    settings: dict[str, Any] = {"default": default, "help": text.replace("%", "%%")}
    if kind is bool:
        settings["action"] = "store_true"
    else:
        few, more = (None, "+") if required or not positional else ("?", "*")
        settings |= {"type": partial(_read, kind), "metavar": metavar}
        settings["nargs"] = more if many else few
    if positional:
        parser.add_argument(flag.name, **settings)
    else:
        parser.add_argument(f"--{flag.name.replace('_', '-')}", required=required, **settings)


def run(function: Command, prog: str, argv: list[str] | None = None) -> int:
    """Parse the arguments and call the function; return the exit code of `guarded`."""
    arguments = Parser(function, prog=prog).parse_args(argv)
    return guarded(lambda: call(function, vars(arguments)), arguments.debug)


def guarded(action: Callable[[], Any], debug: bool = False) -> int:
    """Return the action's exit code (0 for any other result), or 2 after one line on stderr for a
    ValueError or an OSError, which `debug` raises; quietly 141 if nothing reads stdout any more.
    """
    try:
        code = action()
        print(end="", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes it once more at the end
        return 141
    except (ValueError, OSError) as error:
        if debug:
            raise
        reason = str(error)
        if isinstance(error, OSError) and error.filename:
            reason = f"{error.filename}: {error.strerror}"
        print(f"error: {reason}", file=sys.stderr)
        return 2
    return code if isinstance(code, int) else 0


def _about(function: Command) -> str:
    """The docstring without its sections."""
    return (parse_docstring(function.__doc__ or "").description or "").strip()


def _parameters(function: Command) -> Iterator[tuple[Parameter, bool]]:
    """The parameters with their types (X for `X | None`), and whether these are dataclasses."""
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in signature(function).parameters.items():
        kind = hints[name]
        if get_args(kind)[1:] == (NoneType,):
            kind = get_args(kind)[0]
        yield parameter.replace(annotation=kind), is_dataclass(kind)


def _read(kind: Any, text: str) -> Any:
    """The value that a text stands for; NaN compares with nothing, and would silently decide."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind, config={"allow_inf_nan": False}).validate_strings(text)
    except ValidationError as error:
        raise argparse.ArgumentTypeError(f"{error.errors()[0]['msg']}, found {text!r}") from None
