"""Perplexity of a long text in chunks, with and without self-debiasing (probes spec A8).

    for at in chunks(len(ids), 992, 992):
        losses.append(chunk_loss(model, ids[at.begin : at.end], at.targets, prefixes, pad=pad))
    regular, debiased = perplexity(losses, len(ids))

Logits stand in memory for a part of the positions at a time, behind keys and values of those before.

The authors' definition, kept with its two quirks: a chunk that overlaps nothing has one target less than it
is weighted by (unless the tokenizer begins texts with a token, which tells the first), and where chunks
overlap the debiased side keeps the targets of P tokens more (P tokens of the longest prefix), so that the two
sides are then not of the same targets.

Shape letters: K prefixes, and the text without one; T tokens of a row, P those of a part, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.functional import cross_entropy

from models.language.likelihood import padded
from models.language.self_debiasing import DECAY, FLOOR, Ids, debiased, read_on

RESERVED = 32
"""Positions that a chunk leaves to the longest prefix."""
LOGITS = 1 << 26
"""Numbers that logits of a part have at most, over all rows: 256 MB in float32, and a few
times that as they are worked with."""


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
    lead: Ids = (),
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
        lead: what the tokenizer begins texts with, and so every chunk, before the prefix.
        decay, floor: see `models.language.self_debiasing.debiased`.
    """
    rows = [[*lead, *prefix, *ids] for prefix in ([], *prefixes)]
    padded_KT, mask_KT = padded(rows, pad, model.device, left=True)
    width, count = padded_KT.shape[1], len(lead) + len(ids)
    longest, most = width - count, len(ids) - (not lead)
    firsts = [width - min(new, most) for new in (targets, targets + longest)]
    cache: Any = None
    sums, numbers = [0.0, 0.0], [0, 0]
    part = max(1, LOGITS // (len(rows) * model.config.get_text_config().vocab_size))
    for start in range(0, width, part):
        end = min(start + part, width)
        logits_KPV, cache = read_on(model, padded_KT[:, start:end], mask_KT[:, :end], cache)
        # Every column tells the token of the next, the last one none.
        logits_KPV, target_P = logits_KPV[:, : width - 1 - start], padded_KT[0, start + 1 : end + 1]
        log_q_PV = debiased(logits_KPV[0], logits_KPV[1:], decay=decay, floor=floor)
        for side, score_PV in enumerate((logits_KPV[0], log_q_PV)):
            new = slice(max(0, firsts[side] - 1 - start), None)
            loss_P = cross_entropy(score_PV[new].float(), target_P[new], reduction="none")
            sums[side] += float(loss_P.double().sum())
            numbers[side] += len(loss_P)
    return ChunkLoss(*(total / max(1, n) * targets for total, n in zip(sums, numbers, strict=True)))


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
