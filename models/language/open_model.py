"""Language models by name, and their answers kept: nothing is asked twice, and no finished work is lost.

model = open_text_model("hf:google/flan-t5-small")
model = open_text_model("openai:gpt-4o-mini")                         # the key from OPENAI_API_KEY
model = open_text_model("openai:llama3@http://localhost:11434/v1")
model = CachedTextModel(model, Path("answers.jsonl"), max_requests=500)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from models.language.text_models import Ability, Settings, TextFailure, TextModel
from storage.finished_work import FinishedWork

MOST_AT_ONCE = 8
"""Requests that an endpoint gets at the same time."""
BOUND_REACHED = TextFailure("max requests reached")


def open_text_model(
    spec: str,
    *,
    max_new_tokens: int = 64,
    device: str = "auto",
    dtype: str = "auto",
    batch_size: int = 8,
    seed: int = 0,
    chat_template: bool = True,
    completions: bool = False,
) -> TextModel:
    """A model by name. Decoding is greedy (temperature 0).

    Args:
        spec: `openai:MODEL[@BASE_URL]` (else the base URL in OPENAI_BASE_URL, else OpenAI's own; the key in
            OPENAI_API_KEY, which a local endpoint may not need) or `hf:PATH_OR_NAME`.
        max_new_tokens: bound on the length of an answer.
        device: of a local model: `auto`, or a device of torch.
        dtype: of a local model's weights: `auto`, or a float type of torch.
        batch_size: prompts that a local model reads at once; at most 8 requests in flight to an endpoint.
        seed: is sent to an endpoint unless 0; a local model's greedy decoding knows no chance.
        chat_template: present prompts to a local model as a user's turn, if its tokenizer has a template.
        completions: have an endpoint continue the bare prompt (`/completions`) rather than answer a turn.

    Raises:
        ValueError: no such kind of model, its key is missing, or it cannot be loaded.
    """
    kind, _, name = spec.partition(":")
    if max_new_tokens < 1 or batch_size < 1:
        raise ValueError("max_new_tokens and batch_size must be at least 1")
    if kind == "openai" and name:
        from models.language.endpoint import EndpointTextModel

        return EndpointTextModel(
            name,
            max_new_tokens=max_new_tokens,
            seed=seed,
            parallel=min(batch_size, MOST_AT_ONCE),
            completions=completions,
        )
    if kind == "hf" and name:
        from models.language.local_model import LocalTextModel

        return LocalTextModel(
            name,
            max_new_tokens=max_new_tokens,
            device=device,
            dtype=dtype,
            batch_size=batch_size,
            chat_template=chat_template,
        )
    raise ValueError(
        f"no text model {spec!r}; write openai:MODEL, openai:MODEL@http://HOST/v1 or hf:FOLDER_OR_HUB_NAME"
    )


class CachedTextModel(TextModel):
    """A text model that remembers what it wrote; one line of the file an answer: `{key, model, settings,
    prompt, text, time}`, appended as it comes.

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

    can = frozenset[Ability]({"write"})

    def __init__(
        self,
        model: TextModel,
        path: Path | None,
        *,
        max_requests: int | None = None,
    ) -> None:
        if max_requests is not None and max_requests < 0:
            raise ValueError(f"max_requests must be 0 or more, not {max_requests}")
        self.model, self.max_requests = model, max_requests
        self.name: str = model.name
        self.settings: Settings = model.settings
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
        for key in keys:
            if key in new and key not in self._work and key not in failed:
                # Of the prompts sent, this is the next that has no answer yet: both are in one order.
                answer = next(answers)
                self.requests += 1
                if isinstance(answer, TextFailure):
                    failed[key] = answer
                else:
                    now = datetime.now(UTC).isoformat(timespec="seconds")
                    about = {"model": self.name, "settings": self.settings, "prompt": new[key]}
                    self._work.add(key, **about, text=answer, time=now)
            record = self._work.get(key)
            yield record["text"] if record else failed.get(key, BOUND_REACHED)


def cache_key(model: str, settings: Settings, prompt: str) -> str:
    """sha256 of model name, settings (in whatever order) and prompt."""
    return hashlib.sha256(json.dumps([model, settings, prompt], sort_keys=True).encode()).hexdigest()


def open_cached_model(
    name: str, cache: Path | None, *, max_requests: int | None = None, seed: int = 0, dtype: str = "auto"
) -> CachedTextModel:
    """A model by name, with its answers remembered. ValueError as from both."""
    return CachedTextModel(open_text_model(name, seed=seed, dtype=dtype), cache, max_requests=max_requests)
