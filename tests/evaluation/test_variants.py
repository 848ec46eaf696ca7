"""Stories beside their variants: read, joined by id, perturbed."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from interventune.data_modules.interventions.variants import perturb
from interventune.data_modules.schema.questions import QAExample, Variant
from interventune.data_modules.schema.spans import write_records
from interventune.data_modules.stories.questions import qa_examples
from interventune.evaluation.variants import Stories, VariantOptions, read_stories
from interventune.storage.errors import DataError

STORIES = list(islice(qa_examples("mixed_dev"), 80))
PERTURBED = {variant: [perturb(story, variant) for story in STORIES] for variant in ("ts", "ts_r")}
MADE = {
    name: [r for r in results if isinstance(r, QAExample)] for name, results in PERTURBED.items()
}


def read(*sources: str | Path, variants: list[Variant] | None = None, limit: int = 0) -> Stories:
    return read_stories(
        VariantOptions(data=[str(s) for s in sources], variants=variants, limit=limit)
    )


def test_rows_are_joined_in_any_order_of_files_and_rows(tmp_path: Path) -> None:
    rows = MADE["ts_r"]
    for name, part in {
        "one": STORIES[:50],
        "two": [*rows[:9], *STORIES[50:]],
        "three": rows[:8:-1],
    }.items():
        write_records(part, tmp_path / name)
    paths = [tmp_path / name for name in ("three", "one", "two")]
    assert read(*paths).examples == {"os": STORIES, "ts_r": rows}
    wanted = {story.id for story in STORIES[:10]}
    limited = read(*paths, limit=10).examples
    assert limited == {"os": STORIES[:10], "ts_r": [row for row in rows if row.id in wanted]}
    known = {story.id for story in STORIES[:50]}
    one_half = read(tmp_path / "three", tmp_path / "one").examples["ts_r"]
    assert [row.id in known for row in one_half] == sorted(
        (row.id in known for row in rows[9:]), reverse=True
    )
    alone = read(tmp_path / "three", limit=7)
    assert (alone.originals, alone.examples) == ([], {"ts_r": rows[:-8:-1]})


def test_several_data_sets_and_missing_originals_are_refused(tmp_path: Path) -> None:
    write_records([*STORIES[:5], replace(STORIES[5], dataset="coqa")], tmp_path / "os.jsonl")
    with pytest.raises(DataError, match=r"coqa in .*os.jsonl"):
        read(tmp_path / "os.jsonl", variants=["ts"])
    write_records(MADE["ts_r"], tmp_path / "ts_r.jsonl")
    with pytest.raises(DataError, match="--variants ts"):
        read(tmp_path / "ts_r.jsonl", variants=["ts"])
