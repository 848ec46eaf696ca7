"""Answers that are remembered: never asked for twice, and safe from kills."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.language.open_model import BOUND_REACHED, CachedTextModel, cache_key
from models.language.text_models import TextFailure, TextModel
from storage.finished_work import read_work

DOWN = TextFailure("down")


class Upper(TextModel):
    """Answers in upper case, but not prompts with an x; remembers what it was asked."""

    def __init__(self, name: str = "upper", bound: int = 9) -> None:
        self.name, self.can = name, frozenset({"write"})
        self.settings = {"max_new_tokens": bound, "temperature": 0}
        self.asked: list[str] = []

    def complete(self, prompts: Sequence[str]) -> Iterator[str | TextFailure]:
        for prompt in prompts:
            self.asked.append(prompt)
            yield DOWN if "x" in prompt else prompt.upper()


def test_finished_prompts_are_never_asked_again_and_failures_are(tmp_path: Path) -> None:
    path = tmp_path / "cache.jsonl"
    first = Upper()
    assert list(CachedTextModel(first, path).complete(["a", "x", "b", "a"])) == ["A", DOWN, "B", "A"]
    assert first.asked == ["a", "x", "b"]
    second = Upper()
    assert list(CachedTextModel(second, path).complete(["b", "x", "c", "a"])) == ["B", DOWN, "C", "A"]
    assert second.asked == ["x", "c"]
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["text"] for record in records] == ["A", "B", "C"]
    assert list(records[0]) == ["key", "model", "settings", "prompt", "text", "time"]
    assert records[0]["key"] == cache_key("upper", {"temperature": 0, "max_new_tokens": 9}, "a")


def test_another_model_or_setting_is_another_answer(tmp_path: Path) -> None:
    path = tmp_path / "cache.jsonl"
    for count, model in enumerate((Upper(), Upper("other"), Upper(bound=8)), 1):
        assert next(iter(CachedTextModel(model, path).complete(["a", "b"]))) == "A"
        assert model.asked == ["a"]  # and its answer is in the file before the next is asked for
        assert len(read_work(path)) == count


@given(
    st.lists(st.text("abx\u2028\r\n\ud7ff ", max_size=3), max_size=8), st.integers(0, 400), st.integers(0, 9)
)
def test_a_run_that_was_killed_goes_on_where_it_was(
    tmp_path_factory: pytest.TempPathFactory, prompts: list[str], cut: int, bound: int
) -> None:
    """Whatever byte the file ends at, and whatever the bound: the answers are those of one run."""
    path = tmp_path_factory.mktemp("cache") / "cache.jsonl"
    list(CachedTextModel(Upper(), path, max_requests=bound).complete(prompts))
    if path.exists():
        path.write_bytes(path.read_bytes()[: max(0, path.stat().st_size - cut)])
    model = CachedTextModel(Upper(), path)
    assert list(model.complete(prompts)) == list(Upper().complete(prompts))
    answered = {prompt for prompt in prompts if "x" not in prompt}
    assert len(read_work(path)) == len(answered)
    assert len(answered) == len(path.read_text().splitlines() if path.exists() else [])


def test_the_bound_counts_new_prompts_of_the_whole_run(tmp_path: Path) -> None:
    path = tmp_path / "cache.jsonl"
    model = CachedTextModel(Upper(), path, max_requests=2)
    assert list(model.complete(["a", "a", "b", "c", "a"])) == ["A", "A", "B", BOUND_REACHED, "A"]
    assert list(model.complete(["d", "b"])) == [BOUND_REACHED, "B"]
    assert model.requests == 2
    more = CachedTextModel(Upper(), path, max_requests=1).complete(["a", "b", "c", "d"])
    assert list(more) == ["A", "B", "C", BOUND_REACHED]


def test_without_a_file_answers_are_remembered_all_the_same() -> None:
    model = CachedTextModel(inner := Upper(), None)
    assert [*model.complete(["a", "b"]), *model.complete(["a"])] == ["A", "B", "A"]
    assert inner.asked == ["a", "b"]
    assert model.identity == inner.identity
