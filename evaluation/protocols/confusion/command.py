"""What a multiple-choice model believes before it reads the question, and how many choices it can take.

python -m evaluation confusion --checkpoint A.ckpt --input piqa/valid.jsonl --labels piqa/valid-labels.lst \
    --output DIR
python -m evaluation confusion --checkpoint plain=A.ckpt probed=B.ckpt --input rows.jsonl \
    --probes no-question choice-paralysis --choices 5 --sampling random --output DIR
python -m evaluation confusion --checkpoint uqa=hf:allenai/unifiedqa-t5-base \
    --input hub:baber/piqa:validation --sampling random --limit 200 --output DIR

Probes spec B3 to B6. Probes: data_modules/choices/probes.py; readers: data_modules/choices/benchmarks.py.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from evaluation.old_flags import (
    add_checkpoints_argument,
    add_prediction_arguments,
    add_work_argument,
    work_path,
)
from evaluation.old_report import Report

if TYPE_CHECKING:
    from data_modules.schema import ChoiceQuestion
    from evaluation.answering.choice_answerers import ChoiceAnswerer
    from evaluation.protocols.confusion.runs import Condition, Plan
    from storage.finished_work import FinishedWork

# As in data_modules, which a --help need not import.
PROBES = ("no-question", "wrong-question", "no-right-answer", "choice-paralysis")
SAMPLING = ("random", "heuristic")
BENCHMARKS = ("auto", "piqa", "anli", "socialiqa", "hellaswag", "rows")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of this protocol."""
    add_checkpoints_argument(parser, "a .ckpt of the experiment multiple_choice")
    parser.add_argument(
        "--input",
        required=True,
        metavar="SOURCE",
        help="questions: a file of a benchmark or of rows (as PATH+LABELS too), hub:NAME:SPLIT, "
        "stories:choices_dev",
    )
    parser.add_argument("--labels", metavar="FILE", default="", help="its labels, where they stand in a file")
    parser.add_argument(
        "--benchmark",
        choices=BENCHMARKS,
        default="auto",
        help="demand this format (default: told from the fields)",
    )
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="the first N questions only")
    parser.add_argument("--probes", nargs="+", choices=PROBES, default=list(PROBES), help="(default: all)")
    parser.add_argument(
        "--no-shared-words",
        action="store_true",
        help="wrong questions have no word in common with the right one",
    )
    parser.add_argument("--trials", type=int, default=5, help="of each probe with random texts (default: 5)")
    parser.add_argument("--seed", type=int, default=0, help="of the first trial (default: 0)")
    paralysis = parser.add_argument_group("choice paralysis")
    paralysis.add_argument(
        "--choices", type=int, nargs="+", default=[5, 10, 15], metavar="N", help="(default: 5 10 15)"
    )
    paralysis.add_argument(
        "--sampling",
        nargs="+",
        choices=SAMPLING,
        default=list(SAMPLING),
        help="where wrong choices come from: any other questions, or the most similar ones (default: both)",
    )
    paralysis.add_argument(
        "--similar-by",
        choices=("prompts", "choices"),
        default="prompts",
        help="heuristic: whose similarity to the prompt counts (default: prompts)",
    )
    paralysis.add_argument(
        "--encoder",
        metavar="PATH",
        help="heuristic: whose sentence embeddings: a .ckpt of multiple_choice, a Hugging Face folder or a "
        "Hub name (default: those of the model that is probed)",
    )
    paralysis.add_argument(
        "--instances", type=int, default=50, metavar="N", help="questions drawn in each trial (default: 50)"
    )
    prompted = parser.add_argument_group("language models (hf:PATH)")
    prompted.add_argument(
        "--prompt",
        choices=("auto", "plain", "unifiedqa"),
        default="auto",
        help="unifiedqa lists the choices as UnifiedQA was trained (default: auto, which is unifiedqa for "
        "sequence-to-sequence models)",
    )
    prompted.add_argument(
        "--likelihood",
        choices=("mean", "sum"),
        default="mean",
        help="of the log-probabilities of a choice's tokens (default: mean)",
    )
    add_prediction_arguments(parser)
    add_work_argument(parser)


