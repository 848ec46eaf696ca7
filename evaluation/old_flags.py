"""Flags that protocols share. No heavy imports: `--help` must answer at once."""

from __future__ import annotations

import argparse
import math
from pathlib import Path


def add_checkpoints_argument(
    parser: argparse.ArgumentParser, what: str = "a .ckpt, a Hugging Face folder or a Hub name"
) -> None:
    """`--checkpoint [NAME=]PATH...`: who is asked, side by side; `what` says what a path may be."""
    parser.add_argument(
        "--checkpoint",
        nargs="+",
        required=True,
        metavar="[NAME=]PATH",
        help=f"{what}, or a language model (hf:PATH, openai:MODEL[@URL])",
    )


def add_prediction_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that every protocol with a checkpoint has."""
    parser.add_argument(
        "--device", default="auto", help="cpu, cuda, cuda:1, ... (default: cuda if there is one)"
    )
    parser.add_argument("--precision", choices=("32", "bf16"), default="32", help="of the forward pass")
    parser.add_argument(
        "--batch-size",
        type=int,
        default=64,
        help="rows in a batch; of groups, as many more as are short (default: 64)",
    )


def add_answer_arguments(parser: argparse.ArgumentParser, *, prompt: str = "plain") -> None:
    """The flags of protocols that read answers: thresholds of checkpoints, limits of language models.

    Args:
        parser: gets the flags.
        prompt: the default of `--prompt`.
    """
    add_prediction_arguments(parser)
    group = parser.add_argument_group("answers of checkpoints")
    group.add_argument(
        "--unknown-threshold",
        type=finite,
        default=0.0,
        metavar="X",
        help="rationale heads: unknown must score higher than all else by more than this (default: 0)",
    )
    group.add_argument(
        "--type-threshold",
        type=finite,
        default=0.1,
        metavar="P",
        help="XLNet's heads: the most probable type is the answer from this probability on (default: 0.1)",
    )
    prompted = parser.add_argument_group("language models (hf:PATH, openai:MODEL[@URL])")
    prompted.add_argument(
        "--requests",
        metavar="FILE",
        help="keep their answers here; the same command then goes on from them (with --overwrite, if it "
        "wrote a report)",
    )
    prompted.add_argument(
        "--max-requests", type=int, metavar="N", help="ask each model at most N new questions in this run"
    )
    prompted.add_argument("--max-new-tokens", type=int, default=32, help="longest answer (default: 32)")
    prompted.add_argument(
        "--prompt",
        choices=("plain", "unifiedqa"),
        default=prompt,
        help=f"how questions are put: in plain words, or as UnifiedQA was trained (default: {prompt})",
    )


def add_work_argument(parser: argparse.ArgumentParser) -> None:
    """`--work FILE`: where a long protocol keeps finished pieces (`storage.finished_work`)."""
    parser.add_argument(
        "--work",
        metavar="FILE",
        help="keep finished pieces of work here, so that the same command goes on after an interruption and "
        "repeats nothing (default: beside the report, OUTPUT.work.jsonl)",
    )


def work_path(args: argparse.Namespace) -> Path:
    """The file of `--work`, by default beside `--output`; its folder is made."""
    output: Path = args.output.absolute()
    path = Path(args.work) if args.work else output.with_name(f"{output.name}.work.jsonl")
    if not args.work:
        path.parent.mkdir(parents=True, exist_ok=True)
    return path


def finite(text: str) -> float:
    """A number for argparse; NaN compares with nothing, and would silently decide every answer."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a number, found {text!r}")
    return value
