"""A causal or sequence-to-sequence model of transformers, on this machine, as a text model.

Tensor suffixes: N pairs, B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain, pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from interventune.models.language.likelihood import (
    float32_logits,
    log_likelihoods,
    padded,
    reads_side_by_side,
)
from interventune.models.language.next_token import first_tokens, log_probabilities
from interventune.models.language.self_debiasing import DECAY, continued
from interventune.models.language.text_models import PairError, Prompt, TextFailure, TextModel
from interventune.models.language.writing import context_limit, end_tokens, misfit, written
from interventune.models.row_scores import by_length
from interventune.models.weights import fingerprint

TOKENS_AT_ONCE = {"cpu": 256, "cuda": 32_768}
"""Tokens per batch for likelihoods: on a CPU, more would overflow the caches and need
more padding.
"""
Ids = tuple[int, ...]
Pair = tuple[Ids, Ids]
"""Token ids of a prompt, and of its continuation."""


class LocalTextModel(TextModel):
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

    def __init__(
        self,
        model: Any,
        tokens: Any,
        name: str,
        *,
        max_new_tokens: int = 64,
        batch_size: int = 8,
        weights: str = "",
    ) -> None:
        self.model, self.tokens, self.name, self.weights = (
            float32_logits(model),
            tokens,
            name,
            weights,
        )
        self.max_new_tokens, self.batch_size = max_new_tokens, batch_size
        self.device, self.limit = model.device, context_limit(model)
        self.tokens_at_once = TOKENS_AT_ONCE.get(self.device.type, TOKENS_AT_ONCE["cuda"])
        self.head: tuple[list[int], Any] = ([], None)
        """The common beginning of all prompts in the last call, and its keys and values."""
        self.is_seq2seq, self.space = bool(model.config.is_encoder_decoder), tokens.space
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
            "forced": self.forced,
            "max_new_tokens": self.max_new_tokens,
        }

    def complete(self, prompts: Sequence[Prompt]) -> Iterator[str | TextFailure]:
        """Yield only the new text, without special tokens. Prompts that leave no room in the
        model's context fail.
        """
        how = {"most": self.max_new_tokens, "batch_size": self.batch_size}
        return written(self.model, self.tokens, self._prompt_ids(prompts), **how)

    def _prompt_ids(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        rows: list[list[int]] = self.tokens.prompts(
            [self.tokens.text(prompt) for prompt in prompts]
        )
        return rows

    def log_likelihoods(self, pairs: Sequence[tuple[Prompt, str]]) -> tuple[Tensor, Tensor]:
        """Score the continuation's tokens.

        A causal model reads prompt and continuation as one text, so a continuation includes its
        leading space, and white space at the end of the prompt moves to it. Its tokens are those
        after the prompt's, as in lm-evaluation-harness; if a token spans the boundary, the
        continuation is tokenised alone. An end token is not counted. A sequence-to-sequence model
        reads the prompt and generates the continuation, including the end token that it was trained
        to write. A prompt is read once for all its continuations, and a repeated pair once.

        Returns:
            Sums of the log-probabilities in nats, (N,) float64, and numbers of tokens, (N,); on the
            CPU.

        Raises:
            PairError: a continuation has no tokens, or a pair does not fit the model's context.
        """
        ids = self._pair_ids(pairs)
        for i, (first, second) in enumerate(ids):
            if not second:
                raise PairError(i, f"the continuation {pairs[i][1]!r} has no tokens")
            if failure := misfit(self.model, len(first), len(second)):
                raise PairError(i, str(failure))
        score = self._score_seq2seq if self.is_seq2seq else self._score_causal
        with torch.inference_mode():
            found = dict(score(list(dict.fromkeys(ids))))
        total_N = torch.tensor([found[pair] for pair in ids], dtype=torch.float64)
        return total_N, torch.tensor([len(second) for _, second in ids])

    def next_token_logprobs(
        self, prompts: Sequence[Prompt], labels: Sequence[str], *, after: str = "", top: int = 0
    ) -> Iterator[tuple[float, ...] | TextFailure]:
        """Over the whole vocabulary; see `TextModel`. All prompts of a call are read together, and
        their common beginning once.
        """
        wanted = first_tokens(
            self.tokens, labels, "" if self.is_seq2seq or self.tokens.chat else after
        )
        rows = self._prompt_ids(prompts)
        failures = [misfit(self.model, len(row), 0) for row in rows]
        fitting = [row for row, failure in zip(rows, failures, strict=True) if failure is None]
        found = iter(log_probabilities(self, fitting, wanted, top))
        for failure in failures:
            yield failure or next(found)

    def continuations(
        self,
        prompts: Sequence[str],
        prefixes: Sequence[str],
        *,
        beams: int = 1,
        decay: float = DECAY,
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
                self.tokens.prompts(part),
                [self.tokens.prompts([prefix + prompt for prompt in part]) for prefix in prefixes],
                new_tokens=self.max_new_tokens,
                pad=self.tokens.pad,
                beams=beams,
                decay=decay,
            )
            # Special tokens stay, as in the authors' code.
            yield from self.tokens.tokenizer.batch_decode(rows, skip_special_tokens=False)

    def _pair_ids(self, pairs: Sequence[tuple[Prompt, str]]) -> list[Pair]:
        texts = [(self.tokens.text(prompt), continuation) for prompt, continuation in pairs]
        if not (self.is_seq2seq or self.tokens.chat):
            # White space at the end of the prompt moves to the continuation.
            texts = [(text.rstrip(), text[len(text.rstrip()) :] + more) for text, more in texts]
        before, after = [text for text, _ in texts], [more for _, more in texts]
        firsts, seconds = self.tokens.prompts(before), self.tokens.after(before, after)
        return [
            (tuple(first), tuple(second)) for first, second in zip(firsts, seconds, strict=True)
        ]

    def padded(self, ids: Sequence[Sequence[int]]) -> dict[str, Tensor]:
        """Pad rows of token ids to the model's inputs: input_ids and attention_mask,
        (B, T) each.
        """
        ids_BT, mask_BT = padded(ids, self.tokens.pad, self.device, left=False)
        return {"input_ids": ids_BT, "attention_mask": mask_BT}

    def _score_causal(self, pairs: list[Pair]) -> Iterator[tuple[Pair, float]]:
        """log P of the second part of different pairs, in any order."""
        behind: dict[Ids, list[Ids]] = {}
        for prompt, part in pairs:
            behind.setdefault(prompt, []).append(part)
        rows = list[tuple[Ids, list[Ids]]]()
        window = getattr(self.model.config.get_text_config(), "sliding_window", None)
        for prompt, parts in behind.items():
            # A sliding window would cut them; few models cannot read them this way.
            together = self._side_by_side and (
                not window or len(prompt) + max(map(len, parts)) <= window
            )
            rows += [(prompt, parts)] if together else [(prompt, [part]) for part in parts]
        lengths = [len(prompt) + sum(map(len, parts)) for prompt, parts in rows]
        for batch in by_length(lengths, self.tokens_at_once):
            some = [rows[r] for r in batch]
            inputs = self.padded([[*prompt, *chain.from_iterable(parts)] for prompt, parts in some])
            spans = []
            for prompt, parts in some:
                ends = accumulate(map(len, parts), initial=len(prompt))
                spans.append(torch.tensor([(start, end - 1) for start, end in pairwise(ends)]))
            absent = inputs["input_ids"].shape[1]
            span_BCE = pad_sequence(spans, True, absent).to(self.device)
            total_BC = log_likelihoods(self.model, inputs, span_BCE).total_BC
            for (prompt, parts), total_C in zip(some, total_BC.double().tolist(), strict=True):
                yield from (
                    ((prompt, part), value) for part, value in zip(parts, total_C, strict=False)
                )

    @cached_property
    def _side_by_side(self) -> bool:
        return reads_side_by_side(self.model)

    def _score_seq2seq(self, pairs: list[Pair]) -> Iterator[tuple[Pair, float]]:
        """The same of an encoder and a decoder."""
        for batch in by_length(
            [len(first) + len(second) for first, second in pairs], self.tokens_at_once
        ):
            some = [pairs[i] for i in batch]
            labels_BT = self.padded([[*self.forced, *second] for _, second in some])["input_ids"]
            inputs = {**self.padded([first for first, _ in some]), "labels": labels_BT}
            logits_BTV = self.model(**inputs, use_cache=False).logits
            for pair, logits_TV in zip(some, logits_BTV, strict=True):
                chosen_T = torch.tensor(pair[1], device=logits_TV.device)
                logits_TV = logits_TV[len(self.forced) :][: len(chosen_T)].float()
                yield pair, -float(cross_entropy(logits_TV, chosen_T, reduction="sum"))