def run(args: argparse.Namespace) -> Report:
    """Probe every model with the same questions."""
    from data_modules.choices.benchmarks import read_multiple_choice
    from evaluation.answering.choice_answerers import open_choice_answerer
    from evaluation.protocols.bias.command import named_sources, source_record
    from evaluation.protocols.confusion.report import confusion_report
    from evaluation.protocols.confusion.results import confusion_result
    from evaluation.protocols.confusion.runs import check_questions, fixed_conditions, run_model
    from storage.errors import DataError
    from storage.finished_work import FinishedWork

    plan = plan_of(args)
    named = named_sources(args.checkpoint, "--checkpoint")
    examples = read_multiple_choice(args.input, labels=args.labels, benchmark=args.benchmark)
    examples = examples[: args.limit or None]
    check_questions(examples, args.input)
    try:
        fixed = fixed_conditions(examples, plan)
    except DataError as error:
        raise DataError(f"{args.input}: {error}") from None
    check_models(named, args, plan)
    work = FinishedWork(work_path(args))
    runs, identities = [], {}
    try:
        shared = encoder_conditions(examples, args, plan, work)
        for name, path in named:
            answerer = open_choice_answerer(path, args)
            own = (
                own_conditions(examples, plan, answerer, work) if plan.heuristic and not args.encoder else []
            )
            runs.append(run_model(name, answerer, examples, [*fixed, *shared, *own], work))
            identities[name] = answerer.identity
            del answerer  # before the next one needs its memory
    finally:
        work.close()
    about = {
        "protocol": "confusion",
        "checkpoints": {name: {**source_record(path), "model": identities[name]} for name, path in named},
        "input": args.input,
        "sources": [source_record(path) for path in input_files(args)],
        "benchmark": examples[0].benchmark or "rows",
        "limit": args.limit,
        "n": len(examples),
        **asdict(plan),
        "encoder": source_record(args.encoder) if args.encoder else None,
    }
    results = [confusion_result(examples, plan, one) for one in runs]
    return confusion_report(examples, plan, runs, results, about)


def plan_of(args: argparse.Namespace) -> Plan:
    """The flags as a plan.

    Raises:
        ValueError: a number that makes no sense.
    """
    from data_modules.choices.probes import Probe, Sampling
    from evaluation.protocols.confusion.runs import Plan

    for flag, least in (("trials", 1), ("instances", 2), ("limit", 0), ("seed", 0)):
        if (value := getattr(args, flag)) < least:
            raise ValueError(f"--{flag}: at least {least}, got {value}")
    if min(args.choices) < 2:
        raise ValueError(f"--choices: at least 2, got {min(args.choices)}")
    asked = {name.replace("-", "_") for name in args.probes}
    if args.no_shared_words and "wrong_question" not in asked:
        raise ValueError("--no-shared-words goes with --probes wrong-question")
    return Plan(
        probes=tuple(probe for probe in get_args(Probe) if probe in asked),
        trials=args.trials,
        seed=args.seed,
        no_shared_words=args.no_shared_words,
        choices=tuple(sorted(set(args.choices))),
        sampling=tuple(kind for kind in get_args(Sampling) if kind in args.sampling),
        similar_by=args.similar_by,
        instances=args.instances,
    )


def check_models(named: list[tuple[str, str]], args: argparse.Namespace, plan: Plan) -> None:
    """Before any work: an endpoint, a checkpoint that cannot be used, similarities that no model gives."""
    from evaluation.answering.answerers import LANGUAGE_MODELS
    from evaluation.answering.choice_answerers import check_letters, refuse_endpoint, wording_of
    from models.checkpoint import inspect
    from models.heads.choice import ChoiceModel
    from models.language.local_model import model_config

    for path in [path for _, path in named] + ([args.encoder] if args.encoder else []):
        refuse_endpoint(path)
        if path.startswith(LANGUAGE_MODELS):
            if plan.heuristic and not args.encoder:
                raise ValueError(
                    f"{path}: heuristic sampling needs sentence embeddings, which a language model does not "
                    "give; name an --encoder, or ask for --sampling random"
                )
            config = model_config(path.removeprefix("hf:"))
            if "choice_paralysis" in plan.probes:
                wording = wording_of(args.prompt, bool(getattr(config, "is_encoder_decoder", False)))
                check_letters(max(plan.choices), wording, f"--choices, with {path}")
        else:
            inspect(path).require_kind(ChoiceModel)


def encoder_conditions(
    examples: list[ChoiceQuestion], args: argparse.Namespace, plan: Plan, work: FinishedWork
) -> list[Condition]:
    """Heuristic choice paralysis by the encoder that is named: the same for all models."""
    from evaluation.answering.choice_answerers import CheckpointChooser
    from evaluation.answering.choice_predictor import ChoicePredictor

    if not (plan.heuristic and args.encoder):
        return []
    return own_conditions(examples, plan, CheckpointChooser(ChoicePredictor.of(args.encoder, args)), work)


def own_conditions(
    examples: list[ChoiceQuestion], plan: Plan, answerer: ChoiceAnswerer, work: FinishedWork
) -> list[Condition]:
    """Heuristic choice paralysis by the embeddings of a model."""
    from evaluation.answering.choice_answerers import CheckpointChooser
    from evaluation.protocols.confusion.runs import heuristic_paralysis

    assert isinstance(answerer, CheckpointChooser)  # by check_models
    return heuristic_paralysis(examples, plan, answerer.identity, answerer.embeddings, work)


def input_files(args: argparse.Namespace) -> list[str]:
    """The local files that questions and labels come from."""
    from data_modules.choices.benchmarks import split_source

    return [name for name in (*split_source(args.input), args.labels) if name and Path(name).is_file()]
