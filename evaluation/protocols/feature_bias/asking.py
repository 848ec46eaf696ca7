"""Who is asked in the feature-bias protocol, and a row for each answer: language models and fine-tuned
classifiers.

All that can go wrong is looked for first: pools of demonstrations, wordings, first tokens of label words,
lengths of prompts, and the calibration of every run. Then texts, each answer kept as it comes.

Shape letters: L labels, one for each class.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import softmax
from tqdm.auto import tqdm

from data_modules.tasks.feature_bias import FeatureTask, TaskExample, choice_rows
from evaluation.answering.interface import Answerer
from evaluation.answering.remembered import remembered_logits
from evaluation.processes import shared
from evaluation.protocols.feature_bias.prompts import (
    CONTENT_FREE,
    FewShot,
    Prompting,
    explained_label,
    fill,
)
from metrics.feature_bias import calibrated, content_free, predicted
from models.language.next_token import first_tokens, last_tokens
from models.language.text_models import TextFailure, TextModel
from storage.finished_work import FinishedWork, work_key
from storage.json_files import field

TOP = 5
"""Most probable tokens that the authors' endpoint reports (probes spec C5)."""
BATCHES = 4
"""Of a local model that are kept at once: what an interruption costs at most."""
REQUESTS = 64
"""Texts that an endpoint is asked about between two steps of the progress bar."""
SLACK = 8
"""Tokens by which a prompt may differ from the sum of its parts."""

Row = dict[str, Any]


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
        self.local: Any = model if "likelihood" in model.can else None
        self.top = TOP if prompting.parity else 0

    def rows(self, prompts: Sequence[FewShot], texts: Mapping[str, Sequence[TaskExample]]) -> Iterator[Row]:
        """A row for each text of each run, without texts that are demonstrations. ValueError before any text
        is asked about where a prompt does not fit or nothing can be calibrated."""
        tested = [few.tested(texts[few.task]) for few in prompts]
        for few, examples in zip(prompts, tested, strict=True):
            self.check(few, examples)
        free = [self.calibration(few) for few in prompts]
        size = BATCHES * self.local.batch_size if self.local else REQUESTS
        with tqdm(total=sum(map(len, tested)), desc=f"asking {self.name}", unit="text", disable=None) as bar:
            for few, examples, free_L in zip(prompts, tested, free, strict=True):
                shown = [shot.example.name for shot in few.shots]
                for start in range(0, len(examples), size):
                    chunk = examples[start : start + size]
                    whole = [few.test(example.question) for example in chunk]
                    fitting = self.fitting(whole, few)
                    answers = self.answers(fitting, few)
                    for i, example in enumerate(chunk):
                        row = text_row(self.name, "in context", few.task, example, few.seed)
                        row |= {"intervention": few.intervention, "steer": few.steer, "demonstrations": shown}
                        row |= {"cut": fitting[i] != whole[i]} if self.prompting.truncate else {}
                        yield row | prediction(answers[i], free_L, parity=self.prompting.parity)
                    bar.update(len(chunk))

    def check(self, few: FewShot, texts: Sequence[TaskExample]) -> None:
        """ValueError for label words that look alike, and for the first prompt that does not fit."""
        if self.local is None:
            return
        key = few.style.key
        if not few.style.reasons:
            try:
                first_tokens(self.local.tokenizer, few.style.words, "" if self.local.is_seq2seq else key)
            except ValueError as error:
                raise ValueError(f"{few.title}: {error}") from None
        if self.prompting.truncate or self.local.limit is None:
            return
        room = self.room(few)
        head, *counts = self.local.token_counts([few.head, *(fill(x.question, key) for x in texts)])
        for example, count in zip(texts, counts, strict=True):
            # Most prompts need not be put together to see that they fit.
            if head + count + SLACK <= room:
                continue
            if (n := self.local.token_counts([few.test(example.question)])[0]) > room:
                raise ValueError(
                    f"{few.title}: the prompt of {example.name} has {n} tokens, and {self.model.name} takes "
                    f"{room}; lower --shots, or add --truncate to keep the end of such prompts"
                )

    def room(self, few: FewShot) -> int:
        """Tokens that a prompt may have."""
        writes = few.style.reasons and not self.local.is_seq2seq
        return int(self.local.limit) - (self.prompting.max_new_tokens if writes else 0)

    def fitting(self, prompts: list[str], few: FewShot) -> list[str]:
        """With --truncate, the ends of prompts that are too long."""
        if self.local is None or not self.prompting.truncate or self.local.limit is None:
            return prompts
        return [last_tokens(self.local.tokenizer, prompt, self.room(few)) for prompt in prompts]

    def calibration(self, few: FewShot) -> np.ndarray:
        """p_cf (L,); ValueError where nothing can be made of it. Explanations are not calibrated."""
        if few.style.reasons:
            return np.full(len(few.style.words), 1 / len(few.style.words))
        answers = self.answers(self.fitting([few.test(text) for text in CONTENT_FREE], few), few)
        for answer in answers:
            if isinstance(answer, TextFailure):
                raise ValueError(f"{few.title}: calibration failed: {answer}; start again to go on")
        try:
            return content_free(np.exp(np.array(answers, dtype=float)))
        except ValueError:
            raise ValueError(
                f"{few.title}: the model gives one of the label words {few.style.words} no probability, "
                "whatever the content-free text, so nothing can be calibrated"
                + ("; leave out --parity, which looks at five tokens only" if self.top else "")
                + ("; choose other words (--wording)" if few.intervention == "verbalizer" else "")
            ) from None

    def answers(self, prompts: Sequence[str], few: FewShot) -> list[Any]:
        """For each prompt the log-probabilities of the label words (-inf for one that is not reported),
        the explanation up to an empty line, or a TextFailure.

        A local model reads a chunk whole or not at all, so that the batches, and with them the last bits of
        its numbers, are those of a run that was not interrupted. An endpoint is asked what is missing.
        """
        words, writes = few.style.words, bool(few.style.reasons)
        labels = {} if writes else {"words": words, "after": few.style.key, "top": self.top}
        identity = self.model.identity | ({} if writes else {"max_new_tokens": 1})
        parts = {"protocol": "feature-bias", "model": identity, **labels}
        keys = [work_key(prompt=prompt, **parts) for prompt in prompts]
        wanted = dict(zip(keys, prompts, strict=True))

        def ask(missing: list[str]) -> Iterator[Any]:
            pending = missing if self.local is None else list(wanted.values())
            for prompt, answer in zip(pending, self.asked(pending, few), strict=True):
                if prompt in missing:
                    kept = writes or isinstance(answer, TextFailure)
                    yield answer if kept else [x if math.isfinite(x) else None for x in answer]

        found: dict[str, Any] = {}
        for key, answer in self.work.results(wanted, ask, "answer", TextFailure):
            if isinstance(answer, TextFailure):
                found[key] = answer
            elif writes:
                found[key] = field({"answer": answer}, "answer", str, f"{self.work.path}").split("\n\n")[0]
            else:
                logprob_L = self.work.array({"key": key, "answer": answer}, "answer", len(words))
                found[key] = np.where(np.isnan(logprob_L), -math.inf, logprob_L)
        return [found[key] for key in keys]

    @shared
    def asked(self, prompts: Sequence[str], few: FewShot) -> Iterator[Any]:
        """What the model says to each prompt."""
        if few.style.reasons:
            return self.model.complete(prompts)
        return self.model.next_token_logprobs(prompts, few.style.words, after=few.style.key, top=self.top)


