from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from data_modules.groups.lei import write_lei
from data_modules.groups.unqover import SwapGroups
from data_modules.groups.unqover_source import write_source
from data_modules.questions.rows import write_rows
from data_modules.questions.squad import write_squad
from data_modules.schema import QAExample, Span
from data_modules.sources import detect, parse_stories, read_groups, read_qa
from storage.errors import DataError
from tests.data_modules.tiny_lists import make_group, name_expansion

EXAMPLE = QAExample("1", "Ann lives in Rome.", "Where?", (Span(13, 17, "Rome"),), dataset="squad")


def test_the_format_is_told_from_the_content_not_the_name(tmp_path: Path) -> None:
    write_squad([EXAMPLE], tmp_path / "lei.json")
    write_lei([make_group()], tmp_path / "squad")
    write_source(name_expansion(tmp_path), tmp_path / "data.txt")
    assert [detect(tmp_path / name)[0] for name in ("lei.json", "squad", "data.txt")] == [
        "squad",
        "lei",
        "unqover",
    ]
    assert list(read_qa(tmp_path / "lei.json")) == [EXAMPLE]
    assert list(read_groups(str(tmp_path / "squad"))) == [make_group()]
    assert set(read_groups(tmp_path / "data.txt")) == set(SwapGroups(name_expansion(tmp_path)))


def test_the_order_of_fields_does_not_matter(tmp_path: Path) -> None:
    write_lei([make_group()], tmp_path / "lei")
    content = json.loads((tmp_path / "lei").read_text())
    (tmp_path / "turned").write_text(json.dumps({"data": content["data"][::-1], "version": ""}, indent=2))
    assert list(read_groups(tmp_path / "turned")) == [make_group()]


def test_groups_and_questions_are_not_taken_for_each_other(tmp_path: Path) -> None:
    write_squad([EXAMPLE], tmp_path / "qa")
    write_lei([make_group()], tmp_path / "groups")
    with pytest.raises(DataError, match="qa: holds plain questions"):
        list(read_groups(tmp_path / "qa"))
    with pytest.raises(DataError, match="groups: holds groups of underspecified questions"):
        list(read_qa(tmp_path / "groups"))
    with pytest.raises(DataError, match="not from the Hub"):
        list(read_groups("hub:some/name"))


@pytest.mark.parametrize(
    "content", ["{}", "[]", "1", '{"data": []}', '{"data": [{"paragraphs": [3]}]}', '{"a": 1}']
)
@pytest.mark.parametrize("read", [read_qa, read_groups])
def test_an_unknown_format_is_one_clear_error(tmp_path: Path, content: str, read: Any) -> None:
    path = tmp_path / "odd.json"
    path.write_text(content)
    with pytest.raises(DataError, match=r"odd\.json: unknown format; expected SQuAD or LEI"):
        list(read(path))


@pytest.mark.parametrize("read", [read_qa, read_groups])
def test_missing_and_broken_files_are_one_clear_error(tmp_path: Path, read: Any) -> None:
    with pytest.raises(DataError, match="absent: no such file"):
        list(read(tmp_path / "absent"))
    (tmp_path / "broken").write_text("id,question\n")
    with pytest.raises(DataError, match=r"broken: not JSON \(line 1"):
        list(read(tmp_path / "broken"))


def test_parquet_files_and_dataset_folders_are_read(tmp_path: Path) -> None:
    import datasets

    answers = {"text": ["Rome"], "answer_start": [13]}
    row = {"id": "1", "title": "t", "context": EXAMPLE.context, "question": "Where?", "answers": answers}
    table = datasets.Dataset.from_list([row])
    table.to_parquet(tmp_path / "rows")
    assert list(read_qa(tmp_path / "rows")) == [EXAMPLE]
    table.save_to_disk(tmp_path / "one")
    datasets.DatasetDict(train=table, dev=table).save_to_disk(tmp_path / "two")
    assert list(read_qa(tmp_path / "one")) == [EXAMPLE]
    assert list(read_qa(f"{tmp_path / 'two'}:dev")) == [EXAMPLE]
    assert list(read_qa(f"hub:{tmp_path / 'two'}:dev")) == [EXAMPLE]
    with pytest.raises(DataError, match=r"name one of its splits, as .*:train \(train, dev\)"):
        list(read_qa(tmp_path / "two"))
    with pytest.raises(DataError, match="no split 'test'"):
        list(read_qa(f"{tmp_path / 'two'}:test"))


