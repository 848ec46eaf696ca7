"""Which of two features does a model learn from demonstrations that do not tell?

python -m evaluation feature-bias --model gpt2=hf:gpt2 --task boolq_answer_qword.json --output DIR
python -m evaluation feature-bias --model hf:gpt2 --task stories:uppercase stories:overlap --steer h1 \\
    --intervention none instruction explanation --output DIR
python -m evaluation feature-bias --model hf:gpt2 --checkpoint tuned=A.ckpt --task overlap.json --output DIR

In context and fine-tuned side by side. Probes spec C; the tasks: data_modules/tasks/feature_bias.py, the
prompts: prompts.py beside this file.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from evaluation.old_flags import add_prediction_arguments, add_work_argument, work_path
from evaluation.old_report import Report

if TYPE_CHECKING:
    from data_modules.tasks.feature_bias import FeatureTask
    from data_modules.tasks.wording import Hypothesis, Wording

log = logging.getLogger(__name__)

INTERVENTIONS = ("none", "verbalizer", "instruction", "explanation", "disambiguation")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of this protocol."""
    who = parser.add_argument_group("who is asked (one or both)")
    who.add_argument(
        "--model",
        nargs="+",
        default=[],
        metavar="[NAME=]MODEL",
        help="language models that get demonstrations: hf:PATH or openai:MODEL[@URL]",
    )
    who.add_argument(
        "--checkpoint",
        nargs="+",
        default=[],
        metavar="[NAME=]PATH[@TASK]",
        help="classifiers that were fine-tuned on a task's demonstrations (`python -m data_modules "
        "feature-bias-rows`, experiment multiple_choice); with @TASK, the name in its file, measured on that "
        "task only; several of one NAME are seeds of one training",
    )
    parser.add_argument(
        "--task",
        nargs="+",
        required=True,
        metavar="[NAME=]FILE",
        help="tasks in the released schema, as `python -m data_modules feature-bias` makes them, or "
        "stories:NAME; NAME in place of the one in the file",
    )
    parser.add_argument(
        "--intervention",
        nargs="+",
        choices=INTERVENTIONS,
        default=["none"],
        help="what tells the model which feature is meant (default: none)",
    )
    parser.add_argument(
        "--steer",
        nargs="+",
        choices=("h1", "h2"),
        default=["h1", "h2"],
        help="toward which feature interventions steer: the label (h1) or the other (default: each in turn)",
    )
    parser.add_argument(
        "--wording", metavar="FILE", help="keys, label words, instructions, explanations (JSON)"
    )
    parser.add_argument("--shots", type=int, default=16, metavar="N", help="demonstrations (default: 16)")
    parser.add_argument(
        "--seeds", type=int, default=3, metavar="N", help="sets of demonstrations (default: 3)"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="at most N texts of each cell")
    parser.add_argument(
        "--no-agreement", action="store_true", help="leave out the cells on which both features agree"
    )
    parser.add_argument(
        "--parity",
        action="store_true",
        help="as the authors' code: demonstrations from position 0, 10, ... in one fixed order, and label "
        "words among the five most probable tokens only",
    )
    parser.add_argument(
        "--truncate",
        action="store_true",
        help="cut prompts that are too long for a local model at their beginning (default: an error)",
    )
    parser.add_argument(
        "--completions",
        action="store_true",
        help="have an endpoint continue the bare prompt rather than answer a turn of a chat",
    )
    parser.add_argument(
        "--max-new-tokens", type=int, default=32, help="longest explanation (default: 32); labels take one"
    )
    parser.add_argument(
        "--words",
        nargs=2,
        default=["0", "1"],
        metavar=("ZERO", "ONE"),
        help="the label words that checkpoints were trained with (default: 0 1)",
    )
    add_work_argument(parser)
    add_prediction_arguments(parser)


def run(args: argparse.Namespace) -> Report:
    """Ask every model and every checkpoint about the texts of every task."""
    tasks, wordings = checked(args)
    from evaluation.protocols.feature_bias.report import feature_bias_report
    from evaluation.protocols.feature_bias.runs import check_models, few_shots, in_context_rows
    from evaluation.protocols.feature_bias.tuned import tuned_rows
    from storage.finished_work import FinishedWork

    models, checkpoints = named_models(args.model), grouped(args.checkpoint, tasks)
    if both := {name for name, _ in models} & checkpoints.keys():
        raise ValueError(f"--model and --checkpoint: both have one called {min(both)!r}; write NAME=PATH")
    prompts = few_shots(tasks, wordings, args) if models else {}
    if len(models) + len(checkpoints) > 1:
        check_models([spec for _, spec in models], args)
    work = FinishedWork(work_path(args))
    rows: list[dict[str, Any]] = []
    try:
        for name, tuned in checkpoints.items():
            rows += tuned_rows(name, tuned, tasks, work, args)
        asked: dict[str, Any] = {}
        for name, spec in models:
            found, settings = in_context_rows(name, spec, tasks, prompts, work, args)
            rows += found
            asked[name] = {"path": spec, **settings}
    finally:
        work.close()
    about = about_run(args, tasks, wordings, asked, checkpoints)
    return feature_bias_report(rows, [*checkpoints, *(name for name, _ in models)], list(tasks), about)


