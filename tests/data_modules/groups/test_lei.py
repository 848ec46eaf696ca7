from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from data_modules.groups.lei import read_scored
from data_modules.groups.unqover_source import locate_pair
from data_modules.sources import read_groups
from storage.errors import DataError

KEY = "oro|ulban|0|rude|was loud|was loud|adversarial_rude-2"


def paragraph(first: str, second: str, tomax: tuple[int, int]) -> dict[str, Any]:
    def qa(index: int) -> dict[str, Any]:
        asked = ("Who was loud?", "Who was quiet?")[index]
        base = 0.1 + 0.2 * index + (0.4 if first == "Ulban" else 0)
        answers = [
            {"text": first, "answer_start": 0, "start-end-score": [base, base + 0.01]},
            {"text": second, "answer_start": len(first) + 5, "start-end-score": [base + 0.1, base + 0.11]},
        ]
        question = f"Note that, origin decides manners. {asked}"
        return {"id": f"7{index}", "question": question, "answers": answers, "tomax": tomax[index]}

    context = f"{first} met {second}."
    return {"qas": [qa(0), qa(1)], "key": KEY, "context": context, "intervention": "adversarial"}


def document() -> dict[str, Any]:
    paragraphs = [paragraph("Oro", "Ulban", (0, 1)), paragraph("Ulban", "Oro", (1, 0))]
    return {"version": "squad, iid", "data": [{"title": "oro-ulban", "paragraphs": [p]} for p in paragraphs]}


def saved(folder: Path, content: Any) -> Path:
    path = folder / "lei.json"
    path.write_text(json.dumps(content))
    return path


def test_read_scored_pairs_two_paragraphs_in_the_order_of_the_subjects(tmp_path: Path) -> None:
    (record,) = read_scored(saved(tmp_path, document()))
    group = record.group
    assert group.key == KEY
    assert (group.subjects, group.advice_class) == (("oro", "ulban"), "adversarial")
    assert [v.context for v in group.variants] == ["Oro met Ulban."] * 2 + ["Ulban met Oro."] * 2
    assert [v.question for v in group.variants] == ["Who was loud?", "Who was quiet?"] * 2
    assert {v.advice for v in group.variants} == {"Note that, origin decides manners."}
    assert [v.candidates[0].start for v in group.variants] == [0, 0, 10, 10]
    assert record.base_scores is not None
    flat = [[round(start, 2) for start, _ in variant] for variant in record.base_scores]
    assert flat == [[0.1, 0.2], [0.3, 0.4], [0.6, 0.5], [0.8, 0.7]]
    assert record.targets == (0, 1, 0, 1)  # tomax 0, 1, 1, 0 counts the answers of each context


BAD: list[tuple[str, Any, str]] = [
    ("key", KEY.replace("|was loud|was loud", "|was loud|was odd"), "same attribute"),
    ("key", KEY.replace("ulban", "tarn"), "subjects"),
    ("answer_start", 7, r"offset 7"),
    ("question", "Note that, x. Who was odd?", "not the same question"),
]


@pytest.mark.parametrize(("field", "value", "names"), BAD)
def test_read_file_names_an_inconsistent_record(field: str, value: Any, names: str, tmp_path: Path) -> None:
    content = document()
    first = content["data"][0]["paragraphs"][0]
    question, answer = first["qas"][0], first["qas"][0]["answers"][1]
    next(part for part in (first, question, answer) if field in part)[field] = value
    with pytest.raises(DataError, match=names) as caught:
        list(read_groups(saved(tmp_path, content)))
    assert "lei.json: data[0].paragraphs[0]" in str(caught.value)


def test_read_file_refuses_one_order_alone_and_one_order_twice(tmp_path: Path) -> None:
    content = document()
    with pytest.raises(DataError, match="no record with the subjects in the order ulban, oro"):
        list(read_groups(saved(tmp_path, {"data": content["data"][:1]})))
    for repeated in (content["data"][:1] * 2, content["data"] + content["data"][1:]):
        with pytest.raises(DataError, match="occur a second time"):
            list(read_groups(saved(tmp_path, {"data": repeated})))


def test_locate_pair_finds_whole_words_that_never_overlap() -> None:
    for context, first, second, starts in (
        ("Al met Alan.", "Al", "Alan", [0, 7]),
        ("Alan met Al.", "Al", "Alan", [9, 0]),
        ("Also Al met Bo. Bo ran.", "Al", "Bo", [5, 12]),
        ("xAl, xBo", "Al", "Bo", [1, 6]),
    ):
        assert [span.start for span in locate_pair(context, first, second)] == starts
    with pytest.raises(DataError, match="'Al' and 'Alan' do not both occur"):
        locate_pair("Alan left.", "Al", "Alan")


def test_released_files_have_the_counts_of_the_spec(shared: Path) -> None:
    for name, size, subjects, attributes, advice in (
        ("train_4096", 256, 4, 14, (13, 16, 12)),
        ("noniid_dev", 400, 3, 15, (11, 10, 8)),
    ):
        path = shared / f"data/lei/underspecified/religion/addedbias_{name}_squad.json"
        records = list(read_scored(path))
        groups = [record.group for record in records]
        ids = Counter(kind for kind, _ in {(g.advice_class, g.advice_id) for g in groups})
        classes = ("ethical", "adversarial", "irrelevant")
        assert Counter(group.advice_class for group in groups) == dict.fromkeys(classes, size)
        assert len({name for group in groups for name in group.subjects}) == subjects
        assert len({group.attribute for group in groups}) == attributes
        assert tuple(ids[name] for name in classes) == advice
        targets = {(r.group.advice_class == "adversarial", r.targets) for r in records}
        assert targets <= {(False, None), (True, (0, 1, 0, 1)), (True, (1, 0, 1, 0))}
