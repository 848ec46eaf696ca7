"""Continuations of prompts by a language model, with or without debiasing, each made once.

A local causal model writes exactly as many tokens as asked (probes spec A2, A3); an endpoint writes what it
will, and only what needs no logits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar

from tqdm import tqdm

from evaluation.protocols.consistency.decoding import Decoding
from evaluation.protocols.consistency.specifications import Method
from metrics.consistency import Domain, Variant
from models.language.local_model import LocalTextModel
from models.language.open_model import open_text_model
from models.language.self_debiasing import DECAY, FLOOR, TOP_K
from models.language.text_models import TextFailure
from storage.finished_work import FinishedWork, work_key
from storage.json_files import check

Piece = TypeVar("Piece")
Answer = TypeVar("Answer")

BEAMS = 3
COUNTED = 1000
"""Texts tokenised at once when tokens are counted: all of a run's would take a gigabyte."""


class Request(NamedTuple):
    """What to continue, and what to steer away from (self-debiasing)."""

    prompt: str
    prefixes: tuple[str, ...] = ()

    @property
    def texts(self) -> list[str]:
        """What a model reads."""
        return [self.prompt, *(prefix + self.prompt for prefix in self.prefixes)]


class Part(NamedTuple):
    """What stands in front of all prompts of one variant."""

    variant: Variant
    group: int | None
    """Of nonsense."""
    texts: tuple[str, ...]
    """Prefixes (self), one instruction (instructive), none (default)."""

    def request(self, method: Method, prompt: str) -> Request:
        """Prefixes stand beside the prompt, an instruction in front of it."""
        if method == "self":
            return Request(prompt, tuple(dict.fromkeys(self.texts)))
        return Request("".join(self.texts) + prompt)


class Continued(NamedTuple):
    """The continuations of a domain's prompts in one part, in their order."""

    domain: Domain
    part: Part
    texts: list[str | TextFailure]


class Writer:
    """A language model that continues prompts as the flags say.

    Args:
        model: `hf:PATH` or `openai:MODEL[@URL]`.
        method: of debiasing.
        decoding: how it writes.

    Raises:
        ValueError: there is no such model, or it does not continue prompts.
    """

    def __init__(self, model: str, method: Method, decoding: Decoding) -> None:
        self.model = open_text_model(
            model,
            max_new_tokens=decoding.new_tokens,
            device=decoding.device,
            batch_size=decoding.batch_size,
            chat_template=False,
            completions=decoding.completions,
        )
        self.local: LocalTextModel | None = None
        self.new_tokens = decoding.new_tokens
        self.settings: dict[str, Any] = dict(self.model.settings)
        self.debiasing: dict[str, Any] = {}
        if isinstance(self.model, LocalTextModel):
            if "steer" not in self.model.can:
                raise ValueError(
                    f"{model} is no causal model: it does not continue prompts; take one that does"
                )
            self.local = self.model
            self.beams = 1 if decoding.sample else decoding.beams or BEAMS
            self.seed = decoding.seed if decoding.sample else None
            drawn = {"sample": True, "seed": decoding.seed, "top_k": TOP_K}
            self.settings = {
                "new_tokens": decoding.new_tokens,
                **(drawn if decoding.sample else {"beams": self.beams}),
                **{name: self.model.settings[name] for name in ("dtype", "weights", "tokenizer")},
            }
        if method == "self":
            decay = DECAY if decoding.decay is None else decoding.decay
            self.debiasing = {"decay": decay, "floor": FLOOR}

    def key(self, request: Request) -> str:
        """Of all that a continuation depends on; without prefixes not of the strength of debiasing."""
        return work_key(
            kind="continuation",
            model=self.model.name,
            settings=self.settings,
            debiasing=self.debiasing if request.prefixes else {},
            prompt=request.prompt,
            prefixes=request.prefixes,
        )

    def check(self, requests: Sequence[Request]) -> None:
        """ValueError for a prompt without tokens, or one that with its prefixes and the new tokens leaves a
        local model's context. (Endpoints do not tell what fits them.)"""
        if self.local is None:
            return
        texts = list(dict.fromkeys(text for request in requests for text in request.texts))
        lengths = [
            len(row)
            for start in range(0, len(texts), COUNTED)
            for row in self.local.plain_ids(texts[start : start + COUNTED])
        ]
        if 0 in lengths:
            empty = texts[lengths.index(0)]
            raise ValueError(f"{self.model.name}: the prompt {short(empty)} has no tokens; remove it")
        room = None if self.local.limit is None else self.local.limit - self.new_tokens
        if room is not None and max(lengths) > room:
            longest = max(range(len(texts)), key=lengths.__getitem__)
            raise ValueError(
                f"{self.model.name} takes {self.local.limit} tokens, and {sum(n > room for n in lengths)} of "
                f"{len(texts)} texts (prompts with what stands in front of them) do not fit with "
                f"{self.new_tokens} new ones; the longest has {lengths[longest]}: {short(texts[longest])}. "
                "Shorten or remove such prompts, or take fewer --new-tokens"
            )

    def write(self, requests: Sequence[Request]) -> Iterator[str | TextFailure]:
        """The continuation of each, in order, without the prompt. All have the same number of prefixes."""
        prompts = [request.prompt for request in requests]
        if self.local is not None:
            yield from self.local.continuations(
                prompts,
                [request.prefixes for request in requests],
                beams=self.beams,
                seeds=None if self.seed is None else [draw_seed(self.seed, prompt) for prompt in prompts],
                **self.debiasing,
            )
            return
        for answer in self.model.complete(prompts):
            empty = isinstance(answer, TextFailure) and answer.reason == "empty answer"
            yield "" if empty else answer


