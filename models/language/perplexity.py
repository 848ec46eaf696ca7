"""Perplexity of a long text in chunks, with and without self-debiasing (probes spec A8).

    for at in chunks(len(ids), 992, 992):
        losses.append(chunk_loss(model, ids[at.begin : at.end], at.targets, prefixes, pad=pad))
    regular, debiased = perplexity(losses, len(ids))

The authors' definition, kept with its two quirks: a chunk that overlaps nothing has one target less than it
is weighted by, and where chunks overlap the debiased side keeps the targets of P tokens more (P tokens of the
longest prefix), so that the two sides are then not of the same targets.

Shape letters: K prefixes, T tokens of a chunk, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from models.language.self_debiasing import DECAY, FLOOR, Ids, debiased, padded, positions, takes

RESERVED = 32
"""Positions that a chunk leaves to the longest prefix."""


class Chunk(NamedTuple):
    """Tokens `begin` to `end` (exclusive) of a text, of which the last `targets` are new."""

    begin: int
    end: int
    targets: int


class ChunkLoss(NamedTuple):
    """Mean negative log-likelihood (nats) of a chunk's targets, times their number."""

    regular: float
    debiased: float


def chunks(count: int, longest: int, stride: int) -> Iterator[Chunk]:
    """Chunks of at most `longest` tokens, `stride` apart, over a text of `count` tokens.

    Raises:
        ValueError: the stride is not in 1 ... longest.
    """
    if not 1 <= stride <= longest:
        raise ValueError(f"a stride of {stride} must lie between 1 and the {longest} tokens of a chunk")
    for start in range(0, count, stride):
        end = min(start + stride, count)
        yield Chunk(max(start + stride - longest, 0), end, end - start)


@torch.no_grad()
def chunk_loss(
    model: Any,
    ids: Ids,
    targets: int,
    prefixes: Sequence[Ids],
    *,
    pad: int,
    decay: float = DECAY,
    floor: float = FLOOR,
) -> ChunkLoss:
    """Both losses of one chunk; 0 where it has no token to predict.

    Args:
        model: a causal model, in evaluation mode.
        ids: the chunk.
        targets: how many of its last tokens are new.
        prefixes: token ids of each; without any both sides are the same.
        pad: any token id; it is masked.
        decay, floor: see `models.language.self_debiasing.debiased`.
    """
    text_T = torch.tensor(ids, device=model.device)
    plain_TV = model(input_ids=text_T[None]).logits[0]
    regular = _loss(plain_TV, text_T, targets) * targets
    if not prefixes:
        return ChunkLoss(regular, regular)
    rows = [[*prefix, *ids] for prefix in ([], *prefixes)]
    longest = len(max(rows, key=len)) - len(ids)
    padded_KT, mask_KT = padded(rows, pad, model.device, left=True)
    placed = {"position_ids": positions(mask_KT)} if takes(model, "position_ids") else {}
    logits_KTV = model(input_ids=padded_KT, attention_mask=mask_KT, **placed).logits[:, longest:]
    log_q_TV = debiased(logits_KTV[0], logits_KTV[1:], decay=decay, floor=floor)
    return ChunkLoss(regular, _loss(log_q_TV, text_T, targets + longest) * targets)


def perplexity(losses: Iterable[ChunkLoss], count: int) -> tuple[float, float]:
    """Regular and debiased, of a text of `count` tokens.

    >>> perplexity([ChunkLoss(math.log(2) * 3, math.log(4) * 3)], 3)
    (2.0, 4.0)
    """
    parts = list(losses)
    return (
        math.exp(math.fsum(part.regular for part in parts) / count),
        math.exp(math.fsum(part.debiased for part in parts) / count),
    )


def _loss(scores_TV: Tensor, text_T: Tensor, targets: int) -> float:
    """Mean cross-entropy of the last `targets` tokens that have a token before them."""
    first = max(1, len(text_T) - targets)
    if first >= len(text_T):
        return 0.0
    return float(cross_entropy(scores_TV[first - 1 : -1].float(), text_T[first:]))
