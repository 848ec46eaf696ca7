"""Self-debiasing: make tokens less likely that a prefix asking for bias makes more likely.

    debiasing = SelfDebiasing(model, prefixed, pad=pad)          # prefixed: K prefixes before each of B texts
    model.generate(input_ids=..., attention_mask=..., logits_processor=[debiasing], ...)

`generate` sees only the B texts; the processor also reads the K prefixed copies of each, with its own cache,
so that greedy decoding, beams and sampling need no other change. Probes spec A1, A2; perplexity (A8):
models/language/perplexity.py.

Shape letters: K prefixes, B texts, N beams of a text, R rows of a step (text-major: B * N), T tokens,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor

from models.language.likelihood import logits_at, padded, takes
from models.language.writing import end_tokens, generate

DECAY = 50.0
"""The authors' lambda; the paper's grid is 10, 50, 100."""
FLOOR = 0.01
"""No probability is scaled below this share, before normalisation (the authors' epsilon)."""

Ids = Sequence[int]


def debiased(plain_BV: Tensor, prefixed_KBV: Tensor, *, decay: float = DECAY) -> Tensor:
    """log q of spec A1: the more a prefix raises a token's probability, the more it is lowered.

    With p of the plain texts and p_j of the prefixed ones, delta = p - max_j p_j; where it is negative, p is
    multiplied by max(FLOOR, exp(decay * delta)), and the result is normalised.

    Args:
        plain_BV: logits or log-probabilities of the texts (any leading shape, here B); -inf excludes a token.
        prefixed_KBV: the same for the texts after each prefix.
        decay: lambda, at least 0.

    Returns:
        Log-probabilities, float32 (or float64 as given). For K = 0, exactly `plain_BV`.
    """
    if not len(prefixed_KBV):
        return plain_BV
    if plain_BV.dtype != torch.float64:
        plain_BV, prefixed_KBV = plain_BV.float(), prefixed_KBV.float()
    delta_BV = plain_BV.softmax(-1) - prefixed_KBV.softmax(-1).amax(0)
    alpha_BV = (decay * delta_BV.clamp(max=0)).exp().clamp(min=FLOOR)
    return (plain_BV + alpha_BV.log()).log_softmax(-1)


class SelfDebiasing(LogitsProcessor):
    """Apply `debiased` at every step of one call of `generate`, which gets the plain texts.

    Tokens that an earlier processor excludes (the end token, if the text is too short) are excluded after the
    prefixes too. Beams are identified by their tokens: two beams of a text with the same tokens are the same.

    Args:
        model: the causal model that generates.
        prefixed: K lists of the B texts' token ids after that prefix; prefix and text were joined before
            tokenisation (spec A2). For K = 0, scores are unchanged.
        pad: any token id; padding is on the left and masked.
        decay: see `debiased`.
    """

    def __init__(
        self, model: Any, prefixed: Sequence[Sequence[Ids]], *, pad: int, decay: float = DECAY
    ) -> None:
        self.model, self.prefixed, self.pad, self.decay = model, prefixed, pad, decay
        self._cache: Any = None
        self._mask_KRT: Any = None
        self._seen_RT: Any = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Turn scores (R, V) of the next token into log q (R, V)."""
        if not self.prefixed:
            return scores
        count, texts = len(self.prefixed), len(self.prefixed[0])
        if self._seen_RT is None:  # the prefixed texts are read once for all beams of a text
            beams = len(input_ids) // texts
            ids = [row for column in self.prefixed for row in column]
            padded_MT, mask_MT = padded(ids, self.pad, input_ids.device, left=True)
            logits_MV = self._forward(padded_MT, mask_MT).repeat_interleave(beams, 0)
            self._mask_KRT = mask_MT.repeat_interleave(beams, 0)
            if beams > 1:
                self._cache.batch_repeat_interleave(beams)
        else:
            logits_MV = self._next(input_ids)
        logits_KRV = logits_MV.view(count, len(input_ids), -1).to(scores.device)
        logits_KRV = logits_KRV.masked_fill(scores == float("-inf"), float("-inf"))
        self._seen_RT = input_ids
        return debiased(scores, logits_KRV, decay=self.decay)

    def _next(self, input_ids_RT: Tensor) -> Tensor:
        """Reads the newest token behind every prefix: logits ((K * R), V)."""
        count = len(self.prefixed)
        parent_R = parents(self._seen_RT, input_ids_RT[:, :-1], texts=len(self.prefixed[0]))
        if parent_R is not None:
            offset_K = torch.arange(count, device=parent_R.device) * len(parent_R)
            self._cache.reorder_cache((offset_K[:, None] + parent_R).flatten())
        newest_KRT = input_ids_RT[:, -1:].repeat(count, 1)
        self._mask_KRT = torch.cat([self._mask_KRT, torch.ones_like(newest_KRT)], 1)
        return self._forward(newest_KRT, self._mask_KRT)

    def _forward(self, ids_MT: Tensor, mask_MT: Tensor) -> Tensor:
        """Logits of the last position; the cache grows."""
        last_M = (torch.arange(len(ids_MT), device=ids_MT.device) + 1) * ids_MT.shape[1] - 1
        with logits_at(self.model, last_M):
            logits_MV, self._cache = read_on(self.model, ids_MT, mask_MT, self._cache)
        return logits_MV


def continued(
    model: Any,
    texts: Sequence[Ids],
    prefixed: Sequence[Sequence[Ids]] = (),
    *,
    new_tokens: int,
    pad: int,
    beams: int = 1,
    decay: float = DECAY,
) -> list[list[int]]:
    """Generate exactly `new_tokens` token ids for each text (the end token is suppressed), greedily or with
    beams.

    Args:
        model: a causal model, in evaluation mode.
        texts: token ids of the B texts.
        prefixed: see `SelfDebiasing`; without any, the model is unchanged.
        new_tokens: at least 1.
        pad: see `SelfDebiasing`.
        beams: 1 is greedy.
        decay: see `debiased`.
    """
    ends = end_tokens(model)
    processors = [SelfDebiasing(model, prefixed, pad=pad, decay=decay)]
    limits = {"least": new_tokens, "most": new_tokens}
    return generate(model, texts, ends=ends, pad=pad, beams=beams, processors=processors, **limits)


def parents(old_RT: Tensor, new_RT: Tensor, *, texts: int) -> Tensor | None:
    """Return for each row the row of the same text that had the same tokens one step earlier, (R,); None if
    no row moved."""
    if torch.equal(old_RT, new_RT):
        return None
    old_BNT, new_BNT = (rows.view(texts, -1, rows.shape[1]) for rows in (old_RT, new_RT))
    same_BNN = (new_BNT[:, :, None] == old_BNT[:, None]).all(-1)
    beams = old_BNT.shape[1]
    first_B1 = torch.arange(texts, device=old_RT.device)[:, None] * beams
    return (first_B1 + same_BNN.int().argmax(-1)).flatten()


@torch.no_grad()
def read_on(model: Any, ids_MT: Tensor, mask_MT: Tensor, cache: Any) -> tuple[Tensor, Any]:
    """Read tokens after those in `cache`; return their logits (M, T, V) and the extended cache.

    Args:
        model: a causal model.
        ids_MT: the new tokens, all rows ending in the same column.
        mask_MT: mask of the earlier and the new tokens, so it is wider than `ids_MT`.
        cache: as this function returned it; None for the first tokens.

    Raises:
        ValueError: the model does not return keys and values.
    """
    more: dict[str, Any] = {}
    if takes(model, "position_ids"):
        position_MT = (mask_MT.cumsum(-1) - 1).clamp(min=0)  # padding does not count
        more["position_ids"] = position_MT[:, -ids_MT.shape[1] :]
    output = model(input_ids=ids_MT, attention_mask=mask_MT, past_key_values=cache, use_cache=True, **more)
    cache = getattr(output, "past_key_values", None)
    if cache is None:
        raise ValueError(
            "self-debiasing needs a model that caches keys and values, which "
            f"{type(model).__name__} does not; take a transformer"
        )
    return output.logits, cache
