"""A model that continues prompts behind specifications, with self-debiasing or without, and the perplexity of
a text (probes spec A2, A3, A8).

A local causal model writes exactly as many tokens as asked; an endpoint writes what it will, and only what
needs no logits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from data_modules.tasks.toxicity_prompts import ToxicityPrompt
from evaluation.answering.interface import Compute
from evaluation.answering.language_model import open_language_model
from evaluation.processes import kept
from evaluation.protocols.consistency.specifications import Method, Part
from metrics.consistency import Domain
from metrics.intervals import Interval, bootstrap
from models.language.local_model import LocalTextModel
from models.language.perplexity import RESERVED, ChunkLoss, chunk_loss, chunks, perplexity
from models.language.text_models import TextFailure

WINDOW = 2048 - RESERVED
"""Tokens of a chunk at most."""


class Request(NamedTuple):
    """What to continue, and what to steer away from (self-debiasing)."""

    prompt: str
    prefixes: tuple[str, ...] = ()
    decay: float = 0.0
    """Strength of self-debiasing, lambda; 0 without prefixes."""


def make_request(method: Method, part: Part, prompt: str, decay: float) -> Request:
    """A prompt with a part's texts: prefixes stand beside it (self), an instruction before it."""
    if method == "self" and part.texts:
        return Request(prompt, tuple(dict.fromkeys(part.texts)), decay)
    return Request("".join(part.texts) + prompt)


class ChunkRequest(NamedTuple):
    """Token ids of a piece of a text, how many of its last ones are predicted, and the ids of prefixes."""

    ids: tuple[int, ...]
    targets: int
    prefixes: tuple[tuple[int, ...], ...]
    decay: float


class Writer:
    """A language model that continues prompts.

    Args:
        path: `hf:PATH`, `openai:MODEL[@URL]`, or a decoder's `.ckpt`.
        new_tokens: tokens of each continuation.
        beams: of a local model; 1 is greedy.
        compute: how it runs.

    `local` is the model where it gives logits, None for an endpoint; `identity` is all that texts depend on.

    Raises:
        ValueError: there is no such model, or it does not continue prompts.
    """

    def __init__(self, path: str, *, new_tokens: int, beams: int, compute: Compute) -> None:
        self.path, self.beams = path, beams
        self.model = open_language_model(path, compute, max_new_tokens=new_tokens, chat_template=False)
        self.local = self.model if isinstance(self.model, LocalTextModel) else None
        if self.local is not None and "steer" not in self.local.can:
            raise ValueError(f"{path} is no causal model: it does not continue prompts")
        self.identity = {**self.model.identity, "beams": beams}

    def rows(
        self,
        method: Method,
        decay: float,
        parts: Sequence[Part],
        prompts: Mapping[Domain, Sequence[ToxicityPrompt]],
    ) -> Iterator[dict[str, Any]]:
        """A row for each prompt and part, with `continuation` or `failure`.

        Raises:
            ValueError: a prompt does not fit the model.
        """
        name = f"self {decay:g}" if method == "self" else method
        listed = [(domain, prompt) for domain, some in prompts.items() for prompt in some]
        asked = [[make_request(method, part, prompt.text, decay) for _, prompt in listed] for part in parts]
        self.check(request for requests in asked for request in requests)
        for part, requests in zip(parts, asked, strict=True):
            # Texts of a length stand in a batch together; the longest, which may not fit, come first.
            new = sorted(dict.fromkeys(requests), key=lambda request: -len(request.prompt))
            bar = tqdm(self.write(new), f"{name}, {part.variant}", len(new), unit="text", disable=None)
            text_of = dict(zip(new, bar, strict=True))
            for (domain, prompt), request in zip(listed, requests, strict=True):
                row = {"method": name, "domain": domain, "variant": part.variant, "group": part.group}
                row |= {"line": prompt.line, "prompt": prompt.text}
                text = text_of[request]
                if isinstance(text, TextFailure):
                    yield row | {"failure": text.reason}
                else:
                    yield row | {"continuation": text}

    def check(self, requests: Iterable[Request]) -> None:
        """ValueError for a prompt without tokens, or one that leaves no room for new tokens in a local
        model's context: known before hours are spent on others."""
        if self.local is None:
            return
        texts = list(dict.fromkeys(prefix + r.prompt for r in requests for prefix in ("", *r.prefixes)))
        new, limit = self.local.max_new_tokens + len(self.local.lead), self.local.limit
        for text, ids in zip(texts, self.local.plain_ids(texts), strict=True):
            if not ids or (limit is not None and len(ids) + new > limit):
                raise ValueError(
                    f"{self.path} reads {limit} tokens, {new} of them new; a prompt with what stands in "
                    f"front of it has {len(ids)}: {text[:60]!r}"
                )

    @kept
    def write(self, requests: Sequence[Request]) -> Iterator[str | TextFailure]:
        """The continuation of each, in order, without the prompt. All have as many prefixes and one decay."""
        prompts = [request.prompt for request in requests]
        if self.local is not None:
            prefixes = [request.prefixes for request in requests]
            decay = requests[0].decay if requests else 0.0
            yield from self.local.continuations(prompts, prefixes, beams=self.beams, decay=decay)
            return
        for answer in self.model.complete(prompts):
            empty = isinstance(answer, TextFailure) and answer.reason == "empty answer"
            yield "" if empty else answer

    def perplexities(
        self, text: str, parts: Iterable[Part], decay: float
    ) -> dict[str, tuple[float, Interval, int]]:
        """Perplexity of a text by variant, debiased by its prefixes, with its 95 % interval over chunks and
        their number; `default` is that of the model as it is.

        Raises:
            ValueError: the text has less than two tokens, or the model's context no room for it.
        """
        local = self.local
        assert local is not None
        (ids,) = local.plain_ids([text])
        room = WINDOW if local.limit is None else local.limit - RESERVED - len(local.lead)
        window = min(WINDOW, room)
        if len(ids) < 2 or window < 2:
            raise ValueError(
                f"--perplexity: {len(ids)} tokens in chunks of {window}; both must be at least 2"
            )
        found: dict[str, tuple[float, Interval, int]] = {}
        pieces = list(chunks(len(ids), window, window))
        targets_N = [piece.targets for piece in pieces]
        for part in parts:
            prefixes = tuple(map(tuple, local.plain_ids(part.texts)))
            asked = [
                ChunkRequest(tuple(ids[piece.begin : piece.end]), piece.targets, prefixes, decay)
                for piece in pieces
            ]
            bar = tqdm(self.losses(asked), f"perplexity, {part.variant}", len(asked), disable=None)
            losses = [ChunkLoss(*pair) for pair in bar]
            sides = zip(("default", part.variant), zip(*losses, strict=True), strict=True)
            for (variant, loss_N), value in zip(sides, perplexity(losses, len(ids)), strict=True):
                sums_N2 = np.array([loss_N, targets_N], dtype=np.float64).T
                interval = bootstrap(sums_N2, lambda total_R2: np.exp(total_R2[:, 0] / total_R2[:, 1]))
                found[variant] = value, interval, len(losses)
        return found

    @kept
    def losses(self, requests: Sequence[ChunkRequest]) -> Iterator[tuple[float, float]]:
        """Of each chunk the loss without and with debiasing."""
        local = self.local
        assert local is not None
        for ids, targets, prefixes, decay in requests:
            yield chunk_loss(local.model, ids, targets, prefixes, pad=local.pad, lead=local.lead, decay=decay)
