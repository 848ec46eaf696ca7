"""A model that continues prompts after specifications, with or without self-debiasing, and the
perplexity of a text, as in the authors' code of self-debiasing.

A local causal model writes exactly the requested number of tokens; an endpoint decides itself. It
gives no logits, so it can be instructed, but not debias itself.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from interventune.data_modules.tasks.toxicity_prompts import ToxicityPrompt
from interventune.evaluation.answering.interface import Asking, Compute
from interventune.evaluation.answering.language_model import open_text_model
from interventune.evaluation.answering.work import stored
from interventune.evaluation.protocol import Estimate, Protocol, Row, Statistic, declared, estimate
from interventune.models.language.local_model import LocalTextModel
from interventune.models.language.self_debiasing import RESERVED, chunk_loss
from interventune.models.language.text_models import TextFailure, TokenModel
from interventune.storage.progress import progress

from .rows import by_text
from .specifications import Part

LONGEST = 2048
"""Maximum number of tokens in a chunk and its longest prefix."""

WRITING = Protocol(**declared(__file__))


class Writer:
    """A language model that continues prompts.

    Args:
        name: in tables.
        path: `hf:PATH`, `openai:MODEL[@URL]`, or a decoder's `.ckpt`.
        new_tokens: tokens of each continuation.
        beams: of a local model; 1 is greedy.
        compute: how it runs.

    `local` is the model if it gives logits, None for an endpoint; `identity` is all that texts
    depend on.

    Raises:
        ValueError: there is no such model, or it does not continue prompts.
    """

    def __init__(
        self, name: str, path: str, *, new_tokens: int, beams: int, compute: Compute
    ) -> None:
        self.name = name
        self.path = path
        self.beams = beams
        asking = Asking(**vars(compute), max_new_tokens=new_tokens, chat="never")
        self.model = open_text_model(path, asking)
        self.local = self.model if isinstance(self.model, LocalTextModel) else None
        if self.local is not None and self.local.is_seq2seq:
            raise ValueError(f"{path} is no causal model: it does not continue prompts")
        self.identity = {**self.model.identity, "beams": beams}

    def rows(
        self,
        parts: Sequence[Part],
        prompts: Mapping[str, Sequence[ToxicityPrompt]],
        decay: float | None,
    ) -> Iterator[Row]:
        """Yield a row for each prompt and part, with `continuation` or `failure`.

        Args:
            parts: the texts before prompts.
            prompts: by domain.
            decay: strength of self-debiasing, lambda, with a part's texts as prefixes; None puts
                them before the prompt as an instruction.

        Raises:
            ValueError: a prompt does not fit the model.
        """
        method = system(decay)
        numbered = [
            (domain, line, prompt.text)
            for domain, texts in prompts.items()
            for line, prompt in enumerate(texts, 1)
        ]
        self.check(
            text + prompt for part in parts for text in ("", *part.texts) for *_, prompt in numbered
        )
        for part in parts:
            before = "".join(part.texts) if decay is None else ""
            how: dict[str, Any] = {}
            if decay is not None and part.texts:
                how = {"prefixes": list(dict.fromkeys(part.texts)), "decay": decay}
            continuation_of = by_text(
                partial(self.write, **how),
                [before + prompt for *_, prompt in numbered],
                f"{method}, {part.variant}",
            )
            for domain, line, prompt in numbered:
                text = continuation_of[before + prompt]
                failed = isinstance(text, TextFailure)
                yield {
                    "method": method,
                    "domain": domain,
                    "variant": part.variant,
                    "group": part.group,
                    "line": line,
                    "prompt": prompt,
                    **({"failure": text.reason} if failed else {"continuation": text}),
                }

    def check(self, texts: Iterable[str]) -> None:
        """ValueError for a text without tokens, or one that leaves no room for new tokens in a
        local model's context: reported before hours are spent on others.
        """
        local = self.local
        if local is None:
            return
        different = list(dict.fromkeys(texts))
        new = local.max_new_tokens + len(local.tokens.lead)
        for text, ids in zip(different, local.tokens.ids(different), strict=True):
            if not ids or (local.limit is not None and len(ids) + new > local.limit):
                raise ValueError(
                    f"{self.path} reads {local.limit} tokens, {new} of them new; a prompt with "
                    f"what stands in front of it has {len(ids)}: {text[:60]!r}"
                )

    @stored
    def write(
        self, prompts: Sequence[str], *, prefixes: Sequence[str] = (), decay: float = 0.0
    ) -> Iterator[str | TextFailure]:
        """Yield the continuation of each, in order, without the prompt."""
        if self.local is not None:
            yield from self.local.continuations(prompts, prefixes, beams=self.beams, decay=decay)
            return
        for answer in self.model.complete(prompts):
            empty = isinstance(answer, TextFailure) and answer.reason == "empty answer"
            yield "" if empty else answer

    def perplexities(
        self, text: str, parts: Sequence[Part], decay: float | None
    ) -> dict[str, Estimate]:
        """Compute the perplexity of a text: `default`, and debiased by the original and the
        opposite specification; with intervals over its chunks.

        Raises:
            ValueError: the text has fewer than two tokens, or does not fit the model's context.
        """
        model = self.model
        if not isinstance(model, TokenModel):
            raise ValueError(f"--perplexity: {self.path} scores no given texts; add --tokenizer")
        (ids,) = model.tokens.ids([text])
        prefixes = {
            part.variant: model.tokens.ids(part.texts)
            for part in parts
            if part.variant in ("original", "opposite")
        }
        limit = LONGEST if model.limit is None else model.limit - len(model.tokens.lead)
        window = min(LONGEST, limit) - max(RESERVED, *map(len, chain(*prefixes.values())))
        if len(ids) < 2 or window < 2:
            raise ValueError(
                f"--perplexity: {len(ids)} tokens in chunks of {window}; both need at least 2"
            )
        pieces = [ids[start : start + window] for start in range(0, len(ids), window)]
        frame = pd.DataFrame({"targets": [*map(len, pieces)], "unit": range(len(pieces))})
        for variant, rows in prefixes.items():
            losses = self.chunk_losses(pieces, prefixes=rows, decay=decay)
            bar = progress(losses, f"perplexity, {variant}", "chunk", len(pieces))
            frame[["default", variant]] = [*bar]
        return {name: estimate(perplexity(name), frame) for name in ("default", *prefixes)}

    @stored
    def chunk_losses(
        self, pieces: Sequence[list[int]], *, prefixes: Sequence[list[int]], decay: float | None
    ) -> Iterator[tuple[float, float]]:
        """Yield the loss of each chunk of ids without and with debiasing."""
        local = self.local
        if decay is None:
            yield from zip(self.scored(pieces, []), self.scored(pieces, *prefixes), strict=True)
            return
        assert local is not None
        for ids in pieces:
            yield chunk_loss(local.model, ids, prefixes, lead=local.tokens.lead, decay=decay)

    def scored(self, pieces: Sequence[list[int]], before: list[int]) -> Iterator[float]:
        """Yield the loss of each chunk after an instruction, weighted as by `chunk_loss`."""
        model = self.model
        assert isinstance(model, TokenModel)
        lead = model.tokens.lead
        first = 0 if lead else 1  # a text's first token is not predicted
        units = [
            ((*lead, *before, *ids[:first]), (tuple(ids[first:]),))
            for ids in pieces
            if len(ids) > first
        ]
        answers = iter(model.score(units))
        for ids in pieces:
            answer = next(answers) if len(ids) > first else [0.0]
            if isinstance(answer, TextFailure):
                raise ValueError(f"{self.path}: {answer}")
            yield -answer[0] * len(ids) / max(1, len(ids) - first)


def system(decay: float | None) -> str:
    """The name of a method of debiasing in tables."""
    return "instructive" if decay is None else f"self {decay:g}"


def perplexity(loss: str) -> Statistic:
    """The perplexity of chunks with their summed loss and their number of tokens, `targets`."""
    return Statistic(
        "perplexity", (loss, "targets"), lambda sums_RC: np.exp(sums_RC[:, 1] / sums_RC[:, 2])
    )
