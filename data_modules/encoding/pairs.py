"""The original story beside a variant of it, token by token: what the embedding shift is measured on."""

from __future__ import annotations

from collections.abc import Sequence

Tokens = list[tuple[int, int, int]]
"""Start, end and id of every token of a row; start and end are -1 outside the context."""


def common_tokens(
    original: Tokens, variant: Tokens, kept: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Where each token that two stories share stands in the original and in the variant: the same token of
    the same characters (faithfulness spec 4.2). The variant's context begins with pieces of the original,
    which are `kept`."""
    place = {token: t for t, token in enumerate(original) if token[0] >= 0}
    moved = ((*in_original(start, end, kept), token) for start, end, token in variant)
    return [(place[token], t) for t, token in enumerate(moved) if token in place]


def in_original(start: int, end: int, kept: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Where characters start .. end - 1 of a variant stand in the original; (-1, -1) if not in one piece."""
    before = 0
    for first, last in kept:
        length = last - first
        if before <= start and end <= before + length:
            return start - before + first, end - before + first
        before += length
    return -1, -1
