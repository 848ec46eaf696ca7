"""Tables of encoded records: one `datasets.Dataset` each, in memory, or made once and mapped from a folder.

A stored table lies under a digest of everything that its content follows from. Delete the folder at any time
to get its room back.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch.distributed as dist

from data_modules.encoding.tokenizers import tokenizer_files
from storage.errors import DataError
from storage.files import file_digest
from storage.provenance import cores

Encode = Callable[[Sequence[Any]], pa.Table]
"""Rows of a few records; without any, a table with all columns and no rows."""

INTS, BYTES, MASK, TEXTS = (pa.list_(kind) for kind in (pa.int32(), pa.uint8(), pa.bool_(), pa.string()))
"""Types of columns of lists."""

CHUNK = 512
"""Records or texts that are encoded together: tokenizers are busy, and memory holds little else."""

CHUNKS_PER_PROCESS = 3
"""At least so many for a process to be worth its start."""

_PACKAGES = ("tokenizers", "transformers", "sentencex", "datasets")
"""Whose versions decide what text becomes."""

T = TypeVar("T")


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
        self,
        sources: Sequence[str],
        options: Mapping[str, Any],
        encode: Encode,
        read: Callable[[], Sequence[Any]],
    ) -> datasets.Dataset:
        """The table of some sources. One process of a machine makes it, the others wait for it.

        Args:
            sources: whose content is read.
            options: all else that the table follows from besides the tokenizer and this code, as JSON.
            encode: makes rows of records.
            read: reads the records; only asked where there is no table yet.
        """
        if not self.folder:
            return in_memory(read(), encode)
        content = [[source, self._digest(source)] for source in sources]
        key = hashlib.sha256(json.dumps([content, options, self.code], sort_keys=True).encode()).hexdigest()
        rows = Rows(read, encode, cache_dir=self.folder, config_id=key[:32])
        rows.download_and_prepare()
        return rows.as_dataset("train").with_format("arrow")


class RecordError(DataError, datasets.exceptions.DatasetGenerationError):
    """A mistake in a record, as the library lets it through."""


class Rows(datasets.ArrowBasedBuilder):
    """Encodes records on several cores. The library keeps the table under its key, whole or not at all, and
    locks it while it is made."""

    def __init__(self, read: Callable[[], Sequence[Any]], encode: Encode, **settings: Any) -> None:
        self.read, self.encode = read, encode
        super().__init__(**settings)

    def _info(self) -> datasets.DatasetInfo:
        return datasets.DatasetInfo()

    def _split_generators(self, _: Any) -> list[datasets.SplitGenerator]:
        records = self.read()
        del self.read  # does not travel to other processes
        self.info.features = datasets.Features.from_arrow_schema(self.encode([]).schema)
        processes = min(cores(), len(records) // (CHUNKS_PER_PROCESS * CHUNK)) or 1
        size = -(-len(records) // processes)
        parts = [pickle.dumps(records[k * size : (k + 1) * size]) for k in range(processes)]
        return [datasets.SplitGenerator("train", gen_kwargs={"parts": parts})]

    def _prepare_split(self, split: Any, **settings: Any) -> None:
        processes = len(split.gen_kwargs["parts"])
        if processes > 1:  # a forked process waits for ever for threads of a tokenizer that was in use
            os.environ["TOKENIZERS_PARALLELISM"] = "false"
        super()._prepare_split(split, num_proc=processes, **settings)

    def _generate_tables(self, parts: list[bytes]) -> Iterator[tuple[int, pa.Table]]:
        try:
            for part in parts:
                yield from enumerate(encoded(pickle.loads(part), self.encode))
        except ValueError as error:
            raise RecordError(str(error)) from error


def chunks(items: Iterable[T]) -> Iterator[list[T]]:
    """Lists of at most CHUNK items."""
    left = iter(items)
    while part := list(islice(left, CHUNK)):
        yield part


def encoded(records: Sequence[Any], encode: Encode) -> Iterator[pa.Table]:
    """One table at least, if without rows."""
    return map(encode, chunks(records) if len(records) else [[]])


def in_memory(records: Sequence[Any], encode: Encode) -> datasets.Dataset:
    """A table of records, made by this process alone."""
    table = pa.concat_tables(encoded(records, encode))
    return datasets.Dataset(table, fingerprint="in memory").with_format("arrow")


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


@cache
def code_digest() -> str:
    """Of the code of this room and the versions of the libraries that treat text: a changed reader makes
    tables anew."""
    versions = [f"{name} {version(name)}" for name in _PACKAGES]
    return " ".join([content_digest(Path(__file__).parents[1]), *versions])


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
        return "".join(content_digest(Path(part)) for part in named if Path(part).is_file())
    if source.startswith("hub:"):
        from data_modules.sources import table_rows

        return str(getattr(table_rows(source.removeprefix("hub:")), "_fingerprint", ""))
    path, (folder, colon, _) = Path(source), source.rpartition(":")
    try:
        return content_digest(Path(folder) if colon and not path.exists() else path)  # FOLDER:SPLIT
    except OSError as error:
        said = f"{source}: {error.strerror} (other sources begin with hub:, stories: or domains:)"
        raise DataError(said) from None


def content_digest(path: Path) -> str:
    """SHA-256 of a file, or of the files of a folder with their names; compiled code does not count."""
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.suffix != ".pyc")
    digest = hashlib.sha256()
    for file in files if path.is_dir() else [path]:
        digest.update(f"{file.relative_to(path)} {file_digest(file)}".encode())
    return digest.hexdigest()


def process_rank() -> tuple[int, int]:
    """The rank of this process and how many there are; (0, 1) where it is alone."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1
