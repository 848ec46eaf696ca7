"""A language model that is asked for label words or explanations, with every answer kept as it comes.

Shape letters: L the two labels.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from data_modules.tasks.feature_bias import TaskExample
from data_modules.tasks.wording import Hypothesis
from evaluation.protocols.feature_bias.prompts import FewShot, Intervention, fill
from metrics.feature_bias import content_free
from models.language.next_token import first_tokens, last_tokens
from models.language.text_models import TextFailure, TextModel
from storage.finished_work import FinishedWork, work_key
from storage.json_files import field

TOP = 5
"""Tokens that the authors' endpoint told (probes spec C5)."""
CHUNKS = 4
"""Batches of a local model that are kept at once: what an interruption costs at most."""
SLACK = 8
"""Tokens by which a prompt may differ from the sum of its parts."""

Ask = Callable[[Sequence[str]], Iterator[dict[str, Any] | TextFailure]]


class Run(NamedTuple):
    """One set of demonstrations."""

    task: str
    intervention: Intervention
    steer: Hypothesis | str
    """"" without an intervention."""
    seed: int

    def told(self) -> str:
        """For errors and progress bars."""
        way = f"{self.intervention} to {self.steer}" if self.steer else self.intervention
        return f"{self.task}, {way}, set {self.seed + 1}"


class Asker:
    """A language model with what is kept of it.

    Args:
        model: is asked.
        work: finished pieces.
        args: the flags of the protocol.
    """

    def __init__(self, model: TextModel, work: FinishedWork, args: argparse.Namespace) -> None:
        self.model, self.work, self.args = model, work, args
        local: Any = model if "likelihood" in model.can else None
        self.local = local
        self.top = TOP if args.parity else 0
        self.chunk = CHUNKS * local.batch_size if local is not None else 0
        """Prompts that a local model reads together; 0 for an endpoint."""
        self._counts: dict[str, int] = {}

    def check(self, run: Run, few: FewShot, texts: Sequence[TaskExample]) -> None:
        """ValueError for label words that look alike, and for the first prompt that does not fit."""
        if self.local is None:
            return
        reasons, key = few.style.reasons, few.style.key
        if not reasons:
            try:
                first_tokens(self.local.tokenizer, few.style.words, "" if self.local.is_seq2seq else key)
            except ValueError as error:
                raise ValueError(f"{run.told()}: {error}") from None
        if self.args.truncate or self.local.limit is None:
            return
        room = self.room(few)
        head = self.count(few.head)
        for x in texts:
            # Most prompts need not be put together to see that they fit.
            if head + self.count(fill(x.question, key)) + SLACK <= room:
                continue
            if (n := self.local.token_counts([few.test(x.question)])[0]) > room:
                raise ValueError(
                    f"{run.told()}: the prompt of {x.name} has {n} tokens, and {self.model.name} takes "
                    f"{room}; lower --shots, or add --truncate to keep the end of such prompts"
                )

    def room(self, few: FewShot) -> int:
        """Tokens that a prompt may have."""
        new = self.args.max_new_tokens if few.style.reasons and not self.local.is_seq2seq else 0
        return int(self.local.limit) - new

    def count(self, text: str) -> int:
        """Tokens of a text, each text counted once."""
        if text not in self._counts:
            self._counts[text] = self.local.token_counts([text])[0]
        return self._counts[text]

    def calibration(self, run: Run, few: FewShot) -> np.ndarray:
        """p_cf (L,); ValueError where nothing can be made of it. Explanations are not calibrated."""
        if few.style.reasons:
            return np.array([0.5, 0.5])
        told = self.labels(self.fitting(few.calibration(), few), few)
        for answer in told:
            if isinstance(answer, TextFailure):
                raise ValueError(f"{run.told()}: calibration failed: {answer}; start again to go on")
        try:
            return content_free(np.exp(np.array(told, dtype=float)))
        except ValueError:
            raise ValueError(
                f"{run.told()}: the model gives one of the label words {few.style.words} no probability, "
                "whatever the content-free text, so nothing can be calibrated"
                + ("; leave out --parity, which looks at five tokens only" if self.top else "")
                + ("; choose other words (--wording)" if run.intervention == "verbalizer" else "")
            ) from None

    def labels(self, prompts: Sequence[str], few: FewShot) -> list[tuple[float, ...] | TextFailure]:
        """Log-probabilities of the two label words behind each prompt; -inf for none."""
        style = few.style
        settings = {**self.model.settings, "max_new_tokens": 1}
        parts = {"settings": settings, "words": style.words, "after": style.key, "top": self.top}
        keys = [self.key(prompt=prompt, **parts) for prompt in prompts]

        def ask(missing: Sequence[str]) -> Iterator[dict[str, Any] | TextFailure]:
            told = self.model.next_token_logprobs(missing, style.words, after=style.key, top=self.top)
            for answer in told:
                if isinstance(answer, TextFailure):
                    yield answer
                else:
                    yield {"logprobs": [x if math.isfinite(x) else None for x in answer]}

        found = self.kept(keys, prompts, ask)
        return [
            x
            if isinstance(x, TextFailure)
            else tuple(-math.inf if math.isnan(p) else p for p in self.work.array(x, "logprobs", 2).tolist())
            for x in found
        ]

    def texts(self, prompts: Sequence[str]) -> list[str | TextFailure]:
        """What is written behind each prompt, up to an empty line."""
        keys = [self.key(prompt=prompt, settings=self.model.settings) for prompt in prompts]

        def ask(missing: Sequence[str]) -> Iterator[dict[str, Any] | TextFailure]:
            for answer in self.model.complete(missing):
                yield answer if isinstance(answer, TextFailure) else {"text": answer}

        found = self.kept(keys, prompts, ask)
        where = f"{self.work.path}"
        texts = [x if isinstance(x, TextFailure) else field(x, "text", str, where) for x in found]
        return [x if isinstance(x, TextFailure) else x.split("\n\n")[0] for x in texts]

    def fitting(self, prompts: Sequence[str], few: FewShot) -> list[str]:
        """With --truncate, the ends of prompts that are too long."""
        if self.local is None or not self.args.truncate or self.local.limit is None:
            return list(prompts)
        room = self.room(few)
        return [last_tokens(self.local.tokenizer, prompt, room) for prompt in prompts]

    def key(self, **parts: Any) -> str:
        """All that an answer depends on."""
        return work_key(protocol="feature-bias", model=self.model.name, **parts)

    def kept(
        self, keys: Sequence[str], prompts: Sequence[str], ask: Ask
    ) -> list[dict[str, Any] | TextFailure]:
        """Records by key, asked for where they are missing.

        A local model reads a chunk whole or not at all, so that the batches, and with them the last bits of
        its numbers, are those of a run that was not interrupted. An endpoint is asked what is missing.
        """
        failures: dict[str, TextFailure] = {}
        size = self.chunk or max(1, len(keys))
        for start in range(0, len(keys), size):
            chunk = dict(zip(keys[start : start + size], prompts[start : start + size], strict=True))
            missing = {key: prompt for key, prompt in chunk.items() if self.work.get(key) is None}
            if not missing:
                continue
            asked = missing if self.local is None else chunk
            for key, answer in zip(asked, ask(list(asked.values())), strict=True):
                if isinstance(answer, TextFailure):
                    failures[key] = answer
                elif key in missing:
                    self.work.add(key, **answer)
        return [self.work.get(key) or failures[key] for key in keys]
