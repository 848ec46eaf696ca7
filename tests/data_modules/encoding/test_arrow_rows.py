"""Rows of Arrow files: made in several processes as in one, read as they were written."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.encoding.arrow_rows import MappedRows, in_chunks, list_array, map_chunks, write_tables
from data_modules.interventions.deletion import ExampleError
from data_modules.schema import QAExample
from storage.errors import DataError


def squares(first: int, last: int) -> pa.Table:
    rows = [np.arange(i) for i in range(first, last)]
    return pa.table(
        {"n": list(range(first, last)), "list": list_array(rows, np.int32), "pid": [os.getpid()] * len(rows)}
    )


def fail(first: int, last: int) -> pa.Table:
    if first:
        raise ExampleError(QAExample("q7", "A.", "?"), "empty story")
    return squares(first, last)


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_any_number_of_processes_writes_the_same_rows(
    processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data_modules.encoding.arrow_rows.cores", lambda: processes)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    environment = os.environ
    map_chunks(squares, 31, tmp_path / "rows.arrow", "squares", chunk=3)
    assert os.environ is environment
    assert os.environ["TOKENIZERS_PARALLELISM"] == "true"
    files = sorted(tmp_path.glob("rows*.arrow"))
    assert len(files) == processes
    rows = MappedRows(files)
    assert rows.scalars("n").tolist() == list(range(31))
    lists = rows.lists("list")
    assert [lists[i].tolist() for i in range(31)] == [list(range(i)) for i in range(31)]
    assert lists.lengths_N.tolist() == list(range(31))
    assert (os.getpid() in rows.scalars("pid")) == (processes == 1)


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_comes_back_from_any_process(
    processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data_modules.encoding.arrow_rows.cores", lambda: processes)
    with pytest.raises(DataError, match=r"q7.*empty story"):
        map_chunks(fail, 31, tmp_path / "rows.arrow", "squares", chunk=3)


def test_views_are_of_the_file_and_survive_pickling(tmp_path: Path) -> None:
    assert write_tables([squares(0, 4), squares(4, 9)], tmp_path / "rows.arrow") == 9
    rows = MappedRows([tmp_path / "rows.arrow"])
    view = rows.lists("list")[5]
    assert not view.flags.owndata
    assert not view.flags.writeable
    again = pickle.loads(pickle.dumps(rows))
    assert again.table.equals(rows.table)
    assert len(pickle.dumps(rows)) < 500


@given(st.lists(st.integers(), max_size=50), st.integers(1, 9))
def test_chunks_hold_everything_in_order(items: list[int], size: int) -> None:
    chunks = list(in_chunks(items, size))
    assert [item for chunk in chunks for item in chunk] == items
    assert all(len(chunk) == size for chunk in chunks[:-1])
    assert all(chunks)
