"""Stories beside their variants: read, joined by id, perturbed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from data_modules.interventions.augmentation import template_sentence
from data_modules.interventions.deletion import perturb, with_rationale
from data_modules.questions.rows import write_rows
from data_modules.schema import QAExample, Rejected, Span, Variant
from data_modules.stories.questions import qa_examples
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
    assert data.originals == STORIES
    assert data.examples() == {"ts": made("ts"), "ts_r": made("ts_r")}
    assert [original.id for original, _ in data.pairs["ts_r"] if original] == [e.id for e in made("ts_r")]
    lost = {variant: [perturb(story, variant) for story in STORIES] for variant in ("ts", "ts_r")}  # type: ignore[arg-type]
    assert data.rejected == {
        variant: Counter(result.reason for result in results if isinstance(result, Rejected))
        for variant, results in lost.items()
    }
    assert data.rejected["ts_r"].total() > 0


@pytest.mark.parametrize("names", ["os_1 os_2 ts_r", "reversed os_1 os_2", "mixed"])
def test_rows_are_joined_in_any_order_of_files_and_rows(files: Path, names: str) -> None:
    paths = [files / f"{name}.jsonl" for name in names.split()]
    assert read(*paths).examples() == {"os": STORIES, "ts_r": made("ts_r")}
    first = read(*paths, limit=10).examples()
    wanted = {story.id for story in STORIES[:10]}
    assert first == {"os": STORIES[:10], "ts_r": [row for row in made("ts_r") if row.id in wanted]}


def test_rows_without_originals_have_none_in_their_pairs(files: Path) -> None:
    data = read(files / "os_1.jsonl", files / "ts_r.jsonl")
    known = {story.id for story in STORIES[:50]}
    others = [example for original, example in data.pairs["ts_r"] if original is None]
    assert others == [row for row in made("ts_r") if row.id not in known]
    alone = read(files / "ts_r.jsonl", limit=7)
    assert (alone.originals, alone.examples()) == ([], {"ts_r": made("ts_r")[:7]})


def test_the_answers_sentence_stands_for_a_missing_rationale(tmp_path: Path) -> None:
    context = "Anna is at home. Ben has a ball. He likes it."
    bare = QAExample("q", context, "What has Ben?", (Span.locate("a ball", context, "q"),), dataset="squad")
    write_rows([bare], tmp_path / "os.jsonl")
    (found,) = read(tmp_path / "os.jsonl", variants=["ts_r"]).examples()["ts_r"]
    assert found == perturb(with_rationale(bare), "ts_r")
    assert found.context == "Anna is at home. a ball"


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
