"""Tables of encoded records: a `datasets.Dataset` each, in memory, or made once and mapped from a folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from filelock import FileLock

from data_modules.encoding.tokenizers import tokenizer_files
from data_modules.encoding.windows import CHUNK
from storage.errors import DataError
from storage.files import file_digest

Encode = Callable[[Sequence[Any]], pa.Table]
"""Rows of a few records; without any, a table with all columns and no rows."""

INTS, BYTES, MASK, TEXTS = (pa.list_(kind) for kind in (pa.int32(), pa.uint8(), pa.bool_(), pa.string()))
"""Types of columns of lists."""


class Tables:
    """Finds tables in a folder, and makes those that are missing; without a folder, all in memory.

    A table lies under a digest of all that its content follows from; it may be deleted at any time.
    """

    def __init__(self, folder: str, tokenizer: Any) -> None:
        self.folder = folder
        self.code = [tokenizer_files(tokenizer), code_digest()] if folder else []
        self._digest = cache(source_digest)  # several tables are made of one source

    def get(
        self, source: str, options: Mapping[str, Any], encode: Encode, read: Callable[[], Sequence[Any]]
    ) -> datasets.Dataset:
        """The table of a source. One process of a machine makes it, the others wait for it.

        Args:
            source, options: what it follows from, besides the tokenizer and this code; options as JSON.
            encode, read: only asked where there is no table yet.
        """
        if not self.folder:
            return in_memory(read(), encode)
        content = [source, self._digest(source), options, self.code]
        key = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        path = Path(self.folder, key[:32])
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            if not path.exists():
                datasets.disable_progress_bars()
                in_memory(read(), encode).save_to_disk(f"{path}.part", num_shards=1)
                Path(f"{path}.part").rename(path)
        return datasets.load_from_disk(path).with_format("arrow")


def in_memory(records: Sequence[Any], encode: Encode) -> datasets.Dataset:
    """The table of some records."""
    parts = [encode(records[at : at + CHUNK]) for at in range(0, max(1, len(records)), CHUNK)]
    return datasets.Dataset(pa.concat_tables(parts), fingerprint="in memory").with_format("arrow")


def flat(table: pa.Table, name: str) -> np.ndarray:
    """All values of a column of lists behind one another, or of a column of numbers."""
    column = table.column(name).combine_chunks()
    values = column.flatten() if pa.types.is_list(column.type) else column
    return np.asarray(values.to_numpy(zero_copy_only=False))


def list_lengths(table: pa.Table, name: str) -> np.ndarray:
    """How many values each list of a column has, as int64; none where the list is missing."""
    return np.asarray(pc.fill_null(pc.list_value_length(table.column(name)), 0), dtype=np.int64)


@cache
def code_digest() -> str:
    """Of the code of this room and the versions of libraries: a changed reader makes tables anew."""
    libraries = ("tokenizers", "transformers", "sentencex", "datasets")
    return " ".join([content_digest(Path(__file__).parents[1]), *map(version, libraries)])


def source_digest(source: str) -> str:
    """What tells two states of a source apart: the content of a file, or of all files of a folder; of a
    dataset of the Hub, the library's own fingerprint; of embedded data, whose code is in every key, none.
    DataError where nothing is."""
    if source.startswith("stories:"):
        return ""
    if source.startswith("hub:"):
        from data_modules.sources import table_rows

        return str(getattr(table_rows(source.removeprefix("hub:")), "_fingerprint", ""))
    path, (folder, colon, _) = Path(source), source.rpartition(":")
    path = Path(folder) if colon and not path.exists() else path  # FOLDER:SPLIT
    if not path.exists():
        raise DataError(f"{source}: no such file (other sources begin with hub: or stories:)")
    return content_digest(path)


def content_digest(path: Path) -> str:
    """SHA-256 of a file, or of the files of a folder with their names; compiled code does not count."""
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.suffix != ".pyc")
    digest = hashlib.sha256()
    for file in files if path.is_dir() else [path]:
        digest.update(f"{file.relative_to(path)} {file_digest(file)}".encode())
    return digest.hexdigest()
