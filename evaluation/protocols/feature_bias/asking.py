"""A row for each answer: of language models with demonstrations, and of fine-tuned classifiers.

Shape letters: N texts, K content-free texts, L labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from tqdm.auto import tqdm

from data_modules.tasks.feature_bias import FeatureTask, TaskExample, choice_rows
from evaluation.answering.interface import Answerer, Compute, kind_of
from evaluation.answering.language_model import open_language_model
from evaluation.answering.open import open_answerer
from evaluation.processes import kept
from evaluation.protocols.feature_bias.prompts import CONTENT_FREE, FewShot, explained_label
from metrics.feature_bias import calibrated, content_free, predicted
from models.language.text_models import TextFailure, TextModel

TOP = 5
"""Most probable tokens that the authors' endpoint reports (probes spec C5)."""

Row = dict[str, Any]
Array = NDArray[np.float64]


def open_model(path: str, compute: Compute, max_new_tokens: int) -> TextModel | Answerer:
    """A language model that continues bare prompts, or a checkpoint of multiple choice."""
    if kind_of(path) not in ("endpoint", "local", "causal"):
        return open_answerer(path, compute, need="choices")
    return open_language_model(path, compute, max_new_tokens=max_new_tokens, chat_template=False)


def in_context_rows(
    model: TextModel, prompts: Sequence[FewShot], texts: Mapping[str, Sequence[TaskExample]], *, parity: bool
) -> Iterator[Row]:
    """A row for each text and set of demonstrations, without texts that are demonstrations.

    All prompts are calibrated before any text is asked about, so that what cannot work is known at once.

    Args:
        model: is asked.
        prompts: of all tasks.
        texts: by task.
        parity: as the authors' code: only the five most probable tokens count, and what cannot be read is 0.

    Raises:
        ValueError: label words begin with the same token, or nothing can be calibrated.
    """
    top = TOP if parity else 0
    free = [calibration(model, few, top) for few in prompts]
    tested = [few.tested(texts[few.task]) for few in prompts]
    with tqdm(total=sum(map(len, tested)), desc="asking in context", unit="text", disable=None) as bar:
        for few, free_L, examples in zip(prompts, free, tested, strict=True):
            demonstrations = [example.name for example in few.demonstrations]
            place = {"intervention": few.intervention, "seed": few.seed, "demonstrations": demonstrations}
            answers = ask(model, [few.prompt(x.question) for x in examples], few, top)
            for example, answer in zip(examples, answers, strict=True):
                yield text_row(few.task, example, place) | in_context(example, answer, free_L, parity=parity)
                bar.update()


def calibration(model: TextModel, few: FewShot, top: int) -> Array | None:
    """p_cf (L,); None for explanations, which are not calibrated."""
    if few.words is None:
        return None
    answers = [*ask(model, [few.prompt(text) for text in CONTENT_FREE], few, top)]
    for answer in answers:
        if isinstance(answer, TextFailure):
            raise ValueError(f"{few.task}, {few.intervention}: calibration failed: {answer}")
    try:
        return content_free(np.array(answers))
    except ValueError as error:
        raise ValueError(f"{few.task}, {few.intervention}, {few.words}: {error}") from None


def ask(model: TextModel, prompts: Sequence[str], few: FewShot, top: int) -> Iterator[Any]:
    """The explanation of each prompt, or the probabilities (L,) of the label words."""
    if few.words is None:
        return explanations(model, prompts)
    return label_probabilities(model, prompts, few.words, after=few.key, top=top)


@kept
def explanations(model: TextModel, prompts: Sequence[str]) -> Iterator[str | TextFailure]:
    """What the model writes."""
    return model.complete(prompts)


@kept
def label_probabilities(
    model: TextModel, prompts: Sequence[str], words: Sequence[str], *, after: str, top: int
) -> Iterator[list[float] | TextFailure]:
    """The probability of each label word; 0 for one that is not among the `top` most probable tokens."""
    for answer in model.next_token_logprobs(prompts, words, after=after, top=top):
        yield answer if isinstance(answer, TextFailure) else np.exp(answer).tolist()


def text_row(task: str, example: TaskExample, place: Row) -> Row:
    """What a row says of its text, and `place` besides."""
    return {"task": task, "cell": example.split, "id": example.id, "text": example.question, **place}


def in_context(example: TaskExample, answer: Any, free_L: Array | None, *, parity: bool) -> Row:
    """What a language model made of a text, or `failure`."""
    if isinstance(answer, TextFailure):
        return {"failure": answer.reason}
    if free_L is None:
        explanation = answer.split("\n\n")[0]
        label = explained_label(explanation)
        if label is None and not parity:
            return {"explanation": explanation, "failure": "no label in the explanation"}
        return {"explanation": explanation, **followed(example, label or 0, label or 0)}
    probability_1L = np.array([answer])
    if not probability_1L.sum():
        # The authors' code goes on with 0 for both, and so predicts 0.
        return followed(example, 0, 0) if parity else {"failure": "neither label word was reported"}
    score_1L = calibrated(probability_1L, free_L)
    return {
        "probabilities": answer,
        "content_free": free_L.tolist(),
        "scores": score_1L[0].tolist(),
        **followed(example, int(predicted(score_1L)[0]), int(predicted(probability_1L)[0])),
    }


def classifier_rows(
    answerer: Answerer, tasks: Mapping[str, FeatureTask], texts: Mapping[str, Sequence[TaskExample]]
) -> Iterator[Row]:
    """The rows of a fine-tuned classifier, which chooses between the digits; nothing is calibrated."""
    place = {"intervention": "none", "seed": 0}
    for name, examples in texts.items():
        logit_NL = np.stack([*answerer.choice_logits(choice_rows(tasks[name], examples), name)])
        for example, logit_L in zip(examples, logit_NL, strict=True):
            row = text_row(name, example, place) | {"probabilities": softmax(logit_L).tolist()}
            label = int(logit_L.argmax())
            yield row | followed(example, label, label)


def followed(example: TaskExample, label: int, uncalibrated: int) -> Row:
    """A prediction, and which feature it follows where the two differ, else whether it is right."""
    h1, h2 = int(example.split[0]), int(example.split[2])
    row = {"predicted": label, "uncalibrated": uncalibrated}
    if h1 == h2:
        return row | {"agrees": label == h1}
    return row | {"follows_h1": label == h1, "follows_h2": label == h2, "uncalibrated_h1": uncalibrated == h1}