COQA = {
    "source": "mctest",
    "id": "s",
    "story": "Ann lives in Rome.",
    "questions": [{"input_text": "Where?", "turn_id": 1}],
    "answers": [{"span_start": 0, "span_end": 18, "input_text": "Rome", "turn_id": 1}],
}
HOTPOT = {
    "id": "h",
    "question": "Where?",
    "answer": "Rome",
    "supporting_facts": {"title": ["Ann"], "sent_id": [0]},
    "context": {"title": ["Ann"], "sentences": [["Ann lives in Rome."]]},
    "type": "bridge",
}


def test_coqa_and_hotpotqa_files_are_told_from_their_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(json.dumps({"data": [COQA], "version": "1.0"}))
    (tmp_path / "b").write_text(json.dumps([HOTPOT]))
    assert [detect(tmp_path / name)[0] for name in "ab"] == ["coqa", "hotpotqa"]
    for name, dataset in (("a", "coqa"), ("b", "hotpotqa")):
        (example,) = read_qa(tmp_path / name)
        assert (example.dataset, example.context) == (dataset, EXAMPLE.context)
        assert example.answers == EXAMPLE.answers
        with pytest.raises(DataError, match="holds plain questions"):
            list(read_groups(tmp_path / name))
    bad = {**COQA, "answers": [{**COQA["answers"][0], "span_start": 99}]}
    (tmp_path / "a").write_text(json.dumps({"data": [bad]}))
    assert list(read_qa(tmp_path / "a", skip_bad=True)) == []


def test_tables_in_the_hubs_layouts_are_told_from_their_columns(tmp_path: Path) -> None:
    import datasets

    answers = {"input_text": ["Rome"], "answer_start": [0], "answer_end": [18]}
    coqa = {"source": "mctest", "story": EXAMPLE.context, "questions": ["Where?"], "answers": answers}
    for name, row in (("coqa", coqa), ("hotpotqa", HOTPOT)):
        table = datasets.Dataset.from_list([row])
        table.to_parquet(tmp_path / f"{name}.parquet")
        datasets.DatasetDict(dev=table).save_to_disk(tmp_path / name)
        found = [
            list(read_qa(source))
            for source in (
                tmp_path / f"{name}.parquet",
                f"{tmp_path / name}:dev",
                f"hub:{tmp_path / name}",
                tmp_path / name,
            )
        ]
        assert found == [found[0]] * 4
        assert [(example.dataset, example.answers) for example in found[0]] == [(name, EXAMPLE.answers)]


def test_rows_of_perturbed_stories_are_told_from_their_first_line(tmp_path: Path) -> None:
    rows = [replace(EXAMPLE, id=str(number), dataset="coqa", variant="ts") for number in range(2)]
    write_rows(rows, tmp_path / "data.json")
    assert detect(tmp_path / "data.json")[0] == "rows"
    assert list(read_qa(tmp_path / "data.json")) == rows
    with pytest.raises(DataError, match="holds plain questions"):
        list(read_groups(tmp_path / "data.json"))


def test_stories_need_no_download() -> None:
    first = list(islice(read_qa("stories:dev"), 3))
    assert (
        first
        == list(islice(read_qa("stories:dev?seed=0"), 3))
        != list(islice(read_qa("stories:dev?seed=1"), 3))
    )
    assert next(read_groups("stories:train")).advice_class in ("ethical", "adversarial", "irrelevant")
    for read in (read_qa, read_groups):
        with pytest.raises(DataError):
            next(iter(read("stories:nowhere")))


def test_the_syntax_of_stories() -> None:
    assert parse_stories("stories:train") == ("train", 0)
    assert parse_stories("stories:train?seed=12") == ("train", 12)
    for wrong in (
        "stories:",
        "stories:train?seed=x",
        "stories:train?speed=1",
        "stories:?seed=1",
    ):
        with pytest.raises(DataError, match="write stories:SPLIT or"):
            parse_stories(wrong)


def test_skipping_is_passed_on(tmp_path: Path) -> None:
    write_lei([make_group(), make_group(template="1")], tmp_path / "lei")
    content = json.loads((tmp_path / "lei").read_text())
    content["data"][0]["paragraphs"][0]["context"] = "changed"
    (tmp_path / "lei").write_text(json.dumps(content))
    with pytest.raises(DataError, match="cuts"):
        list(read_groups(tmp_path / "lei"))
    assert list(read_groups(tmp_path / "lei", skip_bad=True)) == [make_group(template="1")]
