"""Whoever chooses among choices: a checkpoint of `multiple_choice`, or a language model by likelihood.

--checkpoint plain=runs/.../best.ckpt uqa=hf:allenai/unifiedqa-t5-base gpt2=hf:gpt2
"""

from __future__ import annotations

import argparse
import logging
import string
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np

from data_modules.schema import ChoiceQuestion
from evaluation.answering.answerers import LANGUAGE_MODELS
from storage.errors import DataError

if TYPE_CHECKING:
    from evaluation.answering.choice_predictor import ChoicePredictor

log = logging.getLogger(__name__)

Likelihood = Literal["mean", "sum"]


class ChoiceAnswerer(Protocol):
    """Gives every choice of a question a logit; the confidences are their softmax."""

    identity: dict[str, Any]
    """All that logits depend on besides the texts, as plain JSON values."""

    def logits(self, examples: Sequence[ChoiceQuestion], what: str = "") -> Iterable[np.ndarray]:
        """One float32 array (choices,) for each question, in order; `what` names the progress bar."""


class ChoiceWording(NamedTuple):
    """How a question is put to a language model."""

    prompt: str
    """With {prompt} and {choices}, the latter lettered."""
    lower: bool

    @property
    def lists_choices(self) -> bool:
        """Whether the choices stand in the prompt."""
        return "{choices}" in self.prompt


CHOICE_WORDINGS = {
    # The choices are scored as what follows: they do not see each other, nor the order they stand in.
    "plain": ChoiceWording("{prompt}\nThe choice that fits best:", lower=False),
    # As UnifiedQA was trained: a backslash and an n (two characters), every choice behind its letter.
    "unifiedqa": ChoiceWording("{prompt} \\n {choices}", lower=True),
}


def open_choice_answerer(path: str, args: argparse.Namespace) -> ChoiceAnswerer:
    """By name: `hf:PATH` is a language model, everything else a checkpoint.

    Raises:
        ValueError: nothing usable is there, or it is an endpoint.
    """
    refuse_endpoint(path)
    if path.startswith(LANGUAGE_MODELS):
        return LikelihoodChooser.of(path, args)
    from evaluation.answering.choice_predictor import ChoicePredictor

    if not Path(path).is_file():
        log.warning("%s: was not fine-tuned for multiple choice; its head has random weights", path)
    return CheckpointChooser(ChoicePredictor.of(path, args))


def refuse_endpoint(path: str) -> None:
    """ValueError for a model that only writes text."""
    if path.startswith("openai:"):
        raise ValueError(
            f"{path}: confusion needs the likelihood of given choices, which endpoints do not tell; "
            "name a local model (hf:FOLDER_OR_HUB_NAME) or a checkpoint"
        )


def wording_of(prompt: str, is_seq2seq: bool) -> ChoiceWording:
    """The wording of `--prompt`."""
    if prompt == "auto":
        prompt = "unifiedqa" if is_seq2seq else "plain"
    return CHOICE_WORDINGS[prompt]


def check_letters(count: int, wording: ChoiceWording, where: str) -> None:
    """DataError where a wording has no letters for so many choices."""
    if wording.lists_choices and count > len(string.ascii_lowercase):
        raise DataError(f"{where}: {count} choices are more than there are letters")


class CheckpointChooser:
    """A fine-tuned checkpoint, or an encoder under a head of random weights."""

    def __init__(self, predictor: ChoicePredictor) -> None:
        self.predictor = predictor
        # Batch size and device move logits by rounding alone: another one goes on from finished work.
        settings = {
            name: value for name, value in predictor.settings.items() if name not in ("device", "batch_size")
        }
        self.identity: dict[str, Any] = {"weights": predictor.weights_id, **settings}

    def logits(self, examples: Sequence[ChoiceQuestion], what: str = "") -> Iterable[np.ndarray]:
        return self.predictor.logits(examples, what)

    def embeddings(self, texts: Sequence[str], what: str = "") -> np.ndarray:
        """Vectors of length 1, (texts, hidden)."""
        return self.predictor.embeddings(texts, what)


class LikelihoodChooser:
    """A local language model: the logit of a choice is its log-likelihood behind the prompt.

    Args:
        model: a `models.language.local_model.LocalTextModel`.
        prompt: `plain`, `unifiedqa`, or `auto`: the latter for a sequence-to-sequence model.
        likelihood: `mean` over the tokens of the choice, or their `sum`.
    """

    def __init__(self, model: Any, *, prompt: str = "auto", likelihood: Likelihood = "mean") -> None:
        self.model, self.wording, self.likelihood = model, wording_of(prompt, model.is_seq2seq), likelihood
        self.identity: dict[str, Any] = {
            "name": model.name,
            # Nothing is generated: how long and how warm plays no part.
            "settings": {
                key: value
                for key, value in model.settings.items()
                if key not in ("max_new_tokens", "temperature")
            },
            "prompt": self.wording._asdict(),
            "likelihood": likelihood,
        }

    @classmethod
    def of(cls, path: str, args: argparse.Namespace) -> LikelihoodChooser:
        from models.language.open_model import open_text_model

        model = open_text_model(path, device=args.device, batch_size=args.batch_size)
        return cls(model, prompt=args.prompt, likelihood=args.likelihood)

    def logits(self, examples: Sequence[ChoiceQuestion], what: str = "") -> Iterable[np.ndarray]:
        """DataError names the question whose text has no tokens or does not fit the model's context."""
        from evaluation.answering.prompting import starts_anew, token_count

        joined = "" if starts_anew(self.model) else " "
        for example in examples:
            texts = [text.lower() if self.wording.lower else text for text in example.choices]
            prompt = choice_prompt(example, self.wording)
            pairs = [(prompt, joined + text.strip()) for text in texts]
            try:
                logit_C = self.model.log_likelihoods(pairs).numpy()
            except ValueError as error:
                raise DataError(f"question {example.id}: {error}") from None
            if self.likelihood == "mean":
                logit_C = logit_C / np.array([token_count(self.model, *pair) for pair in pairs])
            yield logit_C.astype(np.float32)


def choice_prompt(example: ChoiceQuestion, wording: ChoiceWording) -> str:
    """What a language model reads before a choice.

    >>> example = ChoiceQuestion("1", "Why?", ("This", "That"), 0)
    >>> choice_prompt(example, CHOICE_WORDINGS["unifiedqa"])
    'why? \\\\n (a) this (b) that'
    """
    check_letters(len(example.choices), wording, f"question {example.id}")
    lettered = zip(string.ascii_lowercase, example.choices, strict=False)
    choices = " ".join(f"({letter}) {text.strip()}" for letter, text in lettered)
    text = wording.prompt.format(prompt=example.prompt.strip(), choices=choices).strip()
    return text.lower() if wording.lower else text
