"""Perplexity of a text without and with self-debiasing (probes spec A8), each chunk done once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from evaluation.protocols.consistency.continuations import Part, Writer, short
from metrics.consistency import Variant
from models.language.perplexity import RESERVED, ChunkLoss, chunk_loss, chunks, perplexity
from storage.errors import DataError
from storage.finished_work import FinishedWork, work_key
from storage.json_files import field

PERPLEXED: tuple[Variant, ...] = ("original", "opposite")
"""Whose perplexity is measured beside the default's."""


class LongText(NamedTuple):
    """A text whose perplexity is measured."""

    ids: list[int]
    longest: int
    """Tokens of a chunk; chunks do not overlap."""
    parts: list[Part]
    """With which prefixes."""


def read_text(path: str, writer: Writer, parts: Sequence[Part]) -> LongText:
    """The text of a file.

    Raises:
        DataError: the file is no text, or too short.
        ValueError: a prefix does not fit the place reserved for it, or the context has no room.
    """
    local = writer.local
    assert local is not None
    chosen = [part for part in parts if part.variant in PERPLEXED]
    prefixes = [text for part in chosen for text in part.texts]
    for prefix, row in zip(prefixes, local.plain_ids(prefixes), strict=True):
        if len(row) > RESERVED:
            raise ValueError(
                f"--perplexity keeps {RESERVED} tokens for prefixes, and this one has {len(row)}: "
                f"{short(prefix)}; shorten it"
            )
    if not local.limit or local.limit < RESERVED + 2:
        raise ValueError(f"--perplexity: a context of {local.limit} tokens has no room behind {RESERVED}")
    try:
        (ids,) = local.plain_ids([Path(path).read_text(encoding="utf-8")])
    except OSError as error:
        raise DataError(f"--perplexity {path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DataError(f"--perplexity {path}: not a text file in UTF-8") from None
    if len(ids) < 2:
        raise DataError(f"--perplexity {path}: {len(ids)} token(s); a text needs two at least")
    return LongText(ids, local.limit - RESERVED, chosen)


def perplexities(text: LongText, writer: Writer, work: FinishedWork) -> dict[str, float]:
    """Variant to perplexity; `default` is that of the model as it is."""
    local = writer.local
    assert local is not None
    pieces = list(chunks(len(text.ids), text.longest, text.longest))
    by_variant: dict[str, float] = {}
    for part in text.parts:
        prefix_rows, losses = local.plain_ids(part.texts), []
        for chunk in tqdm(pieces, desc=f"perplexity, {part.variant}", unit="chunk", disable=None):
            ids = text.ids[chunk.begin : chunk.end]
            key = work_key(
                kind="perplexity",
                model=[local.name, *(writer.settings[name] for name in ("weights", "dtype", "tokenizer"))],
                debiasing=writer.debiasing,
                prefixes=part.texts,
                ids=ids,
                targets=chunk.targets,
            )
            if key not in work:
                loss = chunk_loss(
                    local.model, ids, chunk.targets, prefix_rows, pad=local.pad, **writer.debiasing
                )
                work.add(key, **loss._asdict())
            record = work.get(key)
            losses.append(
                ChunkLoss(*(field(record, name, float, f"{work.path}") for name in ChunkLoss._fields))
            )
        by_variant["default"], by_variant[part.variant] = perplexity(losses, len(text.ids))
    return by_variant
