"""Perplexity of a text without and with self-debiasing (probes spec A8), each chunk done once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from evaluation.processes import shared
from evaluation.protocols.consistency.continuations import Writer, short
from evaluation.protocols.consistency.specifications import Part
from metrics.intervals import Interval, bootstrap
from models.language.perplexity import RESERVED, Chunk, ChunkLoss, chunk_loss, chunks, perplexity
from storage.errors import DataError
from storage.files import read_text
from storage.finished_work import FinishedWork, work_key
from storage.json_files import field


class Perplexity(NamedTuple):
    """Of a text: the value, its 95 % interval over chunks (none for a single one), and how many there are."""

    value: float
    interval: Interval
    n: int


WINDOW = 2048 - RESERVED
"""Tokens of a chunk at most, unless more are asked for."""


def window_of(writer: Writer, asked: int | None) -> int:
    """Tokens of a chunk: those asked for, or what the model's context leaves, at most WINDOW.

    Raises:
        ValueError: the context has no room.
    """
    local = writer.local
    assert local is not None
    room = None if local.limit is None else local.limit - RESERVED - len(local.lead)
    if room is not None and room < max(2, asked or 0):
        raise ValueError(
            f"--perplexity: a context of {local.limit} tokens leaves {max(0, room)} behind {RESERVED} for "
            "prefixes" + (f"; take a smaller --perplexity-window than {asked}" if asked and room > 1 else "")
        )
    return asked or min(WINDOW, room or WINDOW)


def read_ids(path: str, writer: Writer, parts: Iterable[Part]) -> list[int]:
    """The token ids of a file's text.

    Raises:
        DataError: the file is no text, or too short.
        ValueError: a prefix does not fit the place reserved for it.
    """
    local = writer.local
    assert local is not None
    prefixes = [text for part in parts for text in part.texts]
    for prefix, row in zip(prefixes, local.plain_ids(prefixes), strict=True):
        if len(row) > RESERVED:
            raise ValueError(
                f"--perplexity keeps {RESERVED} tokens for prefixes, and this one has {len(row)}: "
                f"{short(prefix)}; shorten it"
            )
    (ids,) = local.plain_ids([read_text(path)])
    if len(ids) < 2:
        raise DataError(f"--perplexity {path}: {len(ids)} token(s); a text needs two at least")
    return ids


def perplexities(
    ids: Sequence[int], writer: Writer, parts: Iterable[Part], window: int, work: FinishedWork
) -> dict[str, Perplexity]:
    """Variant to perplexity, over chunks of `window` tokens; `default` is that of the model as it is."""
    local = writer.local
    assert local is not None
    by_variant: dict[str, Perplexity] = {}
    for part in parts:
        prefixes, losses = local.plain_ids(part.texts), []
        pieces = list(chunks(len(ids), window, window))
        keys = [
            work_key(
                kind="perplexity",
                model=[local.name, *(writer.settings[name] for name in ("weights", "dtype", "tokenizer"))],
                debiasing=writer.debiasing,
                prefixes=part.texts,
                ids=[*local.lead, *ids[chunk.begin : chunk.end]],
                targets=chunk.targets,
            )
            for chunk in pieces
        ]
        new = {key: chunk for key, chunk in zip(keys, pieces, strict=True) if key not in work}
        done = iter(chunk_losses(writer, list(new.values()), ids, prefixes))
        names = ChunkLoss._fields
        for key in tqdm(keys, desc=f"perplexity, {part.variant}", unit="chunk", disable=None):
            record = work.get(key) or work.add(key, **next(done)._asdict())
            losses.append(ChunkLoss(*(field(record, name, float, f"{work.path}") for name in names)))
        targets = [chunk.targets for chunk in pieces]
        for variant, value, column in zip(
            ("default", part.variant), perplexity(losses, len(ids)), zip(*losses, strict=True), strict=True
        ):
            sums_UC = np.array([column, targets], dtype=np.float64).T
            interval = bootstrap(sums_UC, lambda total_RC: np.exp(total_RC[:, 0] / total_RC[:, 1]))
            by_variant[variant] = Perplexity(value, interval, len(losses))
    return by_variant


@shared
def chunk_losses(
    writer: Writer, pieces: Sequence[Chunk], ids: Sequence[int], prefixes: Sequence[Sequence[int]]
) -> Iterator[ChunkLoss]:
    """Of each chunk of the ids."""
    local = writer.local
    assert local is not None
    for chunk in pieces:
        piece = list(ids[chunk.begin : chunk.end])
        how: dict[str, Any] = {"pad": local.pad, "lead": local.lead, **writer.debiasing}
        yield chunk_loss(local.model, piece, chunk.targets, prefixes, **how)
