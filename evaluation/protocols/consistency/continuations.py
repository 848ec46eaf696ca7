"""Continuations of prompts by a language model, with or without debiasing, and their scores; each made once.

A local causal model writes exactly as many tokens as asked (probes spec A2, A3); an endpoint writes what it
will, and only what needs no logits.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tqdm import tqdm

from evaluation.protocols.consistency.decoding import Decoding
from evaluation.protocols.consistency.specifications import Method
from evaluation.scorers.interface import Scorer, Scores
from models.language.local_model import LocalTextModel
from models.language.open_model import open_text_model
from models.language.self_debiasing import DECAY, FLOOR, TOP_K
from models.language.text_models import TextFailure
from storage.errors import DataError
from storage.finished_work import FinishedWork, work_key
from storage.json_files import check

BEAMS = 3
COUNTED = 1000
"""Texts tokenised at once when tokens are counted: all of a run's would take a gigabyte."""


class Request(NamedTuple):
    """What to continue, and what to steer away from (self-debiasing)."""

    prompt: str
    prefixes: tuple[str, ...] = ()


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

    def check(self, requests: Iterable[Request]) -> None:
        """ValueError for a prompt without tokens, or one that with its prefixes and the new tokens leaves a
        local model's context. (Endpoints do not tell what fits them.)"""
        if self.local is None:
            return
        texts = list(dict.fromkeys(prefix + r.prompt for r in requests for prefix in ("", *r.prefixes)))
        lengths = [
            len(row)
            for start in range(0, len(texts), COUNTED)
            for row in self.local.plain_ids(texts[start : start + COUNTED])
        ]
        if 0 in lengths:
            empty = texts[lengths.index(0)]
            raise ValueError(f"{self.model.name}: the prompt {short(empty)} has no tokens; remove it")
        new, limit = self.local.max_new_tokens, self.local.limit
        if limit is not None and max(lengths) > limit - new:
            longest = max(range(len(texts)), key=lengths.__getitem__)
            raise ValueError(
                f"{self.model.name} takes {limit} tokens, and {sum(n > limit - new for n in lengths)} of "
                f"{len(texts)} texts (prompts with what stands in front of them) do not fit with {new} new "
                f"ones; the longest has {lengths[longest]}: {short(texts[longest])}. Shorten or remove such "
                "prompts, or take fewer --new-tokens"
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
        self, requests: Sequence[Request], work: FinishedWork, bar: tqdm[Any]
    ) -> list[str | TextFailure]:
        """The same, each written once; DataError where a record of `work` is no continuation."""
        keys = [
            work_key(
                kind="continuation",
                model=self.model.name,
                settings=self.settings,
                # Without prefixes nothing depends on the strength of debiasing.
                debiasing=self.debiasing if request.prefixes else {},
                prompt=request.prompt,
                prefixes=request.prefixes,
            )
            for request in requests
        ]
        # Texts of a length stand in a batch together: less padding is read. The longest come first, so that
        # what does not fit into memory fails at once.
        pairs = sorted(zip(keys, requests, strict=True), key=lambda pair: -len(pair[1].prompt))
        found = {}
        for key, text in work.results(dict(pairs), self.write, "text", TextFailure):
            failed = isinstance(text, TextFailure)
            found[key] = text if failed else check(text, str, f"{work.path}, the field 'text'")
            bar.update()
        return [found[key] for key in keys]


def text_scores(
    scorer: Scorer, texts: Iterable[str], work: FinishedWork, *, show: bool = False
) -> Mapping[str, Scores | TextFailure]:
    """Text to scores, each text scored once.

    Raises:
        DataError: a record of `work` is none of scores.
        ValueError: the scorer says less, or other things, than it promises.
    """
    parts = {"scorer": scorer.name, "version": scorer.version, "attributes": scorer.attributes}
    text_of = {work_key(kind="scores", **parts, text=text): text for text in texts}

    def checked(scores: Scores | TextFailure, where: str) -> Scores | TextFailure:
        if isinstance(scores, TextFailure):
            return scores
        for name in scorer.attributes:
            value = check(scores, dict[str, float], where).get(name, math.nan)
            if not 0 <= value <= 1:
                raise DataError(f"{where}: {name} = {value} is no score between 0 and 1")
        return scores

    def ask(new: list[str]) -> Iterator[Scores | TextFailure]:
        return (checked(scores, scorer.name) for scores in scorer.score(new))

    results = work.results(text_of, ask, "scores", TextFailure)
    shown = tqdm(results, total=len(text_of), desc="scoring", unit="text", disable=None if show else True)
    return {text_of[key]: checked(scores, f"{work.path}, the field 'scores'") for key, scores in shown}


def draw_seed(seed: int, prompt: str) -> int:
    """The seed of a prompt's draws. All variants of self-debiasing draw from the same numbers, so that they
    differ in what debiasing does."""
    return int.from_bytes(hashlib.sha256(f"{seed} {prompt}".encode()).digest()[:7])


def short(text: str) -> str:
    """A text in an error message."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
