from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from data_modules.groups.unqover_source import read_file, read_scored, write_source
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
    read = [*read_file(tmp_path / "source.json")]
    assert sorted(read, key=lambda g: g.key) == sorted(expansion, key=lambda g: g.key)


def test_nine_fields_carry_advice(tmp_path: Path) -> None:
    advised = {}
    for key, record in source(tmp_path).items():
        for question in ("q0", "q1"):
            record[question]["question"] = "Note that, be fair.  " + record[question]["question"]
        advised[f"{key}|ethical_none-3"] = record
    groups = [*read_file(saved(tmp_path, advised))]
    assert {(g.advice_class, g.advice_id) for g in groups} == {("ethical", "ethical_none-3")}
    assert {(v.advice, v.question[:4]) for g in groups for v in g.variants} == {
        ("Note that, be fair.", "Who ")
    }


def test_predictions_become_base_scores_in_the_order_of_the_subjects(shared: Path) -> None:
    (record,) = read_scored(shared / "oracle/unqover/ex1_unqover_minimal.json")
    assert record.group.subjects == ("alpha", "beta")
    assert record.base_scores == (
        ((0.64, 0.49), (0.25, 0.36)),
        ((0.81, 0.25), (0.16, 0.25)),
        ((0.49, 0.16), (0.36, 0.36)),
        ((0.09, 0.25), (0.49, 0.64)),
    )


def renamed(records: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {key.replace(old, new): record for key, record in records.items()}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda r: {"a|b|c|d|e|f|g": next(iter(r.values()))} | r, "a\\|b"),
        (lambda r: renamed(r, "|was a pilot|was a pilot", "|was a pilot|was a baker"), "attribute"),
        (lambda r: {f"{k}|ethical_none-1": v for k, v in r.items()}, "advice"),
        (lambda r: {k: v | {"context": "Nobody met nobody."} for k, v in r.items()}, "context"),
        (lambda r: r | {next(iter(r)).lower(): next(iter(r.values()))}, "second time"),
    ],
)
def test_malformed_records_name_the_id(tmp_path: Path, change: Any, names: str) -> None:
    path = saved(tmp_path, change(source(tmp_path)))
    with pytest.raises(DataError, match=names) as caught:
        list(read_file(path))
    assert "changed.json: id" in str(caught.value)
