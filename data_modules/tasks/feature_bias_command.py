"""`python -m data_modules feature-bias` and `feature-bias-rows`: tasks from labelled texts, rows to train on.

The library side is feature_bias.py; here are flags and files.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.errors import DataError

if TYPE_CHECKING:
    from data_modules.tasks.feature_bias import FeatureTask
    from data_modules.tasks.predicates import LabelledText
    from data_modules.tasks.wording import Meaning

EXAMPLE = """examples:
  python -m data_modules feature-bias --input reviews.jsonl --feature uppercase --output task.json
  python -m data_modules feature-bias --input mnli.jsonl --label label --positive entailment \\
      --feature overlap --h1-means "the second sentence must be true" "it need not be" --output overlap.json
  python -m data_modules feature-bias --input civil.jsonl --label toxicity --threshold 0.5 \\
      --feature identity --feature-args one=female zero=male --output gender.json
"""
ROWS_EXAMPLE = """example:
  python -m data_modules feature-bias-rows --task task.json --output train.jsonl --dev-output dev.jsonl
  python -m training fit -c configs/experiments/multiple_choice.yaml -c configs/backbones/minilm.yaml \\
      --data.train_choices=[train.jsonl] --data.val_choices.main=dev.jsonl
  python -m evaluation feature-bias --model hf:gpt2 --checkpoint tuned=best.ckpt --task task.json --output DIR
