from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import DataError
from storage.finished_work import FinishedWork, work_key


def test_a_piece_is_in_the_file_before_the_next_is_begun_and_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "work.jsonl"
    work, memory = FinishedWork(path), FinishedWork(None)
    assert not path.exists()
    for i, value in enumerate((0.1, 1 / 3, -2.5e-310)):
        for store in (work, memory):
            store.keep(str(i), [value, "ä\u2028"])
        assert len(path.read_text().split("\n")) == i + 2
    assert FinishedWork(path) == work == memory


@given(st.lists(st.text(max_size=4), max_size=5), st.integers(0, 200))
def test_whatever_byte_a_kill_leaves_the_rest_is_whole(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], cut: int
) -> None:
    path = tmp_path_factory.mktemp("work") / "work.jsonl"
    work = FinishedWork(path)
    for i, text in enumerate(texts):
        work.keep(str(i), text)
    if path.exists():
        path.write_bytes(path.read_bytes()[: max(0, path.stat().st_size - cut)])
    left = FinishedWork(path)
    assert [*left.items()] == [*work.items()][: len(left)]
    for key in work.keys() - left.keys():
        left.keep(key, work[key])
    assert FinishedWork(path) == work


def test_a_key_knows_every_part_but_not_their_order() -> None:
    assert work_key(a=1, b={"c": 2, "d": 3}) == work_key(b={"d": 3, "c": 2}, a=1)
    assert len({work_key(a=1), work_key(a=2), work_key(a="1"), work_key(a=1.5), work_key(b=1)}) == 5


@pytest.mark.parametrize("text", ["no store\n", '[1]\n{"key": "a", "answer": 1}\n', '{"key": 3}\n', "{}\n"])
def test_a_file_that_is_no_store_is_told_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(DataError, match="line 1"):
        FinishedWork(path)
    assert path.read_text() == text
