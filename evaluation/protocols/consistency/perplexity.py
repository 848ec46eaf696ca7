"""Perplexity of a text without and with self-debiasing (probes spec A8), each chunk done once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from evaluation.protocols.consistency.generation import LocalWriter
from evaluation.protocols.consistency.results import Part
from metrics.consistency import Variant
from models.language.perplexity import ChunkLoss, chunks, perplexity
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


def read_text(path: str, writer: LocalWriter, parts: Sequence[Part]) -> LongText:
    """The text of a file.

    Raises:
        DataError: the file is no text, or too short.
        ValueError: a prefix is too long.
    """
    chosen = [part for part in parts if part.variant in PERPLEXED]
    longest = writer.longest_chunk([text for part in chosen for text in part.texts])
    try:
        ids = writer.text_ids(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"--perplexity {path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DataError(f"--perplexity {path}: not a text file in UTF-8") from None
    if len(ids) < 2:
        raise DataError(f"--perplexity {path}: {len(ids)} token(s); a text needs two at least")
    return LongText(ids, longest, chosen)


def perplexities(text: LongText, writer: LocalWriter, work: FinishedWork) -> dict[str, float]:
    """Variant to perplexity; `default` is that of the model as it is."""
    at_all = list(chunks(len(text.ids), text.longest, text.longest))
    found: dict[str, float] = {}
    for part in text.parts:
        losses = []
        for at in tqdm(at_all, desc=f"perplexity, {part.variant}", unit="chunk", disable=None):
            key = work_key(
                kind="perplexity",
                model=[writer.name, *(writer.settings[name] for name in ("weights", "dtype", "tokenizer"))],
                debiasing=writer.debiasing,
                prefixes=part.texts,
                ids=text.ids[at.begin : at.end],
                targets=at.targets,
            )
            record = work.get(key)
            if record is None:
                record = work.add(key, **writer.chunk_losses(text.ids, part.texts, at)._asdict())
            losses.append(
                ChunkLoss(*(field(record, name, float, f"{work.path}") for name in ChunkLoss._fields))
            )
        found["default"], found[part.variant] = perplexity(losses, len(text.ids))
    return found
