"""Who is asked in the feature-bias protocol, and a row for each answer: language models and fine-tuned
classifiers.

All that can go wrong is looked for first: pools of demonstrations, wordings, first tokens of label words,
lengths of prompts, and the calibration of every run. Then texts, each answer kept as it comes.

Shape letters: L the two labels.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import softmax
from tqdm.auto import tqdm

from data_modules.tasks.feature_bias import AGREEING, CELLS, FeatureTask, TaskExample, choice_rows
from data_modules.tasks.wording import Hypothesis, Wording
from evaluation.answering.interface import Answerer
from evaluation.protocols.feature_bias.prompts import (
    FewShot,
    Prompting,
    Run,
    draw_shots,
    explained_label,
    fill,
    style_of,
)
from metrics.feature_bias import calibrated, content_free, predicted
from models.language.next_token import first_tokens, last_tokens
from models.language.text_models import TextFailure, TextModel
from storage.finished_work import FinishedWork, work_key
from storage.json_files import field

log = logging.getLogger(__name__)

TOP = 5
"""Most probable tokens that the authors' endpoint reports (probes spec C5)."""
BATCHES = 4
"""Of a local model that are kept at once: what an interruption costs at most."""
REQUESTS = 64
"""Texts that an endpoint is asked about between two steps of the progress bar."""
CHUNK = 256
"""Texts of a classifier that are kept at once."""
SLACK = 8
"""Tokens by which a prompt may differ from the sum of its parts."""
NO_LABEL = "no label in the explanation"

Row = dict[str, Any]


def few_shots(
    tasks: Mapping[str, FeatureTask],
    wordings: Mapping[str, Mapping[Hypothesis, Wording]],
    prompting: Prompting,
) -> dict[Run, FewShot]:
    """The prompts of every run, in the order in which they are asked; ValueError where demonstrations or a
    wording are missing."""
    prompts = {}
    for run in prompting.runs(tasks):
        steer = run.steer or "h1"
        try:
            style = style_of(run.intervention, wordings[run.task], steer)
            shots = draw_shots(
                tasks[run.task],
                shots=prompting.shots,
                seed=run.seed,
                intervention=run.intervention,
                steer=steer,
                parity=prompting.parity,
            )
        except ValueError as error:
            raise ValueError(f"{run.title}: {error}") from None
        if len(shots) < prompting.shots:
            log.warning("%s: %d demonstrations in place of %d", run.title, len(shots), prompting.shots)
        prompts[run] = FewShot(style, shots)
    return prompts


def tested(task: FeatureTask, limit: int | None, agreement: bool) -> list[TaskExample]:
    """The texts of a task, cell by cell."""
    cells = [cell for cell in CELLS if agreement or cell not in AGREEING]
    return [example for cell in cells for example in task.tests[cell][:limit]]


def text_row(name: str, how: str, task: str, example: TaskExample, seed: int) -> Row:
    """What a row says of its text."""
    cell = example.split
    place = {"checkpoint": name, "how": how, "task": task, "seed": seed, "cell": cell}
    return place | {"id": example.id, "text": example.question, "h1": int(cell[0]), "h2": int(cell[2])}


