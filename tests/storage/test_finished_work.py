from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import DataError
from storage.finished_work import FinishedWork, work_key


def test_a_piece_is_in_the_file_before_the_next_is_begun_and_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "work.jsonl"
    work = FinishedWork(path)
    assert not path.exists()
    for i, value in enumerate((0.1, 1 / 3, -2.5e-310)):
        work.add(str(i), logits=[value, "ä\u2028"])
        assert len(path.read_text().split("\n")) == i + 2
    again = FinishedWork(path)
    assert again.found == 3
    assert [again.get(str(i)) for i in range(3)] == [work.get(str(i)) for i in range(3)]
    assert again.get("3") is None
    assert "2" in again


def test_results_come_in_order_and_what_failed_is_done_again(tmp_path: Path) -> None:
    work = FinishedWork(tmp_path / "work.jsonl")
    asked: list[list[int]] = []

    def double(pieces: list[int]) -> list[int | Exception]:
        asked.append(pieces)
        return [ValueError() if piece == 2 else 2 * piece for piece in pieces]

    pieces = {"b": 1, "a": 2, "c": 3}
    assert [key for key, _ in work.results(pieces, double, "twice", Exception)] == list(pieces)
    again = dict(FinishedWork(work.path).results({"d": 4, **pieces}, double, "twice", Exception))
    assert (again["d"], again["b"], again["c"]) == (8, 2, 6)
    assert isinstance(again["a"], ValueError)
    assert asked == [[1, 2, 3], [4, 2]]


@given(st.lists(st.text(max_size=4), max_size=5), st.integers(0, 200))
def test_whatever_byte_a_kill_leaves_the_rest_is_whole(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], cut: int
) -> None:
    path = tmp_path_factory.mktemp("work") / "work.jsonl"
    work = FinishedWork(path)
    for i, text in enumerate(texts):
        work.add(str(i), text=text)
    if path.exists():
        path.write_bytes(path.read_bytes()[: max(0, path.stat().st_size - cut)])
    left = FinishedWork(path)
    done = left.found
    assert [left.get(str(i)) for i in range(done)] == [work.get(str(i)) for i in range(done)]
    for i, text in enumerate(texts):
        if str(i) not in left:
            left.add(str(i), text=text)
    whole = FinishedWork(path)
    assert [whole.get(str(i)) for i in range(len(texts))] == [work.get(str(i)) for i in range(len(texts))]


def test_a_key_knows_every_part_but_not_their_order() -> None:
    assert work_key(a=1, b={"c": 2, "d": 3}) == work_key(b={"d": 3, "c": 2}, a=1)
    assert len({work_key(a=1), work_key(a=2), work_key(a="1"), work_key(a=1.5), work_key(b=1)}) == 5


def test_a_store_without_a_file_remembers() -> None:
    work = FinishedWork(None)
    assert work.add("a", n=1) == work.get("a") == {"key": "a", "n": 1}


def test_a_torn_last_line_is_dropped_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "work.jsonl"
    path.write_text('{"key": "a", "n": 1}\n{"key": "b", "n')
    with caplog.at_level(logging.WARNING):
        assert FinishedWork(path).found == 1
    assert f"{path}, line 2: cut off" in caplog.text


@pytest.mark.parametrize("text", ["no store\n", '[1]\n{"key": "a"}\n', '{"key": 3}\n', '{"n": 1}\n'])
def test_a_file_that_is_no_store_is_told_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(DataError, match="line 1"):
        FinishedWork(path)
    assert path.read_text() == text
