"""What a language model is asked in the feature-bias protocol, and what it says: one row per text.

All that can go wrong is looked for first: pools of demonstrations, wordings, first tokens of label words,
lengths of prompts, and the calibration of every run. Then texts, each answer kept as it comes.

Shape letters: L the two labels.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
from tqdm.auto import tqdm

from data_modules.encoding.tokenizers import load_tokenizer
from data_modules.tasks.feature_bias import AGREEING, CELLS, Cell, FeatureTask, TaskExample
from data_modules.tasks.wording import Hypothesis, Wording
from evaluation.protocols.feature_bias.asker import Asker, Run
from evaluation.protocols.feature_bias.prompts import FewShot, draw_shots, explained_label, style_of
from evaluation.protocols.feature_bias.results import IN_CONTEXT
from metrics.feature_bias import calibrated, predicted
from models.language.open_model import open_text_model
from models.language.text_models import Settings, TextFailure, TextModel
from storage.finished_work import FinishedWork

log = logging.getLogger(__name__)

REQUESTS = 64
"""Texts that an endpoint is asked about between two steps of the progress bar."""
NO_LABEL = "no label in the explanation"


def runs_of(tasks: Mapping[str, FeatureTask], args: argparse.Namespace) -> list[Run]:
    """Every combination that the flags ask for, each once."""
    return [
        Run(task, intervention, steer, seed)
        for task in tasks
        for intervention in dict.fromkeys(args.intervention)
        for steer in (("",) if intervention == "none" else dict.fromkeys(args.steer))
        for seed in range(args.seeds)
    ]


def in_context_rows(
    name: str,
    spec: str,
    tasks: Mapping[str, FeatureTask],
    prompts: Mapping[Run, FewShot],
    work: FinishedWork,
    args: argparse.Namespace,
) -> tuple[list[dict[str, Any]], Settings]:
    """All rows of one language model, and its settings.

    Raises:
        ValueError: see the module.
    """
    model = opened(spec, args)
    asker = Asker(model, work, args)
    texts = {run: chosen_texts(tasks[run.task], few, args) for run, few in prompts.items()}
    for run, few in prompts.items():
        asker.check(run, few, texts[run])
    free = {run: asker.calibration(run, few) for run, few in prompts.items()}
    rows: list[dict[str, Any]] = []
    with tqdm(total=sum(map(len, texts.values())), desc=f"asking {name}", unit="text", disable=None) as bar:
        for run, few in prompts.items():
            rows += run_rows(name, run, few, texts[run], free[run], asker, bar)
    return rows, model.settings


def opened(spec: str, args: argparse.Namespace) -> TextModel:
    """The language model; ValueError where there is none."""
    return open_text_model(
        spec,
        max_new_tokens=args.max_new_tokens,
        device=args.device,
        batch_size=args.batch_size,
        chat_template=False,
        completions=args.completions,
    )


def check_models(specs: Sequence[str], args: argparse.Namespace) -> None:
    """ValueError for a language model that is not there, before another one is asked for hours."""
    for spec in specs:
        if spec.startswith("hf:"):
            load_tokenizer(spec.removeprefix("hf:"))
        else:
            opened(spec, args)


def few_shots(
    tasks: Mapping[str, FeatureTask],
    wordings: Mapping[str, Mapping[Hypothesis, Wording]],
    args: argparse.Namespace,
) -> dict[Run, FewShot]:
    """The prompts of every run, in the order in which they are asked; ValueError as in `few_shot`."""
    return {run: few_shot(tasks[run.task], run, wordings[run.task], args) for run in runs_of(tasks, args)}


def few_shot(
    task: FeatureTask, run: Run, wordings: Mapping[Hypothesis, Wording], args: argparse.Namespace
) -> FewShot:
    """The prompts of a run; ValueError where demonstrations or wording are missing."""
    steer = cast(Hypothesis, run.steer or "h1")
    try:
        style = style_of(run.intervention, wordings, steer)
        shots = draw_shots(
            task,
            shots=args.shots,
            seed=run.seed,
            intervention=run.intervention,
            steer=steer,
            parity=args.parity,
        )
    except ValueError as error:
        raise ValueError(f"{run.told()}: {error}") from None
    if len(shots) < args.shots:
        log.warning("%s: %d demonstrations in place of %d", run.told(), len(shots), args.shots)
    return FewShot(style, shots)


def chosen_texts(task: FeatureTask, few: FewShot, args: argparse.Namespace) -> list[TaskExample]:
    """The texts that are asked about, cell by cell, without those that are demonstrations."""
    cells = [cell for cell in CELLS if not (args.no_agreement and cell in AGREEING)]
    return [x for cell in cells for x in few.tested(task.tests[cell][: args.limit])]


def run_rows(
    name: str,
    run: Run,
    few: FewShot,
    texts: Sequence[TaskExample],
    free_L: np.ndarray,
    asker: Asker,
    bar: Any,
) -> Iterator[dict[str, Any]]:
    """The rows of one set of demonstrations."""
    shown = [shot.example.name for shot in few.shots]
    size = asker.chunk or REQUESTS
    for start in range(0, len(texts), size):
        chunk = texts[start : start + size]
        whole = [few.test(x.question) for x in chunk]
        prompts = asker.fitting(whole, few)
        said = asker.texts(prompts) if few.style.reasons else asker.labels(prompts, few)
        bar.update(len(chunk))
        for x, answer, long, prompt in zip(chunk, said, whole, prompts, strict=True):
            row = text_row(name, IN_CONTEXT, run.task, x, run.seed)
            row |= {"intervention": run.intervention, "steer": run.steer, "demonstrations": shown}
            if asker.args.truncate:
                row["cut"] = prompt != long
            yield row | outcome(answer, free_L, parity=asker.args.parity)


def text_row(name: str, how: str, task: str, x: TaskExample, seed: int) -> dict[str, Any]:
    """What a row says of its text."""
    cell: Cell = x.split
    return {
        "model": name,
        "how": how,
        "task": task,
        "seed": seed,
        "cell": cell,
        "id": x.id,
        "text": x.question,
        "h1": int(cell[0]),
        "h2": int(cell[2]),
    }


def outcome(answer: Any, free_L: np.ndarray, *, parity: bool) -> dict[str, Any]:
    """What the model made of a text: `predicted`, or `failure`."""
    if isinstance(answer, TextFailure):
        return {"failure": answer.reason}
    if isinstance(answer, str):
        label = explained_label(answer)
        if label is None and not parity:
            return {"said": answer, "failure": NO_LABEL}
        return {"said": answer, "predicted": label or 0, "uncalibrated": label or 0}
    probability_1L = np.exp(np.array([answer], dtype=float))
    if not probability_1L.sum():
        # The authors' code goes on with 0 for both, and so predicts 0.
        return {"predicted": 0, "uncalibrated": 0} if parity else {"failure": "neither label word was told"}
    score_1L = calibrated(probability_1L, free_L)
    return {
        "probabilities": probability_1L[0].tolist(),
        "content_free": free_L.tolist(),
        "scores": score_1L[0].tolist(),
        "uncalibrated": int(predicted(probability_1L)[0]),
        "predicted": int(predicted(score_1L)[0]),
    }
