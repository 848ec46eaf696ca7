"""The label that a language model with demonstrations gives to each text, and which feature it
follows.

Shape letters: L labels.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from interventune.data_modules.tasks.feature_bias import TaskExample
from interventune.data_modules.tasks.features import ANSWER
from interventune.evaluation.answering.work import stored
from interventune.evaluation.protocol import Row
from interventune.evaluation.statistics import Floats
from interventune.metrics.answers import normalise_answer
from interventune.metrics.feature_bias import calibrated, content_free
from interventune.models.language.text_models import TextFailure, TextModel
from interventune.storage.documents import as_data_error
from interventune.storage.progress import progress

from .prompts import CONTENT_FREE, DIGITS, FewShot

TOP = 5
"""Number of most probable tokens that the endpoint of the authors' code reports."""

Labelled = tuple[str, TaskExample, Row]
"""A task, one of its texts, and the row with its label."""


def in_context_rows(
    model: TextModel,
    prompts: Sequence[FewShot],
    texts: Mapping[str, Sequence[TaskExample]],
    *,
    parity: bool,
) -> Iterator[Labelled]:
    """Yield the label of each text with each set of demonstrations that does not contain it.

    All prompts are calibrated before any text is scored, so that errors show at once.

    Args:
        model: the language model.
        prompts: of all tasks.
        texts: by task.
        parity: as in the authors' code: only the five most probable tokens count, and an unreadable
            answer is 0.

    Raises:
        ValueError: label words begin with the same token, or nothing can be calibrated.
    """
    top = TOP if parity else 0
    calibrations = [calibration(model, few, top) for few in prompts]
    for few, free_L in zip(prompts, calibrations, strict=True):
        examples = few.tested(texts[few.task])
        questions = [few.prompt(example.question) for example in examples]
        answers = ask(model, questions, words=few.words, after=few.key, top=top)
        bar = progress(answers, f"{few.task}, {few.intervention}", "text", len(examples))
        prompt = {
            "intervention": few.intervention,
            "seed": few.seed,
            "demonstrations": [example.name for example in few.demonstrations],
        }
        for example, answer in zip(examples, bar, strict=True):
            yield few.task, example, prompt | in_context(example, answer, free_L, parity=parity)


def calibration(model: TextModel, few: FewShot, top: int) -> Floats | None:
    """p_cf (L,); None for explanations, which are not calibrated."""
    if few.words is None:
        return None
    questions = [few.prompt(text) for text in CONTENT_FREE]
    answers = [*ask(model, questions, words=few.words, after=few.key, top=top)]
    with as_data_error(f"{few.task}, {few.intervention}, {few.words}: calibration"):
        for answer in answers:
            if isinstance(answer, TextFailure):
                raise ValueError(answer)
        return content_free(np.array(answers))


@stored
def ask(
    model: TextModel, prompts: Sequence[str], *, words: Sequence[str] | None, after: str, top: int
) -> Iterator[Any]:
    """Yield the probability of each label word (0 for one that is not among the `top` most probable
    tokens) or, without words, the model's text.
    """
    if words is None:
        yield from model.complete(prompts)
        return
    for answer in model.next_token_logprobs(prompts, words, after=after, top=top):
        yield answer if isinstance(answer, TextFailure) else np.exp(answer).tolist()


def in_context(example: TaskExample, answer: Any, free_L: Floats | None, *, parity: bool) -> Row:
    """Return a language model's label of a text, or a `failure`."""
    if isinstance(answer, TextFailure):
        return {"failure": answer.reason}
    if free_L is None:
        explanation = answer.split("\n\n")[0]
        label = explained_label(explanation)
        if label is None and not parity:
            return {"explanation": explanation, "failure": "no label in the explanation"}
        return {"explanation": explanation, **followed(example, label or 0, label or 0)}
    if not any(answer):
        # The authors' code continues with 0 for both, and so predicts 0.
        return followed(example, 0, 0) if parity else {"failure": "neither label word was reported"}
    score_L = calibrated(np.array([answer]), free_L)[0]
    return {
        "probabilities": answer,
        "content_free": free_L.tolist(),
        "scores": score_L.tolist(),
        **followed(example, int(score_L.argmax()), int(np.argmax(answer))),
    }


def explained_label(text: str) -> int | None:
    """Return the label at the end of an explanation: the text after the last "answer is ",
    normalised; None if it is neither 0 nor 1.

    >>> explained_label("It shouts, so the answer is 1."), explained_label("The answer is red.")
    (1, None)
    """
    _, answer, rest = text.rpartition(ANSWER)
    label = normalise_answer(rest)
    return DIGITS.index(label) if answer and label in DIGITS else None


def followed(example: TaskExample, label: int, uncalibrated: int) -> Row:
    """Return a label, and which feature it follows if the two differ, else whether it is right."""
    h1, h2 = map(int, example.split.split("_"))
    row = {"predicted": label, "uncalibrated": uncalibrated}
    if h1 == h2:
        return row | {"agrees": label == h1}
    return row | {
        "follows_h1": label == h1,
        "follows_h2": label == h2,
        "uncalibrated_h1": uncalibrated == h1,
    }
