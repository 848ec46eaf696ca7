"""Stories beside their variants: read once, joined by id, perturbed a part at a time."""

from __future__ import annotations

import io
import re
import sys
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
from evaluation.protocols.shift.measure import spread
from evaluation.variants import Stories, VariantOptions, read_stories
from storage.errors import DataError

STORIES = list(islice(qa_examples("mixed_dev"), 80))
SOURCE = "stories:mixed_dev"


def made(variant: Variant) -> list[QAExample]:
    results = [perturb(story, variant) for story in STORIES]
    return [result for result in results if isinstance(result, QAExample)]


def read(*sources: str | Path, variants: list[Variant] | None = None, limit: int = 0) -> Stories:
    return read_stories(VariantOptions(data=[str(s) for s in sources], variants=variants, limit=limit))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("rows")
    write_rows(STORIES[:50], root / "os_1.jsonl")
    write_rows(STORIES[50:], root / "os_2.jsonl")
    write_rows(made("ts_r"), root / "ts_r.jsonl")
    write_rows(reversed(made("ts_r")), root / "reversed.jsonl")
    write_rows([*made("ts_r")[:40], *STORIES, *made("ts_r")[40:]], root / "mixed.jsonl")
    return root


def test_variants_made_here_equal_perturb_on_every_story() -> None:
    data = read(SOURCE, variants=["ts", "ts_r"], limit=80)
    stories = [story for chunk in data.chunks(7) for story in chunk]
    assert [story.original for story in stories] == STORIES
    assert [story.number for story in stories] == list(range(80))
    assert data.examples() == {"ts": made("ts"), "ts_r": made("ts_r")}
    lost = {variant: [perturb(story, variant) for story in STORIES] for variant in ("ts", "ts_r")}  # type: ignore[arg-type]
    assert data.rejected == {
        variant: Counter(result.reason for result in results if isinstance(result, Rejected))
        for variant, results in lost.items()
    }
    assert data.rejected["ts_r"].total() > 0


@pytest.mark.parametrize("names", ["os_1 os_2 ts_r", "reversed os_1 os_2", "mixed"])
def test_rows_are_joined_in_any_order_of_files_and_rows(files: Path, names: str) -> None:
    paths = [files / f"{name}.jsonl" for name in names.split()]
    data = read(*paths)
    assert set(data.variants) == {"os", "ts_r"}
    chunks = list(data.chunks(30))
    assert [len(chunk) for chunk in chunks] == [30, 30, 20]
    assert data.examples() == {"os": STORIES, "ts_r": made("ts_r")}
    first = read(*paths, limit=10).examples()
    wanted = {story.id for story in STORIES[:10]}
    assert first == {"os": STORIES[:10], "ts_r": [row for row in made("ts_r") if row.id in wanted]}


def test_rows_without_originals_stand_apart(files: Path) -> None:
    data = read(files / "os_1.jsonl", files / "ts_r.jsonl")
    own = {story.id for story in STORIES[:50]}
    assert data.others["ts_r"] == [row for row in made("ts_r") if row.id not in own]
    assert sorted(row.id for row in data.examples()["ts_r"]) == sorted(row.id for row in made("ts_r"))
    alone = read(files / "ts_r.jsonl", limit=7)
    assert (len(alone.stories), alone.examples()) == (0, {"ts_r": made("ts_r")[:7]})


def test_sources_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0

    def counted(source: str, *, skip_bad: bool = False) -> object:
        nonlocal count
        for story in STORIES:
            count += 1
            yield story

    monkeypatch.setattr("data_modules.sources.read_questions", counted)
    data = read("stories:any", variants=["ts"], limit=30)
    assert sum(len(chunk) for _ in range(2) for chunk in data.chunks(10)) == 2 * 30
    assert count == 30


def test_mistakes_name_the_source(files: Path, tmp_path: Path) -> None:
    write_rows([*STORIES[:5], replace(STORIES[5], dataset="coqa")], tmp_path / "os.jsonl")
    with pytest.raises(DataError, match=r"coqa in .*os.jsonl"):
        read(tmp_path / "os.jsonl", variants=["ts"])
    with pytest.raises(DataError, match="--variants ts"):
        read(files / "ts_r.jsonl", variants=["ts"])
    write_rows(made("ts_r")[-5:], tmp_path / "last.jsonl")
    with pytest.raises(DataError, match="--limit 3"):
        read(files / "os_1.jsonl", tmp_path / "last.jsonl", limit=3)


def test_generated_sentences_are_those_of_the_templates() -> None:
    found = read(SOURCE, variants=["ts_r_aug"], limit=80).examples()["ts_r_aug"]
    needed = {example.id: bool(example.appended) for example in made("ts_r")}
    sentences = {story.id: template_sentence(story) if needed.get(story.id) else "" for story in STORIES}
    assert {example.id: example.appended for example in found} == {id: sentences[id] for id in needed}


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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_reading_and_perturbing_show_their_rate_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read_stories(VariantOptions(["stories:conversation_dev"], limit=130))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    read_stories(VariantOptions(["stories:conversation_dev"], limit=130))
    assert re.search(r"perturbing stories: 100%.* 130/130 .*story/s", terminal.getvalue())
    assert "reading stories:conversation_dev" in terminal.getvalue()