class InContextModel:
    """A language model with demonstrations; its answers are kept by its identity and the prompt.

    Args:
        name: in rows.
        model: is asked.
        prompting: how prompts look.
        work: finished pieces.
    """

    def __init__(self, name: str, model: TextModel, prompting: Prompting, work: FinishedWork) -> None:
        self.name, self.model, self.prompting, self.work = name, model, prompting, work
        local: Any = model if "likelihood" in model.can else None
        self.local, self.top = local, TOP if prompting.parity else 0
        self.size = REQUESTS if local is None else BATCHES * local.batch_size

    def rows(
        self, prompts: Mapping[Run, FewShot], texts: Mapping[str, Sequence[TaskExample]]
    ) -> Iterator[Row]:
        """A row for each text of each run, without texts that are demonstrations. ValueError before any text
        is asked about where a prompt does not fit or nothing can be calibrated."""
        asked = {run: few.tested(texts[run.task]) for run, few in prompts.items()}
        for run, few in prompts.items():
            self.check(run, few, asked[run])
        free = {run: self.calibration(run, few) for run, few in prompts.items()}
        total = sum(map(len, asked.values()))
        with tqdm(total=total, desc=f"asking {self.name}", unit="text", disable=None) as bar:
            for run, few in prompts.items():
                for start in range(0, len(asked[run]), self.size):
                    chunk = asked[run][start : start + self.size]
                    yield from self.chunk_rows(run, few, chunk, free[run])
                    bar.update(len(chunk))

    def chunk_rows(
        self, run: Run, few: FewShot, chunk: Sequence[TaskExample], free_L: np.ndarray
    ) -> Iterator[Row]:
        """The rows of some texts of a run."""
        shown = [shot.example.name for shot in few.shots]
        whole = [few.test(example.question) for example in chunk]
        prompts = self.fitting(whole, few)
        answers = self.answers(prompts, few)
        for example, answer, long, prompt in zip(chunk, answers, whole, prompts, strict=True):
            row = text_row(self.name, "in context", run.task, example, run.seed)
            row |= {"intervention": run.intervention, "steer": run.steer, "demonstrations": shown}
            if self.prompting.truncate:
                row["cut"] = prompt != long
            yield row | prediction(answer, free_L, parity=self.prompting.parity)

    def check(self, run: Run, few: FewShot, texts: Sequence[TaskExample]) -> None:
        """ValueError for label words that look alike, and for the first prompt that does not fit."""
        if self.local is None:
            return
        key = few.style.key
        if not few.style.reasons:
            try:
                first_tokens(self.local.tokenizer, few.style.words, "" if self.local.is_seq2seq else key)
            except ValueError as error:
                raise ValueError(f"{run.title}: {error}") from None
        if self.prompting.truncate or self.local.limit is None:
            return
        room, parts = self.room(few), [few.head, *(fill(example.question, key) for example in texts)]
        head, *counts = self.local.token_counts(parts)
        for example, count in zip(texts, counts, strict=True):
            # Most prompts need not be put together to see that they fit.
            if head + count + SLACK <= room:
                continue
            if (n := self.local.token_counts([few.test(example.question)])[0]) > room:
                raise ValueError(
                    f"{run.title}: the prompt of {example.name} has {n} tokens, and {self.model.name} takes "
                    f"{room}; lower --shots, or add --truncate to keep the end of such prompts"
                )

    def room(self, few: FewShot) -> int:
        """Tokens that a prompt may have."""
        writes = few.style.reasons and not self.local.is_seq2seq
        return int(self.local.limit) - (self.prompting.max_new_tokens if writes else 0)

    def fitting(self, prompts: Sequence[str], few: FewShot) -> list[str]:
        """With --truncate, the ends of prompts that are too long."""
        if self.local is None or not self.prompting.truncate or self.local.limit is None:
            return list(prompts)
        return [last_tokens(self.local.tokenizer, prompt, self.room(few)) for prompt in prompts]

    def calibration(self, run: Run, few: FewShot) -> np.ndarray:
        """p_cf (L,); ValueError where nothing can be made of it. Explanations are not calibrated."""
        if few.style.reasons:
            return np.array([0.5, 0.5])
        answers = self.answers(self.fitting(few.calibration(), few), few)
        for answer in answers:
            if isinstance(answer, TextFailure):
                raise ValueError(f"{run.title}: calibration failed: {answer}; start again to go on")
        try:
            return content_free(np.exp(np.array(answers, dtype=float)))
        except ValueError:
            raise ValueError(
                f"{run.title}: the model gives one of the label words {few.style.words} no probability, "
                "whatever the content-free text, so nothing can be calibrated"
                + ("; leave out --parity, which looks at five tokens only" if self.top else "")
                + ("; choose other words (--wording)" if run.intervention == "verbalizer" else "")
            ) from None

    def answers(self, prompts: Sequence[str], few: FewShot) -> list[Any]:
        """For each prompt the log-probabilities of the two label words (-inf for one that is not reported),
        the explanation up to an empty line, or a TextFailure.

        A local model reads a chunk whole or not at all, so that the batches, and with them the last bits of
        its numbers, are those of a run that was not interrupted. An endpoint is asked what is missing.
        """
        words, after, writes = few.style.words, few.style.key, bool(few.style.reasons)
        labels = {} if writes else {"words": words, "after": after, "top": self.top}
        identity = self.model.identity | ({} if writes else {"max_new_tokens": 1})
        parts = {"protocol": "feature-bias", "model": identity, **labels}
        keys = [work_key(prompt=prompt, **parts) for prompt in prompts]
        wanted = dict(zip(keys, prompts, strict=True))
        missing = {key: prompt for key, prompt in wanted.items() if self.work.get(key) is None}
        failures: dict[str, TextFailure] = {}
        if missing:
            asked = missing if self.local is None else wanted
            texts = list(asked.values())
            answers: Iterator[Any] = (
                self.model.complete(texts)
                if writes
                else self.model.next_token_logprobs(texts, words, after=after, top=self.top)
            )
            for key, answer in zip(asked, answers, strict=True):
                if isinstance(answer, TextFailure):
                    failures[key] = answer
                elif key in missing:
                    kept = answer if writes else [x if math.isfinite(x) else None for x in answer]
                    self.work.add(key, answer=kept)
        return [failures.get(key) or self.kept(key, writes) for key in keys]

    def kept(self, key: str, writes: bool) -> Any:
        """A finished answer."""
        record = self.work.get(key) or {}
        if writes:
            return field(record, "answer", str, f"{self.work.path}").split("\n\n")[0]
        logprob_L = self.work.array(record, "answer", 2)
        return tuple(np.where(np.isnan(logprob_L), -math.inf, logprob_L))


