"""Whether the program that a command names understands it; nothing is run."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import compare
from data_modules.__main__ import build_parser as data_parser
from evaluation.__main__ import build_parser
from evaluation.reproduce.tiny_classifier import save_classifier
from models.__main__ import export
from storage.command_line import make_parser
from training.cli import main as train
from training.sweep.run import sweep_of
from training.sweep.select import Options as Select


def understood(command: list[str]) -> None:
    """Module and arguments, as behind `python -m`."""
    module, *arguments = command
    if module == "training" and arguments[0] == "sweep":
        sweep_of(arguments[1:])
    elif module == "training" and arguments[0] == "select":
        _, others = make_parser(Select, "select").parse_known_args(arguments[1:])
        assert all(flag.startswith("--") and "=" in flag for flag in others)
    elif module == "benchmarks":
        make_parser(compare, module).parse_args(arguments)
    elif module == "training":
        with pytest.raises(SystemExit) as stop:
            train([*arguments, "--print_config"])
        assert stop.value.code in (0, None)
    elif module == "evaluation":
        build_parser(arguments).parse_args(arguments)
    elif module == "data_modules":
        data_parser(arguments).parse_args(arguments)
    elif module == "evaluation.reproduce.tiny_classifier":
        make_parser(save_classifier, module).parse_args(arguments)
    else:
        assert module == "models"
        make_parser(export, module).parse_args(arguments)