def checked(
    args: argparse.Namespace,
) -> tuple[dict[str, FeatureTask], dict[str, dict[Hypothesis, Wording]]]:
    """The tasks and their wordings by name; ValueError for flags that do not fit."""
    from data_modules.tasks.feature_bias import read_task
    from data_modules.tasks.wording import chosen_wordings, own_wordings, read_wordings

    if not args.model and not args.checkpoint:
        raise ValueError("give --model, --checkpoint, or both: somebody has to be asked")
    for flag, least in (("shots", 2), ("seeds", 1), ("limit", 1), ("max_new_tokens", 1)):
        value = getattr(args, flag)
        if value is not None and value < least:
            raise ValueError(f"--{flag.replace('_', '-')}: at least {least}, got {value}")
    if args.words[0] == args.words[1]:
        raise ValueError(f"--words: two different words are needed, got {args.words[0]!r} twice")
    if not args.model and args.intervention != ["none"]:
        raise ValueError(
            f"--intervention {' '.join(args.intervention)}: only a --model gets prompts to intervene in"
        )
    given = read_wordings(args.wording) if args.wording else {}
    tasks: dict[str, FeatureTask] = {}
    for argument in args.task:
        name, source = named_task(argument)
        task = read_task(source)
        task = replace(task, name=name or task.name)
        if task.name in tasks:
            raise ValueError(
                f"--task {argument}: a task called {task.name!r} was given already; write NAME={source}"
            )
        tasks[task.name] = task
    warn_of_wording(given, tasks, args)
    wordings = {
        name: chosen_wordings(name, own_wordings(name, task.meanings), given) for name, task in tasks.items()
    }
    return tasks, wordings


def named_task(argument: str) -> tuple[str, str]:
    """(name or "", source) of `[NAME=]FILE`."""
    name, equals, source = argument.partition("=")
    named = equals and name and ":" not in name and not Path(argument).exists()
    return (name, source) if named else ("", argument)


def warn_of_wording(given: Collection[str], tasks: Collection[str], args: argparse.Namespace) -> None:
    """Say which tasks the user's file has no wording of: a misspelt name would pass for ours."""
    if not args.wording or "*" in given:
        return
    if not set(args.intervention) & {"verbalizer", "instruction", "explanation"}:
        log.warning(
            "--wording %s: is not used by --intervention %s", args.wording, " ".join(args.intervention)
        )
    elif missing := [name for name in tasks if name not in given]:
        log.warning(
            "--wording %s: has no task %s, so our own wording is used; it has %s",
            args.wording,
            ", ".join(missing),
            ", ".join(given) or "none",
        )


def named_models(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """(name, model) of --model; ValueError for what is no language model."""
    from evaluation.answering.answerers import LANGUAGE_MODELS
    from evaluation.protocols.bias.command import named_sources

    named = named_sources(arguments, "--model")
    for _, spec in named:
        if not spec.startswith(LANGUAGE_MODELS):
            raise ValueError(
                f"--model {spec}: write hf:PATH or openai:MODEL; a classifier goes to --checkpoint"
            )
    return named


class Tuned(NamedTuple):
    """A checkpoint, and the task that it is measured on; "" for all."""

    path: str
    task: str


def grouped(arguments: Sequence[str], tasks: Collection[str]) -> dict[str, list[Tuned]]:
    """Name to the checkpoints of that name. ValueError for the name of a task that was not given."""
    from evaluation.protocols.bias.command import named_sources

    found: dict[str, list[Tuned]] = {}
    for argument in arguments:
        path, at, task = argument.rpartition("@")
        if not at or task.endswith(".ckpt") or Path(argument).exists():
            path, task = argument, ""
        elif task not in tasks:
            raise ValueError(
                f"--checkpoint {argument}: no task is called {task!r}; given: {', '.join(tasks)}"
            )
        ((name, path),) = named_sources([path], "--checkpoint")
        if not Path(path).exists():
            raise ValueError(f"--checkpoint {path}: no such file")
        found.setdefault(name, []).append(Tuned(path, task))
    return found


def about_run(
    args: argparse.Namespace,
    tasks: dict[str, FeatureTask],
    wordings: dict[str, dict[Hypothesis, Wording]],
    models: dict[str, Any],
    checkpoints: dict[str, list[Tuned]],
) -> dict[str, Any]:
    """Where the numbers come from."""
    from evaluation.protocols.bias.command import source_record
    from evaluation.protocols.feature_bias.prompts import CONTENT_FREE, KEY, ORDER_SEED, PARITY_STEP

    files = dict(zip(tasks, (named_task(argument)[1] for argument in args.task), strict=True))
    steered = [kind for kind in args.intervention if kind not in ("none", "disambiguation")]
    return {
        "protocol": "feature-bias",
        "models": models,
        "checkpoints": {
            name: [{**source_record(path), "task": task or "all"} for path, task in tuned]
            for name, tuned in checkpoints.items()
        },
        "tasks": {
            name: {**source_record(files[name]), "made_from": dict(task.made_from)}
            for name, task in tasks.items()
        },
        "interventions": args.intervention,
        "steer": args.steer,
        "shots": args.shots,
        "demonstration_sets": [
            f"from position {PARITY_STEP * seed}, order of {ORDER_SEED}" if args.parity else f"seed {seed}"
            for seed in range(args.seeds)
        ],
        "parity": args.parity,
        "limit": args.limit,
        "truncate": args.truncate,
        "completions": args.completions,
        "max_new_tokens": args.max_new_tokens,
        "precision": args.precision,
        "words_of_checkpoints": args.words,
        "key": KEY,
        "content_free": CONTENT_FREE,
        "wording_file": source_record(args.wording) if args.wording else None,
        "wordings": {
            name: {h: asdict(wording) for h, wording in sides.items()} for name, sides in wordings.items()
        }
        if steered
        else {},
    }