def prediction(answer: Any, free_L: np.ndarray, *, parity: bool) -> Row:
    """What a language model made of a text: `predicted`, or `failure`."""
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
        return (
            {"predicted": 0, "uncalibrated": 0} if parity else {"failure": "neither label word was reported"}
        )
    score_1L = calibrated(probability_1L, free_L)
    return {
        "probabilities": probability_1L[0].tolist(),
        "content_free": free_L.tolist(),
        "scores": score_1L[0].tolist(),
        "uncalibrated": int(predicted(probability_1L)[0]),
        "predicted": int(predicted(score_1L)[0]),
    }


def classifier_rows(
    name: str,
    answerer: Answerer,
    texts: Sequence[tuple[FeatureTask, Sequence[TaskExample]]],
    words: tuple[str, str],
    seeds: Counter[str],
    work: FinishedWork,
) -> Iterator[Row]:
    """The rows of a fine-tuned classifier, which chooses between two label words; nothing is calibrated.

    Args:
        name: in rows.
        answerer: a checkpoint of multiple choice.
        texts: of each task that it is measured on.
        words: the labels that it was trained with.
        seeds: checkpoints of this name that were measured on a task so far; this one is added.
        work: finished pieces.
    """
    for task, examples in texts:
        for example, logit_L in zip(examples, chosen(answerer, task, examples, words, work), strict=True):
            label = int(np.argmax(logit_L))
            row = text_row(name, "fine-tuned", task.name, example, seeds[task.name])
            row |= {"intervention": "none", "steer": "", "path": answerer.path}
            yield row | {
                "probabilities": softmax(logit_L).tolist(),
                "uncalibrated": label,
                "predicted": label,
            }
        seeds[task.name] += 1


def chosen(
    answerer: Answerer,
    task: FeatureTask,
    examples: Sequence[TaskExample],
    words: tuple[str, str],
    work: FinishedWork,
) -> Iterator[np.ndarray]:
    """The logits (L,) of the two label words for every text."""
    for start in range(0, len(examples), CHUNK):
        chunk = examples[start : start + CHUNK]
        questions = [example.question for example in chunk]
        key = work_key(protocol="feature-bias", model=answerer.identity, words=words, texts=questions)
        if not (record := work.get(key)):
            what = f"{task.name}, {start + len(chunk)} of {len(examples)}"
            logits = list(answerer.choice_logits(choice_rows(task, chunk, words), what))
            if not np.isfinite(logits).all():
                raise ValueError(f"{answerer.path}: gives logits that are no numbers; its training diverged")
            record = work.add(key, logits=[logit_L.tolist() for logit_L in logits])
        yield from work.array(record, "logits", len(chunk), 2)