"""
PAIRS = (("premise", "hypothesis"), ("passage", "question"), ("sentence1", "sentence2"))
SINGLE = ("text", "sentence", "comment_text")
_LABELS = {"0": 0, "1": 1, "false": 0, "true": 1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of feature-bias; --output and --overwrite are every command's."""
    from data_modules.tasks.feature_bias import CAP, MAX_DEMOS, MIN_DEMOS
    from data_modules.tasks.predicates import FEATURES

    parser.add_argument(
        "--input",
        required=True,
        metavar="FILE",
        help="JSON Lines with a label and `text`, or `premise` and `hypothesis`, or `passage` and `question`",
    )
    parser.add_argument("--feature", required=True, choices=FEATURES, help="h2, the other feature")
    parser.add_argument(
        "--feature-args", nargs="+", default=[], metavar="KEY=VALUE", help="the feature's options"
    )
    parser.add_argument(
        "--label", default="label", metavar="FIELD", help="field of the label (default: label)"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--positive", nargs="+", metavar="VALUE", help="labels that count as 1; all others are 0"
    )
    how.add_argument("--threshold", type=float, metavar="X", help="labels of at least X count as 1")
    parser.add_argument("--name", help="of the task (default: the stem of --output)")
    parser.add_argument(
        "--h1-means", nargs=2, metavar=("ONE", "ZERO"), help="what the label says, in words, for prompts"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the order of texts (default 0)")
    parser.add_argument("--cap", type=int, default=CAP, help=f"most tests of a cell (default {CAP})")
    parser.add_argument(
        "--max-demos",
        type=int,
        default=MAX_DEMOS,
        help=f"most demonstrations of a cell (default {MAX_DEMOS})",
    )
    parser.add_argument(
        "--min-demos",
        type=int,
        default=MIN_DEMOS,
        help=f"demonstrations that a cell keeps before it gets any test (default {MIN_DEMOS})",
    )


def run(arguments: argparse.Namespace) -> str:
    """Write the task; a line for the user."""
    from data_modules.tasks.feature_bias import build_task, write_task
    from data_modules.tasks.predicates import feature

    for flag in ("cap", "max_demos", "min_demos"):
        if getattr(arguments, flag) < 1:
            raise DataError(f"--{flag.replace('_', '-')}: at least 1, got {getattr(arguments, flag)}")
    chosen = feature(arguments.feature, options_of(arguments.feature_args))
    source = Path(arguments.input)
    rows = list(labelled_texts(source, arguments))
    with open(source, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    task = build_task(
        arguments.name or arguments.output.stem,
        rows,
        chosen,
        seed=arguments.seed,
        cap=arguments.cap,
        max_demos=arguments.max_demos,
        min_demos=arguments.min_demos,
        h1=_h1(arguments.h1_means),
        made_from={"input": str(source), "sha256": digest, "label": arguments.label},
    )
    write_task(arguments.output, task)
    left = f"{task.made_from['on_neither_side']} on neither side, {task.made_from['repeated']} repeated"
    return f"{arguments.output}: {sizes(task)}; left out: {left}"


def _h1(means: list[str] | None) -> Meaning | None:
    from data_modules.tasks.wording import Meaning

    return Meaning("Label:", ("no", "yes"), means[1], means[0]) if means else None


def sizes(task: FeatureTask) -> str:
    """How many texts are where."""
    demos = ", ".join(f"{len(examples)} in {cell}" for cell, examples in task.demos.items())
    tests = ", ".join(f"{len(examples)} in {cell}" for cell, examples in task.tests.items())
    return f"demonstrations {demos}; tests {tests}"


def options_of(arguments: list[str]) -> dict[str, str]:
    """KEY=VALUE arguments as a dict; DataError for anything else."""
    options = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or not key:
            raise DataError(f"--feature-args {argument}: write KEY=VALUE")
        options[key] = value
    return options


def labelled_texts(path: Path, arguments: argparse.Namespace) -> Iterator[LabelledText]:
    """The rows of a JSONL file. DataError names file, line and field."""
    from data_modules.tasks.predicates import LabelledText
    from storage.json_files import json_lines

    for where, row in json_lines(path):
        if not isinstance(row, dict):
            raise DataError(f"{where}: expected an object")
        text, second = _texts(row, where)
        yield LabelledText(where, text, second, _label(row, arguments, where), row)


def _texts(row: Mapping[str, Any], where: str) -> tuple[str, str]:
    pair = next((names for names in PAIRS if all(name in row for name in names)), None)
    single = next((name for name in SINGLE if name in row), None)
    names = pair or ((single,) if single else ())
    if not names:
        known = ", ".join((*(" and ".join(pair) for pair in PAIRS), *SINGLE))
        raise DataError(f"{where}: no text; expected one of {known}")
    texts = [row[name] for name in names]
    for name, text in zip(names, texts, strict=True):
        if not isinstance(text, str) or not text.strip():
            raise DataError(f"{where}: the field {name!r} must be a text, found {text!r}")
    return texts[0], texts[1] if pair else ""


def _label(row: Mapping[str, Any], arguments: argparse.Namespace, where: str) -> int:
    name = arguments.label
    if name not in row:
        raise DataError(f"{where}: the field {name!r} (the label) is missing; name another with --label")
    value = row[name]
    if arguments.positive:
        return int(str(value) in arguments.positive)
    if arguments.threshold is not None:
        try:
            return int(float(value) >= arguments.threshold)
        except (TypeError, ValueError):
            raise DataError(f"{where}: the label must be a number for --threshold, found {value!r}") from None
    label = _LABELS.get(str(value).lower())
    if label is None:
        raise DataError(f"{where}: the label must be 0 or 1, found {value!r}; see --positive and --threshold")
    return label


def add_rows_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of feature-bias-rows."""
    parser.add_argument(
        "--task", required=True, metavar="FILE", help="a task (its file, or stories:NAME) to train on"
    )
    parser.add_argument(
        "--dev-output",
        type=Path,
        metavar="FILE",
        help="also write the tests on which both features agree: for validation, where nothing may "
        "tell which feature is meant",
    )
    parser.add_argument(
        "--test-output",
        type=Path,
        metavar="FILE",
        help="also write the disambiguating tests; accuracy on them, cell by cell, is h1-accuracy",
    )
    parser.add_argument(
        "--agreement-tests",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="also train on this share of the tests on which both features agree (needs --rest; default 0)",
    )
    parser.add_argument(
        "--rest", type=Path, metavar="FILE", help="write the task without what is trained on, to measure with"
    )
    parser.add_argument("--size", type=int, default=0, metavar="N", help="at most N rows (default: all)")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the choice of rows and their order (default 0)"
    )
    parser.add_argument(
        "--words", nargs=2, default=["0", "1"], metavar=("ZERO", "ONE"), help="label words (default: 0 1)"
    )


def _check_rows(arguments: argparse.Namespace) -> None:
    if not 0 <= arguments.agreement_tests <= 1:
        raise DataError(f"--agreement-tests: a share from 0 to 1, got {arguments.agreement_tests}")
    if arguments.agreement_tests and arguments.rest is None:
        raise DataError("--agreement-tests: add --rest FILE, the task to measure with afterwards")
    if arguments.words[0] == arguments.words[1]:
        raise DataError(f"--words: two different words are needed, got {arguments.words[0]!r} twice")
    if arguments.size < 0 or arguments.size == 1:
        raise DataError(f"--size: at least 2, one of each label (or 0 for all), got {arguments.size}")
    others = [path for path in (arguments.dev_output, arguments.test_output, arguments.rest) if path]
    if len({arguments.output, *others}) <= len(others):
        raise DataError("--output, --dev-output, --test-output and --rest: name a file of its own for each")
    for path in others:
        if path.exists() and not arguments.overwrite:
            raise DataError(f"{path}: already exists; choose another name or add --overwrite")


def run_rows(arguments: argparse.Namespace) -> str:
    """Write rows of `choices.ChoiceQuestion`, both labels equally often; a line for the user."""
    from data_modules.choices.rows import write_choices
    from data_modules.tasks.feature_bias import (
        AGREEING,
        DISAMBIGUATING,
        choice_rows,
        read_task,
        training_examples,
        write_task,
    )

    _check_rows(arguments)
    task, words = read_task(arguments.task), (arguments.words[0], arguments.words[1])
    chosen, rest = training_examples(
        task, agreement_tests=arguments.agreement_tests, size=arguments.size, seed=arguments.seed
    )
    told = [f"{arguments.output}: {write_choices(arguments.output, choice_rows(task, chosen, words))} rows"]
    for path, cells in ((arguments.dev_output, AGREEING), (arguments.test_output, DISAMBIGUATING)):
        if path is not None:
            tests = [x for cell in cells for x in rest.tests[cell]]
            told.append(
                f"{path}: {write_choices(path, choice_rows(rest, tests, words))} of {', '.join(cells)}"
            )
    if arguments.rest is not None:
        write_task(arguments.rest, rest)
        told.append(f"{arguments.rest}: {sizes(rest)}")
    return "; ".join(told)