def continuations(
    writer: Writer, requests: Mapping[tuple[Domain, Part], Sequence[Request]], work: FinishedWork
) -> list[Continued]:
    """What the writer writes to all requests; DataError where a record of `work` is no continuation."""
    continued = []
    with tqdm(total=sum(map(len, requests.values())), desc="writing", unit="text", disable=None) as bar:
        for (domain, part), asked in requests.items():
            keys = [writer.key(request) for request in asked]
            # Texts of a length stand in a batch together: less padding is read. The longest come first, so
            # that what does not fit into memory fails at once.
            pairs = sorted(zip(keys, asked, strict=True), key=lambda pair: -len(pair[1].prompt))
            texts = finished(work, dict(pairs), writer.write, "text", str, bar)
            continued.append(Continued(domain, part, [texts[key] for key in keys]))
    return continued


def finished(
    work: FinishedWork,
    pieces: Mapping[str, Piece],
    ask: Callable[[list[Piece]], Iterable[Answer | TextFailure]],
    name: str,
    kind: type[Answer],
    bar: tqdm[NoReturn],
) -> dict[str, Answer | TextFailure]:
    """The answers to all pieces by key; those that `work` holds are not asked for again.

    Args:
        work: keeps answers, but no failures.
        pieces: what to ask, by key.
        ask: yields an answer to each, in order.
        name: the field of the answer in a record.
        kind: its type.
        bar: shows how many pieces are done.

    Raises:
        DataError: a record holds something else.
    """
    new = {key: piece for key, piece in pieces.items() if key not in work}
    bar.update(len(pieces) - len(new))
    failures: dict[str, TextFailure] = {}
    for key, answer in zip(new, ask(list(new.values())), strict=True):
        if isinstance(answer, TextFailure):
            failures[key] = answer
        else:
            work.add(key, **{name: answer})
        bar.update()
    where = f"{work.path}, the field {name!r}"
    return {key: failures.get(key) or check((work.get(key) or {}).get(name), kind, where) for key in pieces}


def draw_seed(seed: int, prompt: str) -> int:
    """The seed of a prompt's draws. All variants of self-debiasing draw from the same numbers, so that they
    differ in what debiasing does."""
    return int.from_bytes(hashlib.sha256(f"{seed} {prompt}".encode()).digest()[:7])


def short(text: str) -> str:
    """A text in an error message."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
