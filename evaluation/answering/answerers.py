"""Whoever answers questions in a protocol: a fine-tuned checkpoint, or a language model that is prompted.

    --checkpoint ot=runs/.../best.ckpt base=hf:google/flan-t5-base gpt=openai:gpt-4o-mini

`hf:` and `openai:` name language models (evaluation/answering/prompting.py); everything else is a checkpoint.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from data_modules.schema import QAExample

LANGUAGE_MODELS = ("hf:", "openai:")
"""How the name of a language model begins."""


class Said(NamedTuple):
    """The answer to one question."""

    example: int
    """Index of the question among those asked."""
    text: str
    """`unknown` where the model says so; "" of a plain span model means the same."""
    failure: str = ""
    """Why there is no answer: such a question is counted apart and never scored."""


class Answerer(Protocol):
    """Answers questions, each once, in an order of its own."""

    def said(self, examples: Sequence[QAExample], what: str = "answering") -> Iterator[Said]:
        """The answers; `what` names the progress bar."""


def open_answerer(path: str, args: argparse.Namespace) -> Answerer:
    """By name: see the module. The flags are those of `protocol_flags.add_answer_arguments`.

    Raises:
        ValueError: nothing usable is there.
    """
    if path.startswith(LANGUAGE_MODELS):
        from evaluation.answering.prompting import PromptedModel

        return PromptedModel.of(path, args)
    from evaluation.answering.predictor import Predictor

    return Predictor.of(path, args)
