"""Whether the program that a command names understands it; nothing is run."""

from benchmarks.__main__ import compare
from interventune.data_modules.__main__ import build_parser as data_parser
from interventune.evaluation.commands import build_parser
from interventune.evaluation.watch import parsed as watched
from interventune.models.__main__ import export
from interventune.storage.command_line import Parser
from interventune.training.cli import all_steps
from interventune.training.configs import checked_configs
from interventune.training.parser import parsed
from interventune.training.sweep.run import sweep_of
from interventune.training.sweep.select import Options as Select


def understood(command: list[str]) -> None:
    """Module and arguments, as behind `python -m`."""
    match [command[0].removeprefix("interventune."), *command[1:]]:
        case ["training", "sweep", *arguments]:
            sweep_of(arguments)
        case ["training", "select", *arguments]:
            _, others = Parser(Select, prog="select").parse_known_args(arguments)
            assert all(flag.startswith("--") and "=" in flag for flag in others)
        case ["training", *arguments]:
            name, *flags = all_steps(checked_configs(arguments))
            parsed(name, flags)
        case ["evaluation", "watch", *arguments]:
            watched(arguments)
        case [module, *arguments]:
            parsers = {"evaluation": build_parser, "data_modules": data_parser}
            parsers |= {"models": lambda _: Parser(export), "benchmarks": lambda _: Parser(compare)}
            parsers[module](arguments).parse_args(arguments)
