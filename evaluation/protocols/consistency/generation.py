"""Continuations of prompts by a language model, with or without debiasing, each made once.

A local causal model writes exactly as many tokens as asked (probes spec A2, A3); an endpoint writes what it
will, and only what needs no logits.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tqdm import tqdm

from models.language.open_model import open_text_model
from models.language.text_models import TextFailure
from storage.finished_work import FinishedWork, work_key
from storage.json_files import field

if TYPE_CHECKING:
    from models.language.local_model import LocalTextModel
    from models.language.perplexity import Chunk, ChunkLoss

BEAMS = 3
COUNTED = 1000
"""Texts tokenised at once when tokens are counted: all of a run's would take a gigabyte."""


class Request(NamedTuple):
    """What to continue, and what to steer away from (self-debiasing)."""

    prompt: str
    prefixes: tuple[str, ...] = ()


class Writer(Protocol):
    """Continues prompts."""

    @property
    def name(self) -> str:
        """As in `models.language.text_models`."""

    @property
    def settings(self) -> dict[str, Any]:
        """All that continuations depend on besides the name and the request."""

    def check(self, requests: Sequence[Request]) -> None:
        """Raise ValueError for requests that cannot be continued."""

    def write(self, requests: Sequence[Request]) -> Iterator[str | TextFailure]:
        """The continuation of each, in order, without the prompt. All have the same number of prefixes."""


def open_writer(args: argparse.Namespace) -> Writer:
    """The writer of `--model`.

    Raises:
        ValueError: there is none, or it cannot do what the other flags ask for.
    """
    local = args.model.startswith("hf:")
    if args.sample and args.beams not in (None, 1):
        raise ValueError(f"--beams {args.beams} with --sample: beams are not drawn; leave one of them out")
    if not local and args.model.startswith("openai:"):
        if args.method == "self":
            raise ValueError(
                f"{args.model}: self-debiasing needs the model's logits, which an endpoint does not give; "
                "take a local model (hf:FOLDER_OR_HUB_NAME) or --method instructive"
            )
        if args.sample or args.beams:
            raise ValueError(f"{args.model}: --sample and --beams are for local models (hf:)")
        if args.perplexity:
            raise ValueError(f"{args.model}: --perplexity needs the model's logits; take a local model (hf:)")
        return EndpointWriter(args)
    if not local:
        raise ValueError(
            f"--model {args.model!r} is no language model; write hf:FOLDER_OR_HUB_NAME or openai:MODEL[@URL]"
        )
    return LocalWriter(args)


