"""A list that lies on disk: what would not fit in memory is written once and read as often as needed."""

from __future__ import annotations

import pickle
import tempfile
from array import array
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Spool(Generic[T]):
    """Objects in a temporary file without a name: nothing is left of it, however the process ends.

    >>> spool = Spool()
    >>> spool.append("a"); spool.append("b")
    >>> list(spool), spool[1], len(spool)
    (['a', 'b'], 'b', 2)
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 closed with the spool
        self._starts = array("Q")

    def __len__(self) -> int:
        return len(self._starts)

    def append(self, item: T) -> None:
        """Add an object behind the others."""
        self._starts.append(self._file.seek(0, 2))
        pickle.dump(item, self._file, pickle.HIGHEST_PROTOCOL)

    def __getitem__(self, index: int) -> T:
        self._file.seek(self._starts[index])
        item: T = pickle.load(self._file)
        return item

    def __iter__(self) -> Iterator[T]:
        return (self[i] for i in range(len(self)))
