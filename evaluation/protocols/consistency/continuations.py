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

from evaluation.answering.language_model import open_language_model
from evaluation.processes import shared
from evaluation.protocols.consistency.decoding import Decoding
from evaluation.protocols.consistency.specifications import Method
from evaluation.scorers.interface import Scorer, Scores
from models.language.local_model import LocalTextModel
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
    draw: int = 0
    """Of several continuations of one prompt."""


class Writer:
    """A language model that continues prompts as the flags say.

    Args:
        model: `hf:PATH` or `openai:MODEL[@URL]`.
        decoding: how it writes.

    `debiasing` are the settings of self-debiasing, see `debias`.

    Raises:
        ValueError: there is no such model, or it does not continue prompts.
    """

    def __init__(self, model: str, decoding: Decoding) -> None:
        self.model = open_language_model(
            model,
            max_new_tokens=decoding.new_tokens,
            device=decoding.device,
            dtype=decoding.dtype,
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

    def debias(self, method: Method, decay: float | None) -> None:
        """Take another method and strength (None: the usual one) from now on."""
        self.debiasing = (
            {"decay": DECAY if decay is None else decay, "floor": FLOOR} if method == "self" else {}
        )

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
        new, limit = self.local.max_new_tokens + len(self.local.lead), self.local.limit
        if limit is not None and max(lengths) > limit - new:
            longest = max(range(len(texts)), key=lengths.__getitem__)
            raise ValueError(
                f"{self.model.name} takes {limit} tokens, and {sum(n > limit - new for n in lengths)} of "
                f"{len(texts)} texts (prompts with what stands in front of them) do not fit with {new} new "
                f"ones; the longest has {lengths[longest]}: {short(texts[longest])}. Shorten or remove such "
                "prompts, or take fewer --new-tokens"
            )

    @shared
    def write(self, requests: Sequence[Request]) -> Iterator[str | TextFailure]:
        """The continuation of each, in order, without the prompt. All have the same number of prefixes."""
        prompts = [request.prompt for request in requests]
        if self.local is not None:
            yield from self.local.continuations(
                prompts,
                [request.prefixes for request in requests],
                beams=self.beams,
                seeds=None
                if self.seed is None
                else [draw_seed(self.seed, r.prompt, r.draw) for r in requests],
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
                **({"draw": request.draw} if request.draw else {}),
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


def check_scorers(scorers: Iterable[Scorer], text: str, work: FinishedWork) -> None:
    """ValueError for a scorer that gives nothing: one text is scored before hours are spent on others."""
    for scorer in scorers:
        if isinstance(failure := text_scores(scorer, [text], work)[text], TextFailure):
            raise ValueError(f"--scorer {scorer.name} gave no scores to the first prompt: {failure}")


def add_scores(rows: Iterable[dict[str, Any]], scorers: Iterable[Scorer], work: FinishedWork) -> None:
    """Add the scores of each continuation, or why there are none, to `judged`."""
    written = [row for row in rows if "continuation" in row]
    for scorer in scorers:
        scores = text_scores(scorer, [row["continuation"] for row in written], work, show=True)
        for row in written:
            found = scores[row["continuation"]]
            if isinstance(found, TextFailure):
                found = TextFailure(f"no score: {found.reason}", found.detail)
            row.setdefault("judged", {})[scorer.name] = found


def draw_seed(seed: int, prompt: str, draw: int = 0) -> int:
    """The seed of a prompt's continuation. All variants of self-debiasing draw from the same numbers, so that
    they differ in what debiasing does."""
    text = f"{seed}/{draw} {prompt}" if draw else f"{seed} {prompt}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7])


def short(text: str) -> str:
    """A text in an error message."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