class EndpointWriter:
    """An OpenAI-compatible endpoint at temperature 0. An empty answer is an empty continuation."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._model = open_text_model(
            args.model,
            max_new_tokens=args.new_tokens,
            batch_size=args.batch_size,
            completions=args.completions,
        )
        self.name = self._model.name
        self.settings: dict[str, Any] = dict(self._model.settings)

    def check(self, requests: Sequence[Request]) -> None:
        """Endpoints do not tell what fits them."""

    def write(self, requests: Sequence[Request]) -> Iterator[str | TextFailure]:
        for answer in self._model.complete([request.prompt for request in requests]):
            empty = isinstance(answer, TextFailure) and answer.reason == "empty answer"
            yield "" if empty else answer


class LocalWriter:
    """A causal model of transformers. No special tokens are put around prompts (spec A2)."""

    def __init__(self, args: argparse.Namespace) -> None:
        from transformers.utils.logging import disable_progress_bar

        from models.language.local_model import LocalTextModel
        from models.language.self_debiasing import DECAY, FLOOR, TOP_K

        disable_progress_bar()  # of reading weights, a blink
        path = args.model.removeprefix("hf:")
        self.local: LocalTextModel = LocalTextModel(
            path,
            max_new_tokens=args.new_tokens,
            device=args.device,
            batch_size=args.batch_size,
            chat_template=False,
        )
        if "steer" not in self.local.can:
            raise ValueError(
                f"{args.model} is no causal model: it does not continue prompts; take one that does"
            )
        self.name = self.local.name
        self.new_tokens = args.new_tokens
        self.beams = 1 if args.sample else args.beams or BEAMS
        self.seed: int | None = args.seed if args.sample else None
        self.debiasing: dict[str, Any] = {
            "decay": DECAY if args.decay is None else args.decay,
            "floor": FLOOR,
        }
        drawn = {"sample": True, "seed": args.seed, "top_k": TOP_K} if args.sample else {"beams": self.beams}
        self.settings: dict[str, Any] = {
            "new_tokens": args.new_tokens,
            **drawn,
            **{name: self.local.settings[name] for name in ("dtype", "weights", "tokenizer")},
        }

    def check(self, requests: Sequence[Request]) -> None:
        """Raise ValueError for a prompt without tokens, or one that with its prefixes and the new tokens
        leaves the model's context."""
        texts = list(dict.fromkeys(text for request in requests for text in read(request)))
        limit = self.local.limit
        needed = [
            len(row) + self.new_tokens
            for start in range(0, len(texts), COUNTED)
            for row in self.local.plain_ids(texts[start : start + COUNTED])
        ]
        if self.new_tokens in needed:
            empty = texts[needed.index(self.new_tokens)]
            raise ValueError(f"{self.name}: the prompt {_short(empty)} has no tokens; remove it")
        if limit is None or max(needed) <= limit:
            return
        longest = max(range(len(texts)), key=needed.__getitem__)
        raise ValueError(
            f"{self.name} takes {limit} tokens, and {sum(n > limit for n in needed)} of {len(texts)} texts "
            f"(prompts with what stands in front of them) do not fit with {self.new_tokens} new ones; the "
            f"longest has {needed[longest] - self.new_tokens}: {_short(texts[longest])}. Shorten or remove "
            "such prompts, or take fewer --new-tokens"
        )

    def write(self, requests: Sequence[Request]) -> Iterator[str | TextFailure]:
        yield from self.local.continuations(
            [request.prompt for request in requests],
            [request.prefixes for request in requests],
            beams=self.beams,
            seeds=None if self.seed is None else [draw_seed(self.seed, each.prompt) for each in requests],
            **self.debiasing,
        )

    def longest_chunk(self, prefixes: Sequence[str]) -> int:
        """How many tokens a chunk may have when perplexity is measured behind these prefixes.

        Raises:
            ValueError: a prefix does not fit the place reserved for it, or the context has no room.
        """
        from models.language.perplexity import RESERVED

        for prefix, row in zip(prefixes, self.local.plain_ids(prefixes), strict=True):
            if len(row) > RESERVED:
                raise ValueError(
                    f"--perplexity keeps {RESERVED} tokens for prefixes, and this one has {len(row)}: "
                    f"{_short(prefix)}; shorten it"
                )
        if not self.local.limit or self.local.limit < RESERVED + 2:
            raise ValueError(
                f"--perplexity: a context of {self.local.limit} tokens has no room behind {RESERVED}"
            )
        return self.local.limit - RESERVED

    def text_ids(self, text: str) -> list[int]:
        """Token ids of a long text."""
        return self.local.plain_ids([text])[0]

    def chunk_losses(self, ids: Sequence[int], prefixes: Sequence[str], at: Chunk) -> ChunkLoss:
        """Regular and debiased loss of a chunk (models/language/perplexity.py)."""
        from models.language.perplexity import chunk_loss

        model, rows = self.local.model, self.local.plain_ids(prefixes)
        return chunk_loss(
            model, ids[at.begin : at.end], at.targets, rows, pad=self.local.pad, **self.debiasing
        )


def request_key(writer: Writer, request: Request) -> str:
    """Of all that a continuation depends on; without prefixes not of the strength of debiasing."""
    debiasing = getattr(writer, "debiasing", {}) if request.prefixes else {}
    return work_key(
        kind="continuation",
        model=writer.name,
        settings=writer.settings,
        debiasing=debiasing,
        prompt=request.prompt,
        prefixes=request.prefixes,
    )


def continuations(
    writer: Writer, requests: Sequence[Request], work: FinishedWork, bar: tqdm[Any]
) -> list[str | TextFailure]:
    """What the writer writes to each request; what `work` holds is not written again. Failures are not kept.

    Raises:
        DataError: a record of `work` is none of a continuation.
    """
    keys = [request_key(writer, request) for request in requests]
    asked = {key: request for key, request in zip(keys, requests, strict=True) if key not in work}
    # Texts of a length stand in a batch together: less padding is read. The longest come first, so that what
    # does not fit into memory is told at once.
    new = dict(sorted(asked.items(), key=lambda item: -len(item[1].prompt)))
    bar.update(len(requests) - len(new))
    failed: dict[str, TextFailure] = {}
    for key, answer in zip(new, writer.write(list(new.values())), strict=True):
        if isinstance(answer, TextFailure):
            failed[key] = answer
        else:
            work.add(key, text=answer)
        bar.update()
    return [
        failed[key] if key in failed else field(work.get(key), "text", str, f"{work.path}") for key in keys
    ]


def read(request: Request) -> Iterator[str]:
    """The texts that a model reads for a request."""
    yield request.prompt
    for prefix in request.prefixes:
        yield prefix + request.prompt


def draw_seed(seed: int, prompt: str) -> int:
    """The seed of a prompt's draws. All variants of self-debiasing draw from the same numbers, so that they
    differ in what debiasing does."""
    return int.from_bytes(hashlib.sha256(f"{seed} {prompt}".encode()).digest()[:7])


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
