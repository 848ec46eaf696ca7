"""Rows in Arrow files: made by all cores at once, read without copying.

    map_chunks(function, count, folder / "windows.arrow", "tokenising questions")
    rows = MappedRows(entry.files("windows"))
    rows.lists("input_ids")[5]      # a view of the file, which is mapped and shared by all processes

Shape letters: N rows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from storage.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa  # slow to import, and commands that prepare no data need none

Item = TypeVar("Item")

CHUNK = 512
"""Records that are worked on together."""

_CHUNKS_PER_PROCESS = 3
"""At least so many for a process to be worth its start."""

_BAR_FROM = 5000
"""Records from which a bar is shown where there is a terminal; below, a blink suffices."""


def map_chunks(
    function: Callable[[int, int], pa.Table], count: int, target: Path, what: str, *, chunk: int = CHUNK
) -> None:
    """Write `function(first, last)` of all chunks of `count` records, in their order, on all cores.

    Args:
        function: makes the rows of records first .. last - 1; it is pickled for other processes.
        count: how many records there are; at least one.
        target: `NAME.arrow`; with several processes `NAME_00000_of_00004.arrow` and so on.
        what: shown with the bar.
        chunk: records in a chunk.

    Raises:
        DataError: what `function` raises, or one of the processes was ended from outside.
    """
    import datasets

    chunks = datasets.Dataset.from_dict({"first": list(range(0, count, chunk))})
    processes = min(cores(), len(chunks) // _CHUNKS_PER_PROCESS)
    with _bars(count >= _BAR_FROM and sys.stderr.isatty()), _environment_kept():
        try:
            chunks.map(
                partial(_one_chunk, function, chunk, count),
                batched=True,
                batch_size=1,
                remove_columns=["first"],
                num_proc=processes if processes > 1 else None,
                cache_file_name=str(target),
                new_fingerprint="chunks",  # the library would hash the function; the cache has its own keys
                load_from_cache_file=False,
                desc=what,
            )
        except RuntimeError as error:
            if "abruptly died" not in str(error):
                raise
            raise DataError(f"{what}: a process was ended from outside; was the memory full?") from None


def _one_chunk(
    function: Callable[[int, int], pa.Table], size: int, count: int, chunk: Mapping[str, list[int]]
) -> pa.Table:
    (first,) = chunk["first"]
    try:
        return function(first, min(first + size, count))
    except DataError as error:
        # Kinds of DataError with arguments of their own do not survive the way between processes.
        raise DataError(str(error)) from None


def cores() -> int:
    """How many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _bars(shown: bool) -> Iterator[None]:
    """Within, the library shows its bars or does not."""
    import datasets

    before = datasets.are_progress_bars_disabled()
    (datasets.enable_progress_bars if shown else datasets.disable_progress_bars)()
    try:
        yield
    finally:
        (datasets.disable_progress_bars if before else datasets.enable_progress_bars)()


@contextmanager
def _environment_kept() -> Iterator[None]:
    """`map` turns the tokenizer's threads off for its processes and puts a copy in place of `os.environ`."""
    name = "TOKENIZERS_PARALLELISM"
    environment, before = os.environ, os.environ.get(name)
    try:
        yield
    finally:
        os.environ = environment  # noqa: B003  the library replaced it
        if before is None:
            environment.pop(name, None)
        else:
            environment[name] = before


def write_tables(tables: Iterable[pa.Table], path: Path) -> int:
    """Write one file of rows; how many they are."""
    import pyarrow as pa

    count, writer = 0, None
    with pa.OSFile(str(path), "wb") as file:
        for table in tables:
            writer = writer or pa.ipc.new_stream(file, table.schema)
            writer.write_table(table)
            count += table.num_rows
        if writer is not None:
            writer.close()
    return count


def in_chunks(items: Iterable[Item], size: int = CHUNK) -> Iterator[list[Item]]:
    """Lists of `size` items, the last one shorter."""
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk


def list_array(rows: Sequence[np.ndarray], dtype: Any) -> pa.ListArray:
    """One-dimensional arrays as a column of lists."""
    import pyarrow as pa

    ends = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int32)
    flat = np.concatenate([np.asarray(row, dtype=dtype) for row in rows]) if rows else np.empty(0, dtype)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(flat))


class ListColumn:
    """A column of lists, each a read-only view of the mapped file."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._flat = [chunk.values.to_numpy(zero_copy_only=True) for chunk in column.chunks]
        offsets = [chunk.offsets.to_numpy() for chunk in column.chunks]
        counts = [len(chunk) for chunk in column.chunks]
        empty = np.empty(0, dtype=np.int32)
        self._chunk_N = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        self._start_N = np.concatenate([o[:-1] for o in offsets]) if offsets else empty
        self._end_N = np.concatenate([o[1:] for o in offsets]) if offsets else empty
        self.lengths_N: np.ndarray = self._end_N - self._start_N
        """Of every list."""

    def __getitem__(self, index: int) -> np.ndarray:
        view: np.ndarray = self._flat[self._chunk_N[index]][self._start_N[index] : self._end_N[index]]
        return view


class MappedRows:
    """The rows of some files, one file after the other."""

    def __init__(self, files: Sequence[Path]) -> None:
        import pyarrow as pa

        self.files = tuple(files)
        self.table = pa.concat_tables(
            pa.ipc.open_stream(pa.memory_map(str(file))).read_all() for file in self.files
        )

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedRows, (self.files,)  # another process maps the same files

    def lists(self, name: str) -> ListColumn:
        """A column of lists."""
        return ListColumn(self.table.column(name))

    def scalars(self, name: str) -> np.ndarray:
        """A column of numbers, (N,)."""
        column: np.ndarray = self.table.column(name).to_numpy()
        return column

    def text(self, name: str, index: int) -> str:
        """One text."""
        return str(self.table.column(name)[index].as_py())

    def texts(self, name: str) -> Iterator[str]:
        """All texts of a column, a few at a time."""
        for chunk in self.table.column(name).chunks:
            yield from chunk.to_pylist()
