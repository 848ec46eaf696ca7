"""Stories beside their variants: read, joined by id, perturbed."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from interventune.data_modules.interventions.variants import perturb
from interventune.data_modules.schema.questions import QAExample, Variant, write_records
from interventune.data_modules.stories.questions import qa_examples
from interventune.evaluation.variants import Stories, VariantOptions, read_stories
from interventune.storage.documents import DataError

STORIES = list(islice(qa_examples("mixed_dev"), 80))
PERTURBED = [perturb(story, "ts_r") for story in STORIES]
ROWS = [row for row in PERTURBED if isinstance(row, QAExample)]


def read(*sources: Path, variants: list[Variant] | None = None, limit: int = 0) -> Stories:
    return read_stories(VariantOptions([*map(str, sources)], variants, limit))


def test_rows_are_joined_in_any_order_of_files_and_rows(tmp_path: Path) -> None:
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    write_records(STORIES[:50], one)
    write_records([*ROWS[:9], *STORIES[50:]], two)
    write_records(ROWS[:8:-1], three)
    assert read(three, one, two).examples == {"os": STORIES, "ts_r": ROWS}
    ids = {story.id for story in STORIES[:10]}
    limited = read(three, one, two, limit=10).examples
    assert limited == {"os": STORIES[:10], "ts_r": [row for row in ROWS if row.id in ids]}
    known = {story.id for story in STORIES[:50]}
    one_half = [row.id in known for row in read(three, one).examples["ts_r"]]
    assert one_half == sorted((row.id in known for row in ROWS[9:]), reverse=True)
    alone = read(three, limit=7)
    assert (alone.originals, alone.examples) == ([], {"ts_r": ROWS[:-8:-1]})


def test_a_question_of_two_files_is_refused(tmp_path: Path) -> None:
    one, two = (tmp_path / name for name in ("one", "two"))
    write_records(STORIES[:5], one)
    write_records([replace(STORIES[9], id=STORIES[0].id)], two)
    for sources in ((one, one), (one, two)):
        with pytest.raises(DataError, match=f"two and a .*'{STORIES[0].id}'|one and a"):
            read(*sources)


def test_several_data_sets_and_missing_originals_are_refused(tmp_path: Path) -> None:
    write_records([*STORIES[:5], replace(STORIES[5], dataset="coqa")], tmp_path / "os.jsonl")
    with pytest.raises(DataError, match=r"coqa in .*os.jsonl"):
        read(tmp_path / "os.jsonl", variants=["ts"])
    write_records(ROWS, tmp_path / "ts_r.jsonl")
    with pytest.raises(DataError, match="--variants ts"):
        read(tmp_path / "ts_r.jsonl", variants=["ts"])