def prediction(answer: Any, free_L: np.ndarray, *, parity: bool) -> Row:
    """What a language model made of a text: `predicted`, or `failure`."""
    if isinstance(answer, TextFailure):
        return {"failure": answer.reason}
    if isinstance(answer, str):
        label = explained_label(answer, len(free_L))
        if label is None and not parity:
            return {"said": answer, "failure": "no label in the explanation"}
        return {"said": answer, "predicted": label or 0, "uncalibrated": label or 0}
    probability_1L = np.exp(answer)[None]
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
    texts: Mapping[str, tuple[FeatureTask, Sequence[TaskExample]]],
    words: Sequence[str] | None,
    seeds: Counter[str],
    work: FinishedWork,
) -> Iterator[Row]:
    """The rows of a fine-tuned classifier, which chooses among label words; nothing is calibrated.

    Args:
        name: in rows.
        answerer: a checkpoint of multiple choice.
        texts: by task, of those that it is measured on.
        words: the labels that it was trained with (default: digits).
        seeds: checkpoints of this name that were measured on a task so far; this one is added.
        work: finished pieces.
    """
    for task, examples in texts.values():
        questions = choice_rows(task, examples, words)
        logit_NL = remembered_logits(answerer, questions, work, task.name)
        for example, logit_L in zip(examples, logit_NL, strict=True):
            label = int(np.argmax(logit_L))
            row = text_row(name, "fine-tuned", task.name, example, seeds[task.name])
            row |= {"intervention": "none", "steer": "", "path": answerer.path}
            yield row | {
                "probabilities": softmax(logit_L).tolist(),
                "uncalibrated": label,
                "predicted": label,
            }
        seeds[task.name] += 1
