"""Tables of encoded records: one `datasets.Dataset` each, in memory, or made once and mapped from a folder.

    table = in_memory(examples, partial(encode_questions, tokenizer=tokenizer, encoding=encoding))
    table = Tables("cache/data", tokenizer).get([source], options, work)

A stored table lies under a digest of everything that its content follows from. Delete the folder at any time
to get its room back.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch.distributed as dist
from datasets.builder import Key

from data_modules.encoding.tokenizers import tokenizer_files
from storage.errors import DataError
from storage.provenance import cores

Encode = Callable[[Sequence[Any]], pa.Table]
"""Rows of a few records; without any, a table with all columns and no rows."""

CHUNK = 512
"""Records that are encoded together."""

CHUNKS_PER_PROCESS = 3
"""At least so many for a process to be worth its start."""

_PACKAGES = ("tokenizers", "transformers", "sentencex", "datasets")
"""Whose versions decide what text becomes."""


class Work(NamedTuple):
    """What a table is made of."""

    records: Sequence[Any]
    encode: Encode


class Tables:
    """Finds tables in a folder, and makes those that are missing.

    Args:
        folder: of all tables; empty makes every table in memory.
        tokenizer: encodes all of them.
    """

    def __init__(self, folder: str, tokenizer: Any) -> None:
        self.folder = folder
        files = {"class": type(tokenizer).__name__, **tokenizer_files(tokenizer)} if folder else {}
        self.code = [files, code_digest()] if folder else []
        self._digest = cache(source_digest)  # several tables are made of one source

    def get(
        self, sources: Sequence[str], options: Mapping[str, Any], work: Callable[[], Work]
    ) -> datasets.Dataset:
        """The table of some sources. One process of a machine makes it, the others wait for it.

        Args:
            sources: whose content is read.
            options: all else that the table follows from besides the tokenizer and this code, as JSON.
            work: reads what the table is made of; only asked where there is no table yet.

        Raises:
            DataError: the folder cannot be written.
        """
        if not self.folder:
            return in_memory(*work())
        content = [[source, self._digest(source)] for source in sources]
        key = hashlib.sha256(json.dumps([content, options, self.code], sort_keys=True).encode()).hexdigest()
        if not sys.stderr.isatty():
            datasets.disable_progress_bars()
        rows = None
        try:
            rows = Rows(work, cache_dir=self.folder, config_id=key[:32])
            rows.download_and_prepare(num_proc=cores())
        except Refused as error:
            raise DataError(str(error)) from None
        except (OSError, datasets.exceptions.DatasetGenerationError) as error:
            cause = error.__cause__ if rows else error
            if isinstance(cause, OSError):
                reason = cause.strerror or cause
                raise DataError(f"data.cache: {self.folder} cannot be written ({reason})") from error
            raise
        table: datasets.Dataset = rows.as_dataset("train")
        return table.with_format("arrow")


class Refused(datasets.exceptions.DatasetGenerationError):
    """A mistake in a record: its message alone travels between processes."""


class Rows(datasets.ArrowBasedBuilder):
    """Encodes records in chunks, on several cores. The library keeps the table under its key, whole or not at
    all, and locks it while it is made."""

    def __init__(self, work: Callable[[], Work], **settings: Any) -> None:
        self.work: Callable[[], Work] | None = work
        super().__init__(**settings)

    def _info(self) -> datasets.DatasetInfo:
        return datasets.DatasetInfo()

    def _split_generators(self, _: Any) -> list[datasets.SplitGenerator]:
        assert self.work is not None
        (records, encode), self.work = self.work(), None  # which does not travel to other processes
        self.info.features = datasets.Features.from_arrow_schema(encode([]).schema)
        # Records of a chunk travel together: they share their texts.
        chunks = [pickle.dumps(records[at : at + CHUNK]) for at in range(0, len(records), CHUNK)]
        settings = {"chunks": chunks or [pickle.dumps([])], "encode": encode}
        return [datasets.SplitGenerator("train", gen_kwargs=settings)]

    def _prepare_split(self, split: Any, num_proc: int, **settings: Any) -> None:
        processes = min(num_proc, len(split.gen_kwargs["chunks"]) // CHUNKS_PER_PROCESS)
        before = os.environ.get("TOKENIZERS_PARALLELISM")
        try:
            if processes > 1:  # threads of the tokenizer, which is in use here, are not in a forked process
                os.environ["TOKENIZERS_PARALLELISM"] = "false"
            super()._prepare_split(split, num_proc=processes if processes > 1 else None, **settings)
        finally:
            os.environ.pop("TOKENIZERS_PARALLELISM", None)
            if before is not None:
                os.environ["TOKENIZERS_PARALLELISM"] = before

    def _generate_tables(self, chunks: list[bytes], encode: Encode) -> Iterator[tuple[Key, pa.Table]]:
        for number, chunk in enumerate(chunks):
            try:
                table = encode(pickle.loads(chunk))
            except ValueError as error:
                raise Refused(str(error)) from error
            yield Key(number, 0), table


def in_memory(records: Sequence[Any], encode: Encode) -> datasets.Dataset:
    """A table of records, made by this process alone."""
    parts = [encode(records[at : at + CHUNK]) for at in range(0, len(records), CHUNK)] or [encode([])]
    table = pa.concat_tables(parts, promote_options="default")
    return datasets.Dataset(table, fingerprint="in memory").with_format("arrow")


@cache
def code_digest() -> str:
    """SHA-256 of the code of this room and of the versions of the libraries that treat text: a changed reader
    makes tables anew."""
    digest = hashlib.sha256(json.dumps([[name, version(name)] for name in _PACKAGES]).encode())
    room = Path(__file__).parents[1]
    for file in sorted(file for file in room.rglob("*") if file.suffix in (".py", ".yaml")):
        digest.update(str(file.relative_to(room)).encode() + file.read_bytes())
    return digest.hexdigest()


def list_column(rows: Sequence[Any], dtype: Any) -> pa.ListArray:
    """One-dimensional arrays as a column of lists."""
    ends = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    flat = np.concatenate([np.asarray(row, dtype=dtype) for row in rows]) if len(rows) else np.empty(0, dtype)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(flat))


def flat(table: pa.Table, name: str) -> np.ndarray:
    """All values of a column of lists behind one another, or of a column of numbers."""
    column = table.column(name).combine_chunks()
    values = column.flatten() if pa.types.is_list(column.type) else column
    array: np.ndarray = values.to_numpy(zero_copy_only=False)
    return array


def list_lengths(table: pa.Table, name: str) -> np.ndarray:
    """How many values each list of a column has, as int64; none where the list is missing."""
    lengths = pc.fill_null(pc.list_value_length(table.column(name)), 0)
    return lengths.to_numpy().astype(np.int64)


def source_digest(source: str) -> str:
    """What tells two states of a source apart: the content of a file, or of all files of a folder; of a
    dataset of the Hub, the library's own fingerprint. Of embedded data, whose code is in every key, that of
    the files that its options name.

    Raises:
        DataError: the file is not there, or the dataset cannot be loaded.
    """
    if source.startswith("stories:"):
        return ""
    if source.startswith("domains:"):
        named = (part for _, value in parse_qsl(source.partition("?")[2]) for part in value.split(","))
        return "".join(source_digest(part) for part in named if Path(part).is_file())
    if source.startswith("hub:"):
        from data_modules.sources import table_rows

        return str(getattr(table_rows(source.removeprefix("hub:")), "_fingerprint", ""))
    path, (folder, colon, _) = Path(source), source.rpartition(":")
    if colon and not path.exists():
        path = Path(folder)  # FOLDER:SPLIT
    digest = hashlib.sha256()
    try:
        files = [path]
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file())
        for file in files:
            with open(file, "rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
            digest.update(str(file.relative_to(path)).encode())
        return digest.hexdigest()
    except FileNotFoundError:
        raise DataError(
            f"{source}: no such file (other sources begin with hub:, stories: or domains:)"
        ) from None
    except OSError as error:
        raise DataError(f"{source}: cannot be read: {error.strerror}") from None


def process_rank() -> tuple[int, int]:
    """The rank of this process and how many there are; (0, 1) where it is alone."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1
