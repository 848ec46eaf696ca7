"""A causal or sequence-to-sequence model of transformers, on this machine, as a text model.

Tensor suffixes: N pairs or prompts, B batch, T tokens, C continuations, V vocabulary, L labels.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, pairwise, takewhile
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, pad
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache

from interventune.models.checkpoint import fingerprint

from .model_calls import (
    by_length,
    end_tokens,
    float32_logits,
    generate,
    log_likelihoods,
    logits_at,
    padded,
    reads_side_by_side,
    require_finite,
)
from .self_debiasing import continued
from .text_models import Ids, LogProbs, Reply, Rows, TokenModel, Units, packed, reply

WORTH_SHARING = 32
"""Number of common tokens from which prompts are read in two parts."""
SIDE_BY_SIDE = 512
"""Tokens of continuations in a row, or as many as its prompt has: the cost of attention grows with
the square of a row's length.
"""
Pair = tuple[Ids, Ids]
"""Token ids of a prompt, and of its continuation."""


@dataclass(eq=False)
class LocalTextModel(TokenModel):
    """A causal or sequence-to-sequence model of transformers, with logits in float32. It writes
    greedily.

    Args:
        model: of transformers, on its device and in evaluation mode.
        tokens: its tokenizer, as `interventune.data_modules.encoding.prompts.PromptTokens`.
        name: what messages call it.
        max_new_tokens: limit on the length of an answer.
        batch_size: prompts per batch.
        weights: a digest of the model (default: `fingerprint`).
    """

    model: Any
    tokens: Any
    name: str
    max_new_tokens: int
    batch_size: int
    weights: str = ""

    def __post_init__(self) -> None:
        model = float32_logits(self.model)
        self.device = model.device
        self.limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        # Tokens per batch of likelihoods: more would overflow a CPU's caches and need more padding.
        self.tokens_at_once = 256 if self.device.type == "cpu" else 32_768
        self.is_seq2seq = model.config.is_encoder_decoder
        self.space = self.tokens.space
        forced = model.generation_config.forced_bos_token_id if self.is_seq2seq else None
        self.forced: list[int] = [] if forced is None else [forced]
        """The fixed first token of every answer of BART and similar models; it is given, not
        scored.
        """

    @cached_property
    def identity(self) -> dict[str, Any]:  # type: ignore[override]
        """Everything that answers depend on but the prompt, as plain JSON."""
        return {
            "weights": self.weights or fingerprint(self.model),
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "tokens": self.tokens.identity,
            "ends": [*end_tokens(self.model), *self.tokens.ends],
            "first": [self.model.generation_config.decoder_start_token_id, *self.forced],
            "max_new_tokens": self.max_new_tokens,
        }

    def write(self, rows: Rows) -> Iterator[Reply]:
        ends = sorted({*end_tokens(self.model), *self.tokens.ends})
        for start in range(0, len(rows), self.batch_size):
            batch = rows[start : start + self.batch_size]
            new = generate(self.model, batch, ends=ends, max_new_tokens=self.max_new_tokens)
            answers = ([*takewhile(lambda i: i not in ends, row)] for row in new)
            yield from map(reply, self.tokens.decoded(answers))

    def continuations(
        self, prompts: Sequence[str], prefixes: Sequence[str], *, beams: int, decay: float
    ) -> Iterator[str]:
        """Generate exactly `max_new_tokens` tokens after each prompt, special ones included; causal
        only.

        Prompts are used as they are (no template), after the tokenizer's initial token, if any.

        Args:
            prompts: texts that fit the model's context.
            prefixes: self-debiasing's prefixes of each prompt; without any, the model is unchanged.
            beams: 1 is greedy.
            decay: of self-debiasing, see `self_debiasing.debiased`.
        """
        for start in range(0, len(prompts), self.batch_size):
            part = prompts[start : start + self.batch_size]
            rows = continued(
                self.model,
                [
                    self.tokens.prompts([before + text for text in part])
                    for before in ("", *prefixes)
                ],
                new_tokens=self.max_new_tokens,
                beams=beams,
                decay=decay,
            )
            # Special tokens stay, as in the authors' code.
            yield from self.tokens.tokenizer.batch_decode(rows, skip_special_tokens=False)

    def score(self, units: Units) -> Iterator[LogProbs]:
        """A repeated pair is scored once."""
        pairs = dict.fromkeys((prompt, text) for prompt, texts in units for text in texts)
        score = self._score_seq2seq if self.is_seq2seq else self._score_causal
        with torch.inference_mode():
            total = dict(score([*pairs]))
        for prompt, texts in units:
            yield [total[prompt, text] for text in texts]

    def _score_causal(self, pairs: list[Pair]) -> Iterator[tuple[Pair, float]]:
        """log P of the second part of different pairs, in any order."""
        continuations = defaultdict[Ids, list[Ids]](list)
        for prompt, continuation in pairs:
            continuations[prompt].append(continuation)
        # A sliding window would cut them; few models cannot read them side by side.
        window = getattr(self.model.config.get_text_config(), "sliding_window", None) or math.inf
        rows = list[tuple[Ids, list[Ids]]]()
        for prompt, parts in continuations.items():
            fits = len(prompt) + max(map(len, parts)) <= window
            most = max(len(prompt), SIDE_BY_SIDE) if fits and self._side_by_side else 0
            rows += ((prompt, pack) for pack in packed(parts, len, most))
        lengths = [len(prompt) + sum(map(len, parts)) for prompt, parts in rows]
        for index in by_length(lengths, self.tokens_at_once):
            batch = [rows[r] for r in index]
            inputs = padded([[*prompt, *chain(*parts)] for prompt, parts in batch], self.device)
            spans = []
            for prompt, parts in batch:
                ends = accumulate(map(len, parts), initial=len(prompt))
                spans.append(torch.tensor([(start, end - 1) for start, end in pairwise(ends)]))
            absent = inputs["input_ids"].shape[1]
            span_BCE = pad_sequence(spans, True, absent).to(self.device)
            total_BC = log_likelihoods(self.model, inputs, span_BCE)
            for (prompt, parts), total_C in zip(batch, total_BC.double().tolist(), strict=True):
                for part, total in zip(parts, total_C, strict=False):
                    yield (prompt, part), total

    @cached_property
    def _side_by_side(self) -> bool:
        return reads_side_by_side(self.model)

    def _score_seq2seq(self, pairs: list[Pair]) -> Iterator[tuple[Pair, float]]:
        """The same of an encoder and a decoder."""
        lengths = [len(prompt) + len(continuation) for prompt, continuation in pairs]
        for index in by_length(lengths, self.tokens_at_once):
            batch = [pairs[i] for i in index]
            logits_BTV = self._answer_logits(*zip(*batch, strict=True))
            for pair, logits_TV in zip(batch, logits_BTV, strict=True):
                target_T = torch.tensor(pair[1], device=self.device)
                logits_TV = logits_TV[: len(target_T)].float()
                yield pair, -float(cross_entropy(logits_TV, target_T, reduction="sum"))

    def _answer_logits(self, prompts: Rows, answers: Rows) -> Tensor:
        """The logits (B, T, V) of a sequence-to-sequence model where it writes given tokens."""
        rows = padded([[*self.forced, *answer] for answer in answers], self.device)
        # Of padding, a model makes its own: mBART starts with the last label that is none.
        labels_BT = rows["input_ids"].masked_fill(rows["attention_mask"] == 0, -100)
        output = self.model(**padded(prompts, self.device), labels=labels_BT, use_cache=False)
        return output.logits[:, len(self.forced) :]

    @torch.inference_mode()
    def token_logprobs(self, rows: Rows, tokens: list[int], top: int) -> list[LogProbs]:
        """Over the whole vocabulary. All prompts of a call are read together, and their common
        beginning once: most of a prompt is demonstrations.
        """
        log_NL = torch.empty(len(rows), len(tokens), dtype=torch.float64)
        start, cache = self._shared_start(rows)
        for index in by_length([len(row) - start for row in rows], self.tokens_at_once):
            batch = [rows[i] for i in index]
            if self.is_seq2seq:
                logits_BV = self._answer_logits(batch, [[0]] * len(batch))[:, 0]
            else:
                logits_BV = self._next_logits([row[start:] for row in batch], start, cache)
            log_BV = require_finite(self.model, logits_BV).float().log_softmax(-1)
            log_BL = log_BV[:, tokens]
            if top:
                least_B1 = log_BV.topk(top).values[:, -1:]
                log_BL = log_BL.masked_fill(log_BL < least_B1, -math.inf)
            log_NL[index] = log_BL.double().cpu()
        return log_NL.tolist()

    def _shared_start(self, rows: Rows) -> tuple[int, Any]:
        """How many tokens all rows share at the start (at most all but a row's last), and their
        keys and values. 0 if too short to pay off, or if the model has another kind of cache.
        """
        columns = zip(*(row[:-1] for row in rows), strict=False)
        start = [ids[0] for ids in takewhile(lambda ids: len({*ids}) == 1, columns)]
        if self.is_seq2seq or len(rows) < 2 or len(start) < WORTH_SHARING:
            return 0, None
        ids_1T = torch.tensor([start], device=self.device)
        with logits_at(self.model, ids_1T.new_zeros(1)):
            output = self.model(input_ids=ids_1T, use_cache=True)
        cache = getattr(output, "past_key_values", None)  # a state-space model has none
        return (len(start), cache) if type(cache) is DynamicCache else (0, None)

    def _next_logits(self, rows: Rows, start: int, cache: Any) -> Tensor:
        """Logits after each row, (B, V), whose first `start` tokens are those of `cache`."""
        inputs: dict[str, Any] = padded(rows, self.device)
        inputs["attention_mask"] = pad(inputs["attention_mask"], (start, 0), value=1)
        inputs["use_cache"] = cache is not None
        if cache is not None:
            inputs["past_key_values"] = deepcopy(cache)
            inputs["past_key_values"].batch_repeat_interleave(len(rows))
        width = inputs["input_ids"].shape[1]
        last = [b * width + len(row) - 1 for b, row in enumerate(rows)]
        with logits_at(self.model, torch.tensor(last, device=self.device)):
            return self.model(**inputs).logits
