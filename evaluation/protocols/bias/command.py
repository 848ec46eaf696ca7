"""Group bias of predictions made by anything, or of checkpoints.

python -m evaluation bias --predictions FILE --output DIR
python -m evaluation bias --predictions before=A.json after=B.json --output DIR
python -m evaluation bias --checkpoint before=A.ckpt after=B.ckpt --data dev.json --output DIR
python -m evaluation bias --checkpoint uqa=hf:allenai/unifiedqa-t5-base --data dev.json --output DIR
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from evaluation.answering.answerers import LANGUAGE_MODELS
from evaluation.old_flags import add_answer_arguments
from evaluation.old_report import Report, fingerprint

LANGUAGE_MODEL_NOTE = (
    "Of a language model, S(x) is the geometric mean of the probabilities of the tokens of x, given a prompt "
    "that names both subjects as options in the order of the context (the prompt stands below). Such scores "
    "and the span scores of checkpoints are not on one scale: compare eta and the normalised metrics."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of this protocol."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--checkpoint",
        nargs="+",
        metavar="[NAME=]PATH",
        help="checkpoints to predict with: a .ckpt, a Hugging Face folder, a Hub name, or hf:PATH for a "
        "language model",
    )
    what.add_argument(
        "--predictions",
        nargs="+",
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
    parser.add_argument(
        "--data",
        nargs="+",
        metavar="[NAME=]SOURCE",
        help="with --checkpoint: groups in LEI's or UnQover's format, or stories:SPLIT; each set on its own",
    )
    parser.add_argument(
        "--qa", metavar="SOURCE", help="with --checkpoint: SQuAD-style questions for EM and F1"
    )
    parser.add_argument(
        "--advised-only",
        action="store_true",
        help="do not score the groups without their advice too (class none)",
    )
    parser.add_argument(
        "--planted-seed",
        type=int,
        metavar="N",
        help="correlate gamma with the strengths that lei_planted draws from this seed",
    )
    parser.add_argument(
        "--planted-scope",
        choices=("category", "subject"),
        default="category",
        help="with --planted-seed: model.planted_scope of that run (default: category)",
    )
    add_answer_arguments(parser, prompt="unifiedqa")


def run(args: argparse.Namespace) -> Report:
    """Evaluate every prediction file, or every checkpoint on every data set, side by side."""
    if args.checkpoint:
        return run_checkpoints(args)
    for flag in ("data", "qa", "planted_seed", "advised_only"):
        if getattr(args, flag) not in (None, False):
            raise ValueError(f"--{flag.replace('_', '-')} goes with --checkpoint, not with --predictions")
    from evaluation.protocols.bias.predictions import read_predictions
    from evaluation.protocols.bias.report import bias_report
    from evaluation.protocols.bias.results import evaluate_bias

    named = [(name, Path(path)) for name, path in named_sources(args.predictions, "--predictions")]
    evaluations = []
    for name, path in named:
        groups, score_NVS = read_predictions(path, args.format, skip_bad=args.skip_bad)
        evaluations.append(evaluate_bias(name, groups, score_NVS))
    inputs = {name: {"path": str(path), "sha256": fingerprint(path)} for name, path in named}
    return bias_report(evaluations, about={"protocol": "bias", "predictions": inputs, "format": args.format})


def run_checkpoints(args: argparse.Namespace) -> Report:
    """Predict, then evaluate."""
    from evaluation.answering.prompting import prompt_record
    from evaluation.protocols.bias.checkpoints import evaluate_checkpoints, extra_metrics
    from evaluation.protocols.bias.report import answer_table, bias_report, planted_table

    if not args.data:
        raise ValueError("--checkpoint needs --data: the groups to predict")
    checkpoints = named_sources(args.checkpoint, "--checkpoint")
    data = named_sources(args.data, "--data")
    results = evaluate_checkpoints(checkpoints, data, args)
    about = {
        "protocol": "bias",
        "checkpoints": {name: source_record(path) for name, path in checkpoints},
        "data": {name: source_record(path) for name, path in data},
        "qa": source_record(args.qa) if args.qa else None,
        "precision": args.precision,
        "planted_seed": args.planted_seed,
        **(prompted := prompt_record(dict(checkpoints), args)),
    }
    report = bias_report(results.evaluations, about=about)
    extra = [answer_table(results.answers)] * bool(results.answers)
    extra += [planted_table(results.planted)] * bool(results.planted)
    # The console shows the overview (of one checkpoint on one set: the classes), then the questions.
    shown = report.console
    return replace(
        report,
        metrics={**report.metrics, **dict(extra_metrics(results))},
        notes=(*report.notes, *[LANGUAGE_MODEL_NOTE] * bool(prompted)),
        tables=(*report.tables[:shown], *extra, *report.tables[shown:]),
        console=shown + len(extra),
    )


def source_record(source: str) -> dict[str, str]:
    """A source's name and, for a file, its SHA-256."""
    return {"path": source, "sha256": fingerprint(Path(source)) if Path(source).is_file() else ""}


def named_sources(arguments: Sequence[str], flag: str) -> list[tuple[str, str]]:
    """`NAME=SOURCE` or `SOURCE` (named by its stem) to (name, source).

    Raises:
        ValueError: two sources under one name.
    """
    named = []
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals or not name or Path(argument).exists() or ":" in name:
            name, path = source_name(argument), argument
        named.append((name, path))
    names = [name for name, _ in named]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{flag}: two are called {name!r}; write NAME=PATH to tell them apart")
    return named


def source_name(path: str) -> str:
    """What a source is called that the user did not name: a file's stem, a language model's own name."""
    if not path.startswith(LANGUAGE_MODELS):
        return Path(path).stem
    kind, _, model = path.partition(":")
    return (model.partition("@http")[0] if kind == "openai" else model).rstrip("/").rpartition("/")[2]
