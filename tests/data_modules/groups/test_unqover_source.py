from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data_modules.groups.unqover_source import read_scored, write_source
from data_modules.records import write_records
from data_modules.sources import read_groups, read_questions
from storage.errors import DataError
from tests.data_modules.fixtures.tiny_lists import name_expansion, place_expansion, tiny_expansion


def source(folder: Path) -> dict[str, Any]:
    write_source(name_expansion(folder), folder / "source.json")
    return json.loads((folder / "source.json").read_text())


def saved(folder: Path, records: dict[str, Any]) -> Path:
    path = folder / "changed.json"
    path.write_text(json.dumps(records))
    return path


@pytest.mark.parametrize("make", [tiny_expansion, name_expansion, place_expansion])
def test_reading_a_written_source_gives_the_groups_of_the_lists(tmp_path: Path, make: Any) -> None:
    expansion = make(tmp_path)
    write_source(expansion, tmp_path / "source.json")
    read = [*read_groups(tmp_path / "source.json")]
    assert sorted(read, key=lambda g: g.key) == sorted(expansion, key=lambda g: g.key)


def fine_tuned(records: dict[str, Any]) -> dict[str, Any]:
    """Records with nine fields as LEI's fine-tuning writes them: an id, lower-case and its subjects sorted,
    mapped to a record for each question, one order after the other."""
    found: dict[str, list[dict[str, Any]]] = {}
    for key, record in sorted(records.items(), key=lambda item: item[0].split("|")[2].lower()):
        _, _, *names, template, category, attribute, again, advice = key.lower().split("|")
        new = "|".join(("None", "None", *sorted(names), template, category, attribute, again, advice))
        asked = [{"context": record["context"], name: record[name]} for name in ("q0", "q1")]
        found.setdefault(new, []).extend(asked)
    return found


def predicted(folder: Path) -> dict[str, Any]:
    """Nine fields, with numbers."""
    number = iter(range(1000))
    records = {}
    for key, record in source(folder).items():
        for name in ("q0", "q1"):
            record[name]["question"] = "Note that, be fair. " + record[name]["question"]
            for answer in ("ans0", "ans1"):
                record[name][answer] |= {"start": next(number) / 1000, "end": next(number) / 1000}
        records[f"{key}|ethical_none-3"] = record
    return records


def test_the_layout_of_the_authors_fine_tuning_holds_the_same(tmp_path: Path) -> None:
    records = predicted(tmp_path)
    expected = {record.group.key: record for record in read_scored(saved(tmp_path, records))}
    variants = [(record.group, variant) for record in expected.values() for variant in record.group.variants]
    told = {(g.advice_class, g.advice_id, v.advice, v.question[:4]) for g, v in variants}
    assert told == {("ethical", "ethical_none-3", "Note that, be fair.", "Who ")}
    found = [*read_scored(saved(tmp_path, fine_tuned(records)))]
    assert {record.group.key: replace(record, clusters=("female", "male")) for record in found} == expected
    assert found[0].base_scores is not None
    swapped = {key: parts[2:] + parts[:2] for key, parts in fine_tuned(records).items()}
    assert [*read_scored(saved(tmp_path, swapped))] == found


def test_four_records_that_are_no_group_name_the_id(tmp_path: Path) -> None:
    records = fine_tuned(predicted(tmp_path))
    key = next(iter(records))
    for parts, names in ((records[key][:3], "field 'q1'"), (records[key][:2] * 2, "second time")):
        path = saved(tmp_path, records | {key: parts})
        with pytest.raises(DataError, match=names) as caught:
            list(read_groups(path))
        assert "changed.json: id 'None|None|ada|carl" in str(caught.value)


ADVICE = ("Note that, gender is no ground.", "Note that, jobs are open to all.")


def test_the_specified_set_is_ethical_with_whom_it_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """LEI's specified set (spec 3.6): ids of eight fields, a sentence that names the man, and ethical advice
    of its own for each record."""
    records = source(tmp_path)
    for i, (key, record) in enumerate(records.items()):
        first, _, one, two, *_ = key.split("|")
        record["context"] += f" Then {one if first == 'male' else two} did it."
        for name in ("q0", "q1"):
            record[name]["question"] = f"{ADVICE[i % 5 % 2]} {record[name]['question']}"
            for answer in ("ans0", "ans1"):
                record[name][answer] |= {"start": "[TODO]", "end": "[TODO]"}
    path = saved(tmp_path, {key + "|none" * (i % 2): records[key] for i, key in enumerate(records)})
    groups = [*read_groups(path)]
    assert [group.advice_class for group in groups] == ["ethical"] * 12
    assert {variant.advice for group in groups for variant in group.variants} == {*ADVICE}
    assert {variant.question[:4] for group in groups for variant in group.variants} == {"Who "}
    assert any(group.variants[0].advice != group.variants[2].advice for group in groups)
    assert "12 groups name no advice" in caplog.messages[0]
    write_records(groups, tmp_path / "groups.jsonl")
    assert [*read_groups(tmp_path / "groups.jsonl")] == groups
    for file in (path, tmp_path / "groups.jsonl"):
        questions = [*read_questions(file)]
        assert len(questions) == 24
        assert {question.answers[0].text for question in questions} == {"Carl", "Dan", "Egon"}
        assert {question.advice for question in questions} == {*ADVICE}


def test_predictions_become_base_scores_in_the_order_of_the_subjects(shared: Path) -> None:
    (record,) = read_scored(shared / "oracle/unqover/ex1_unqover_minimal.json")
    assert record.group.subjects == ("alpha", "beta")
    assert record.base_scores == (
        ((0.64, 0.49), (0.25, 0.36)),
        ((0.81, 0.25), (0.16, 0.25)),
        ((0.49, 0.16), (0.36, 0.36)),
        ((0.09, 0.25), (0.49, 0.64)),
    )
