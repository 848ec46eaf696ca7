"""Stories beside their variants: read lazily, joined chunk by chunk."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.interventions.augmentation import template_sentence
from data_modules.interventions.deletion import perturb
from data_modules.questions.rows import write_rows
from data_modules.schema import QAExample, Rejected, Variant
from data_modules.stories.questions import qa_examples
from evaluation.protocols.shift.batches import spread
from evaluation.protocols.shift.distributed import Processes
from evaluation.protocols.shift.pairs import Rows, StorySource, sentence_writer
from storage.errors import DataError

STORIES = list(islice(qa_examples("mixed_dev"), 80))


def made(variant: Variant) -> list[QAExample]:
    results = [perturb(story, variant) for story in STORIES]
    return [result for result in results if isinstance(result, QAExample)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("rows")
    write_rows(STORIES[:50], root / "os_1.jsonl")
    write_rows(STORIES[50:], root / "os_2.jsonl")
    write_rows(made("ts_r"), root / "ts_r.jsonl")
    return root


def test_variants_made_here_equal_perturb_on_every_story() -> None:
    source = StorySource(["stories:mixed_dev"], ["ts", "ts_r"], limit=80)
    stories = [story for chunk in source.chunks(7) for story in chunk]
    assert [story.original for story in stories] == STORIES
    assert [story.number for story in stories] == list(range(80))
    rejected: dict[str, Counter[str]] = {"ts": Counter(), "ts_r": Counter()}
    for story in stories:
        for variant, reasons in rejected.items():
            expected = perturb(story.original, variant)  # type: ignore[arg-type]
            if isinstance(expected, Rejected):
                reasons[expected.reason] += 1
                assert variant not in story.variants
            else:
                assert story.variants[variant] == expected  # type: ignore[index]
    assert source.rejected == rejected
    assert rejected["ts_r"].total() > 0


@pytest.mark.parametrize("size", [1, 3, 50, 1000])
def test_files_of_rows_are_joined_whatever_the_chunk(files: Path, size: int) -> None:
    sources = [str(files / name) for name in ("ts_r.jsonl", "os_1.jsonl", "os_2.jsonl")]
    source = StorySource(sources, ())
    assert source.variants == ("ts_r",)
    chunks = list(source.chunks(size))
    assert all(len(chunk) <= size for chunk in chunks)
    stories = [story for chunk in chunks for story in chunk]
    assert [story.original for story in stories] == STORIES
    assert [story.variants["ts_r"] for story in stories if story.variants] == made("ts_r")


def test_a_limit_counts_originals_and_leaves_the_other_rows_alone(files: Path) -> None:
    sources = [str(files / "os_1.jsonl"), str(files / "ts_r.jsonl")]
    stories = [story for chunk in StorySource(sources, (), limit=10).chunks(4) for story in chunk]
    assert [story.original.id for story in stories] == [story.id for story in STORIES[:10]]


def test_only_one_chunk_is_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0

    def counted(source: str, *, skip_bad: bool = False) -> object:
        nonlocal read
        for story in STORIES:
            read += 1
            yield story

    monkeypatch.setattr("evaluation.protocols.shift.pairs.read_questions", counted)
    source = StorySource(["stories:any"], ["ts"])
    read = 0
    for number, _ in enumerate(source.chunks(10), 1):
        assert read <= 10 * number


def test_rows_out_of_order_are_told(files: Path, tmp_path: Path) -> None:
    write_rows(reversed(made("ts_r")), tmp_path / "reversed.jsonl")
    names = [str(files / "os_1.jsonl"), str(files / "os_2.jsonl"), str(tmp_path / "reversed.jsonl")]
    with pytest.raises(DataError, match="not in the originals' order"):
        list(StorySource(names, ()).chunks(8))


def test_another_data_set_in_the_middle_is_told(files: Path, tmp_path: Path) -> None:
    write_rows([*STORIES[:5], replace(STORIES[5], dataset="coqa")], tmp_path / "os.jsonl")
    with pytest.raises(DataError, match=r"another data set \(coqa\)"):
        list(StorySource([str(tmp_path / "os.jsonl")], ["ts"]).chunks(2))


def test_generated_sentences_are_those_of_the_templates() -> None:
    source = StorySource(
        ["stories:mixed_dev"],
        ["ts_r_aug"],
        sentences=sentence_writer("templates", None, Processes()),
        limit=80,
    )
    bare = {example.id: example for example in made("ts_r")}
    found = [story for chunk in source.chunks(16) for story in chunk if story.variants]
    assert found
    for story in found:
        appended = story.variants["ts_r_aug"].appended
        needed = bool(bare[story.original.id].appended)
        assert appended == (template_sentence(story.original) if needed else "")


def test_rows_are_taken_as_long_as_they_are_wanted() -> None:
    rows = Rows(iter(STORIES[:4]))
    assert list(rows.take({STORIES[0].id, STORIES[1].id, STORIES[3].id})) == [STORIES[0].id, STORIES[1].id]
    assert rows.take({STORIES[3].id}) == {}
    assert list(rows.take({STORIES[2].id, STORIES[3].id})) == [STORIES[2].id, STORIES[3].id]
    assert rows.next is None


@given(st.lists(st.integers(0, 90), min_size=1, max_size=8), st.integers(2, 40))
def test_spread_takes_both_ends_and_even_steps(counts: list[int], most: int) -> None:
    chosen = spread(counts, most).tolist()
    start = 0
    for count in counts:
        own = [index - start for index in chosen if start <= index < start + count]
        assert len(own) == min(count, most)
        if count:
            assert (own[0], own[-1]) == (0, count - 1)
            steps = {after - before for before, after in pairwise(own)}
            assert not steps or max(steps) - min(steps) <= 1
        start += count
