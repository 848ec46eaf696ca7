"""Group bias of predictions made by anything.

python -m evaluation bias --predictions FILE --output DIR
python -m evaluation bias --predictions before=A.json after=B.json --output DIR
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from evaluation.report import Report, fingerprint


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of this protocol."""
    parser.add_argument(
        "--predictions",
        nargs="+",
        required=True,
        metavar="[NAME=]FILE",
        help="predictions with the subjects' start and end probabilities; several are set side by side",
    )
    parser.add_argument(
        "--format",
        choices=("auto", "unqover", "lei"),
        default="auto",
        help="unqover: source records with start and end filled; lei: SQuAD-style with start-end-score "
        "(default: told from the content)",
    )
    parser.add_argument(
        "--skip-bad", action="store_true", help="leave out inconsistent records and say how many there were"
    )


def run(args: argparse.Namespace) -> Report:
    """Read every prediction file, evaluate it, and set the results side by side."""
    from evaluation.bias_predictions import read_predictions
    from evaluation.bias_report import bias_report
    from evaluation.bias_results import evaluate_bias

    named = named_files(args.predictions)
    evaluations = []
    for name, path in named:
        groups, score_NVS = read_predictions(path, args.format, skip_bad=args.skip_bad)
        evaluations.append(evaluate_bias(name, groups, score_NVS))
    inputs = {name: {"path": str(path), "sha256": fingerprint(path)} for name, path in named}
    return bias_report(evaluations, about={"protocol": "bias", "predictions": inputs, "format": args.format})


def named_files(arguments: Sequence[str]) -> list[tuple[str, Path]]:
    """`NAME=FILE` or `FILE` (named by its stem) to (name, path).

    Raises:
        ValueError: two files under one name.
    """
    named = []
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals or not name or Path(argument).exists():
            name, path = Path(argument).stem, argument
        named.append((name, Path(path)))
    names = [name for name, _ in named]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"--predictions: two files are called {name!r}; write NAME=FILE to tell them apart"
            )
    return named
