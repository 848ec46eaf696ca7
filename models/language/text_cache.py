"""Answers of a text model kept in a JSONL file: nothing is asked twice, and no finished work is lost.

    model = CachedTextModel(open_text_model("hf:gpt2"), Path("answers.jsonl"), max_requests=500)

One line an answer: `{key, model, settings, prompt, text, time}`, appended as it comes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from models.language.open_model import open_text_model
from models.language.text_models import Ability, Settings, TextFailure, TextModel
from storage.finished_work import FinishedWork

if TYPE_CHECKING:
    from torch import Tensor

BOUND_REACHED = TextFailure("max requests reached")


class CachedTextModel(TextModel):
    """A text model that remembers its answers.

    Failures are not kept: the next run tries them again. An answer counts for the same model name, settings
    and prompt only.

    Args:
        model: answers what the file does not know.
        path: the JSONL file, made where it is absent; None remembers for the lifetime of the object.
        max_requests: how many prompts may go to the model in all; the rest fail with `max requests reached`,
            and a later run with the same file goes on there. (An endpoint's own repetitions do not count.)

    Raises:
        DataError: the file is no such cache, or cannot be read or written.
    """

    def __init__(self, model: TextModel, path: Path | None, *, max_requests: int | None = None) -> None:
        if max_requests is not None and max_requests < 0:
            raise ValueError(f"max_requests must be 0 or more, not {max_requests}")
        self.model, self.path, self.max_requests = model, path, max_requests
        self.name: str = model.name
        self.settings: Settings = model.settings
        self.can: frozenset[Ability] = model.can
        self.requests = 0
        """Prompts that went to the model so far."""
        self._work = FinishedWork(path, required=("text",))

    def complete(self, prompts: Sequence[str]) -> Iterator[str | TextFailure]:
        keys = [cache_key(self.name, self.settings, prompt) for prompt in prompts]
        new = {key: prompt for key, prompt in zip(keys, prompts, strict=True) if key not in self._work}
        if self.max_requests is not None:
            new = dict(list(new.items())[: max(0, self.max_requests - self.requests)])
        failed: dict[str, TextFailure] = {}
        answers = self.model.complete(list(new.values())) if new else iter(())
        try:
            for key in keys:
                if key in new and key not in self._work and key not in failed:
                    # Of the prompts sent, this is the next that has no answer yet: both are in one order.
                    answer = next(answers)
                    self.requests += 1
                    if isinstance(answer, TextFailure):
                        failed[key] = answer
                    else:
                        self._keep(key, new[key], answer)
                record = self._work.get(key)
                yield record["text"] if record else failed.get(key, BOUND_REACHED)
        finally:
            self._work.close()

    def log_likelihoods(self, pairs: Sequence[tuple[str, str]]) -> Tensor:
        """Those of the model; not kept."""
        return self.model.log_likelihoods(pairs)

    def next_token_logprobs(
        self, prompts: Sequence[str], labels: Sequence[str], *, after: str = "", top: int = 0
    ) -> Iterator[tuple[float, ...] | TextFailure]:
        """Those of the model; not kept."""
        return self.model.next_token_logprobs(prompts, labels, after=after, top=top)

    def _keep(self, key: str, prompt: str, text: str) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._work.add(key, model=self.name, settings=self.settings, prompt=prompt, text=text, time=now)


def cache_key(model: str, settings: Settings, prompt: str) -> str:
    """sha256 of model name, settings (in whatever order) and prompt."""
    return hashlib.sha256(json.dumps([model, settings, prompt], sort_keys=True).encode()).hexdigest()


def open_cached_model(
    name: str, cache: Path | None, *, max_requests: int | None = None, seed: int = 0
) -> CachedTextModel:
    """A model by name, with its answers remembered. ValueError as from both."""
    return CachedTextModel(open_text_model(name, seed=seed), cache, max_requests=max_requests)
