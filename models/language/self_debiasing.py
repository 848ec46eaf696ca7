"""Self-debiasing: a language model turns away from what it would say were it told to say it.

    debiasing = SelfDebiasing(model, prefixed, pad=pad)          # prefixed: K prefixes before each of B texts
    model.generate(input_ids=..., attention_mask=..., logits_processor=[debiasing], ...)

`generate` sees the B texts alone; the processor reads the K prefixed copies of each beside it, with a cache
of its own, so that greedy decoding, beams and sampling need nothing else. Probes spec A1, A2; perplexity
(A8): models/language/perplexity.py.

Shape letters: K prefixes, B texts, N beams of a text, R rows of a step (text-major: B * N), T tokens,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from models.language.likelihood import padded, takes

DECAY = 50.0
"""The authors' lambda; the paper's grid is 10, 50, 100."""
FLOOR = 0.01
"""Nothing gets less than this share of its probability, before normalisation (the authors' epsilon)."""
TOP_K = 5
"""How many tokens sampling draws from (the authors' setting)."""

Ids = Sequence[int]


def debiased(plain_BV: Tensor, prefixed_KBV: Tensor, *, decay: float = DECAY, floor: float = FLOOR) -> Tensor:
    """log q of spec A1: what any prefix makes likelier becomes less likely, the more so the more it does.

    With p of the plain texts and p_j of the prefixed ones, delta = p - max_j p_j; where it is negative, p is
    multiplied by max(floor, exp(decay * delta)), and the result is normalised.

    Args:
        plain_BV: logits or log-probabilities of the texts (any leading shape, here B); -inf is no token.
        prefixed_KBV: the same of the texts behind each prefix.
        decay: lambda, not below 0.
        floor: epsilon in [0, 1].

    Returns:
        Log-probabilities, float32 (or float64 as given). With K = 0 `plain_BV` itself, to the bit.
    """
    if not len(prefixed_KBV):
        return plain_BV
    if plain_BV.dtype != torch.float64:
        plain_BV, prefixed_KBV = plain_BV.float(), prefixed_KBV.float()
    delta_BV = plain_BV.softmax(-1) - prefixed_KBV.softmax(-1).amax(0)
    # The floor is applied behind the exponential; log(0) = -inf of a floor of 0 is meant.
    alpha_BV = (decay * delta_BV.clamp(max=0)).exp().clamp(min=floor)
    return (plain_BV + alpha_BV.log()).log_softmax(-1)


class SelfDebiasing(LogitsProcessor):
    """The transform at every step of one call of `generate`, which is given the plain texts.

    A token that an earlier processor rules out (the end, before enough is written) is ruled out behind the
    prefixes too. Beams are followed by their tokens: two beams of a text with the same tokens are the same.

    Args:
        model: the causal model that generates.
        prefixed: K lists of the B texts' token ids, each behind that prefix; the prefix and the text were
            joined before they were tokenised (spec A2). With K = 0 scores pass unchanged.
        pad: any token id; padding stands on the left and is masked.
        decay, floor: see `debiased`.

    Raises:
        ValueError: a prefix does not have as many texts as the first, a text has no tokens, or decay or floor
            are out of range.
    """

    def __init__(
        self,
        model: Any,
        prefixed: Sequence[Sequence[Ids]],
        *,
        pad: int,
        decay: float = DECAY,
        floor: float = FLOOR,
    ) -> None:
        if decay < 0 or not 0 <= floor <= 1:
            raise ValueError(f"decay must not be below 0 and floor lie in [0, 1], not {decay} and {floor}")
        if len({len(texts) for texts in prefixed}) > 1 or not all(ids for texts in prefixed for ids in texts):
            raise ValueError("every prefix needs the same texts, none of them empty")
        self.model, self.prefixed, self.pad = model, prefixed, pad
        self.decay, self.floor = decay, floor
        self._cache: Any = None
        self._mask_KRT: Tensor | None = None
        self._seen_RT: Tensor | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores (R, V) of the next token to log q (R, V)."""
        if not self.prefixed:
            return scores
        count, texts = len(self.prefixed), len(self.prefixed[0])
        if len(input_ids) % texts:
            raise ValueError(f"{len(input_ids)} rows of {texts} texts: give generate the plain texts alone")
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
        return debiased(scores, logits_KRV, decay=self.decay, floor=self.floor)

    def _next(self, input_ids_RT: Tensor) -> Tensor:
        """Reads the newest token behind every prefix: logits ((K * R), V)."""
        assert self._mask_KRT is not None
        assert self._seen_RT is not None
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
        logits_MTV, self._cache = read_on(self.model, ids_MT, mask_MT, self._cache, last=True)
        return logits_MTV[:, -1]


class SeededDraw(LogitsProcessor):
    """Makes the greedy choice an exact draw from the `top_k` likeliest tokens (the Gumbel-max trick).

    Each text draws from a generator of its own, so that what it gets depends neither on its batch nor on
    where an interrupted run stopped. To be the last processor.

    Args:
        seeds: one per text.
        top_k: how many tokens to draw from; 0 for all.
    """

    def __init__(self, seeds: Sequence[int], *, top_k: int = TOP_K) -> None:
        self.top_k = top_k
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores (B, V) to scores whose largest is the token drawn."""
        scores_BV = scores.float()
        if 0 < self.top_k < scores_BV.shape[1]:
            least_B1 = scores_BV.topk(self.top_k, -1).values[:, -1:]
            scores_BV = scores_BV.masked_fill(scores_BV < least_B1, float("-inf"))
        noise_BV = torch.stack(
            [torch.empty(scores.shape[1]).exponential_(generator=each) for each in self._generators]
        )
        return scores_BV - noise_BV.log().to(scores.device)


def continued(
    model: Any,
    texts: Sequence[Ids],
    prefixed: Sequence[Sequence[Ids]] = (),
    *,
    new_tokens: int,
    pad: int,
    beams: int = 1,
    decay: float = DECAY,
    floor: float = FLOOR,
    seeds: Sequence[int] | None = None,
    top_k: int = TOP_K,
) -> list[list[int]]:
    """Exactly `new_tokens` more token ids for each text (the end is suppressed), with self-debiasing.

    Greedy, with beams, or with `seeds` (one per text) drawn. The model's own generation settings, such as a
    repetition penalty, are set aside. The tokens are those of each text on its own.

    Args:
        model: a causal model, in evaluation mode.
        texts: token ids of the B texts.
        prefixed: see `SelfDebiasing`; none is the model as it is.
        new_tokens: at least 1.
        pad: see `SelfDebiasing`.
        beams: at least 1; with seeds 1.
        decay, floor: see `debiased`.
        seeds, top_k: see `SeededDraw`.

    Raises:
        ValueError: beams with seeds, or as in `SelfDebiasing`.
    """
    if seeds is not None and beams > 1:
        raise ValueError("beams are not drawn: choose sampling or beams")
    processors: list[LogitsProcessor] = []
    if prefixed:
        processors.append(SelfDebiasing(model, prefixed, pad=pad, decay=decay, floor=floor))
    if seeds is not None:
        processors.append(SeededDraw(seeds, top_k=top_k))
    ids_BT, mask_BT = padded(texts, pad, model.device, left=True)
    own = model.generation_config
    try:
        model.generation_config = GenerationConfig(eos_token_id=own.eos_token_id, pad_token_id=pad)
        out_BT = model.generate(
            input_ids=ids_BT,
            attention_mask=mask_BT,
            min_new_tokens=new_tokens,
            max_new_tokens=new_tokens,
            num_beams=beams,
            do_sample=False,
            logits_processor=LogitsProcessorList(processors),
        )
    finally:
        model.generation_config = own
    new: list[list[int]] = out_BT[:, ids_BT.shape[1] :].tolist()
    return new


def parents(old_RT: Tensor, new_RT: Tensor, *, texts: int) -> Tensor | None:
    """For each row the row of the same text that held the same tokens a step ago, (R,); None where no row
    moved."""
    if torch.equal(old_RT, new_RT):
        return None
    old_BNT, new_BNT = (rows.view(texts, -1, rows.shape[1]) for rows in (old_RT, new_RT))
    same_BNN = (new_BNT[:, :, None] == old_BNT[:, None]).all(-1)
    assert bool(same_BNN.any(-1).all()), "a row continues none of its text"
    beams = old_BNT.shape[1]
    first_B1 = torch.arange(texts, device=old_RT.device)[:, None] * beams
    return (first_B1 + same_BNN.int().argmax(-1)).flatten()


@torch.no_grad()
def read_on(
    model: Any, ids_MT: Tensor, mask_MT: Tensor, cache: Any, *, last: bool = False
) -> tuple[Tensor, Any]:
    """Logits (M, T, V) of tokens behind those that `cache` holds, and the cache with them.

    Args:
        model: a causal model.
        ids_MT: the new tokens, all rows ending in the same column.
        mask_MT: of the new tokens and those before them, which is wider than `ids_MT`.
        cache: what this function gave before; None for the first tokens.
        last: the logits of the last position alone, where the model can.

    Raises:
        ValueError: the model keeps no keys and values.
    """
    more: dict[str, Any] = {}
    if takes(model, "position_ids"):
        more["position_ids"] = positions(mask_MT)[:, -ids_MT.shape[1] :]
    if last and takes(model, "logits_to_keep"):
        more["logits_to_keep"] = 1
    output = model(input_ids=ids_MT, attention_mask=mask_MT, past_key_values=cache, use_cache=True, **more)
    cache = getattr(output, "past_key_values", None)
    if cache is None:
        raise ValueError(
            "self-debiasing needs a model that caches keys and values, which "
            f"{type(model).__name__} does not; take a transformer"
        )
    return output.logits, cache


def positions(mask_BT: Tensor) -> Tensor:
    """Positions that do not count padding, (B, T)."""
    return (mask_BT.cumsum(-1) - 1).clamp(min=0)
