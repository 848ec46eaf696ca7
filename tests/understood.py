"""Whether the program that a command names understands it; nothing is run."""

from benchmarks.__main__ import compare
from interventune.data_modules.__main__ import build_parser as data_parser
from interventune.evaluation.__main__ import build_parser
from interventune.models.__main__ import export
from interventune.storage.command_line import Parser
from interventune.training.cli import all_steps
from interventune.training.configs import checked_configs
from interventune.training.parser import parsed
from interventune.training.sweep.run import sweep_of
from interventune.training.sweep.select import Options as Select


def understood(command: list[str]) -> None:
    """Module and arguments, as behind `python -m`."""
    module, *arguments = command[0].removeprefix("interventune."), *command[1:]
    if module == "training" and arguments[0] == "sweep":
        sweep_of(arguments[1:])
    elif module == "training" and arguments[0] == "select":
        _, others = Parser(Select, prog="select").parse_known_args(arguments[1:])
        assert all(flag.startswith("--") and "=" in flag for flag in others)
    elif module == "benchmarks":
        Parser(compare, prog=module).parse_args(arguments)
    elif module == "training":
        name, *flags = all_steps(checked_configs(arguments))
        parsed(name, flags)
    elif module == "evaluation":
        build_parser(arguments).parse_args(arguments)
    elif module == "data_modules":
        data_parser(arguments).parse_args(arguments)
    else:
        assert module == "models"
        Parser(export, prog=module).parse_args(arguments)
