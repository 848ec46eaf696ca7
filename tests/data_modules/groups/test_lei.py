from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.groups.lei import ScoredGroup, read_file, read_scored, write_lei
from data_modules.groups.unqover_source import locate_pair
from data_modules.schema import Group
from storage.errors import DataError
from tests.data_modules.fixtures.tiny_lists import make_group, place_expansion

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
        common = {"tomax": tomax[index], "is_impossible": "false"}
        return {"id": f"7{index}", "question": question, "answers": answers, **common}

    return {
        "qas": [qa(0), qa(1)],
        "key": KEY,
        "context": f"{first} met {second}.",
        "intervention": "adversarial",
    }


def document() -> dict[str, Any]:
    paragraphs = [paragraph("Oro", "Ulban", (0, 1)), paragraph("Ulban", "Oro", (1, 0))]
    return {"version": "squad, iid", "data": [{"title": "oro-ulban", "paragraphs": [p]} for p in paragraphs]}


def saved(folder: Path, content: Any) -> Path:
    path = folder / "lei.json"
    path.write_text(json.dumps(content))
    return path


def test_two_paragraphs_make_one_group_in_the_order_of_its_subjects(tmp_path: Path) -> None:
    (record,) = read_scored(saved(tmp_path, document()))
    group = record.group
    assert group.key == KEY
    assert (group.subjects, group.advice_class) == (("oro", "ulban"), "adversarial")
    assert [v.context for v in group.variants] == ["Oro met Ulban."] * 2 + ["Ulban met Oro."] * 2
    assert [v.question for v in group.variants] == ["Who was loud?", "Who was quiet?"] * 2
    assert {v.advice for v in group.variants} == {"Note that, origin decides manners."}
    assert [tuple(s.start for s in v.candidates) for v in group.variants] == [
        (0, 8),
        (0, 8),
        (10, 0),
        (10, 0),
    ]
    assert record.base_scores is not None
    flat = [[round(start, 2) for start, _ in variant] for variant in record.base_scores]
    assert flat == [[0.1, 0.2], [0.3, 0.4], [0.6, 0.5], [0.8, 0.7]]
    assert record.targets == (0, 1, 0, 1)  # tomax 0, 1, 1, 0 counts the answers of each context


def test_file_order_and_the_number_of_paragraphs_per_item_do_not_matter(tmp_path: Path) -> None:
    content = document()
    expected = list(read_file(saved(tmp_path, content)))
    content["data"].reverse()
    assert list(read_file(saved(tmp_path, content))) == expected
    together = {"data": [{"paragraphs": [p for item in content["data"] for p in item["paragraphs"]]}]}
    assert list(read_file(saved(tmp_path, together))) == expected


def test_blanks_around_the_advice_and_advice_of_one_order_only_are_the_files_business(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """But groups with different advice in their two orders are counted (23 keys of LEI's ethnicity test)."""
    content = document()
    qas = content["data"][0]["paragraphs"][0]["qas"]
    for qa in qas:
        qa["question"] = qa["question"].replace("manners. ", "all manners.  ")
    list(read_file(saved(tmp_path, document())))
    assert not caplog.records
    other = json.loads(json.dumps(document()).replace("rude-2", "rude-3"))
    group, _ = read_file(saved(tmp_path, {"data": content["data"] + other["data"]}))
    (line,) = caplog.messages
    assert "lei.json: 1 of 2 groups carry different advice (of one class)" in line
    assert KEY in line
    assert [v.advice[-12:] for v in group.variants] == ["all manners."] * 2 + ["des manners."] * 2
    assert {v.question[0] for v in group.variants} == {"W"}


def edit(path: str, value: Any) -> Any:
    """A change of the first paragraph: `qas.0.tomax` -> value, or its removal when value is ..."""

    def change(content: dict[str, Any]) -> None:
        target: Any = content["data"][0]["paragraphs"][0]
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        for part in parents:
            target = target[part]
        if value is ...:
            del target[last]
        else:
            target[last] = value

    return change


BAD = [
    (edit("key", "a|b"), "key"),
    (edit("key", KEY.replace("oro|ulban", "ulban|oro")), "alphabetical"),
    (edit("key", KEY.replace("|was loud|was loud", "|was loud|was odd")), "attribute"),
    (edit("intervention", "ethical"), "intervention"),
    (edit("qas.0.answers.1.answer_start", 7), r"qas\[0\].*answers\[1\]"),
    (edit("qas.0.answers.1", {"text": "Oro", "answer_start": 0}), "answers"),
    (edit("qas.0.answers.0.start-end-score", [0.5, 7.0]), r"start-end-score\[1\]"),
    (edit("qas.0.tomax", ...), "tomax"),
    (edit("qas.0.is_impossible", "true"), "is_impossible"),
    (edit("qas.0.question", "Note that, x. Who was odd?"), "question"),
]


@pytest.mark.parametrize(("change", "names"), BAD)
def test_an_inconsistent_record_is_one_error_and_can_be_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: Any, names: str
) -> None:
    content = document()
    good = json.loads(json.dumps(document()).replace("rude-2", "rude-3"))
    change(content)
    content["data"] += good["data"]
    path = saved(tmp_path, content)
    with pytest.raises(DataError, match=names) as caught:
        list(read_file(path))
    assert "lei.json: data[0].paragraphs[0]" in str(caught.value)
    kept = [group.advice_id for group in read_file(path, skip_bad=True)]
    assert kept == ["adversarial_rude-3"]
    assert "skipped" in caplog.text


def test_one_order_alone_and_the_same_order_twice_are_told(tmp_path: Path) -> None:
    content = document()
    alone = {"data": content["data"][:1]}
    with pytest.raises(DataError, match="no record with the subjects in the other order, ulban oro"):
        list(read_file(saved(tmp_path, alone)))
    for repeated in (content["data"][:1] * 2, content["data"] + content["data"][1:]):
        with pytest.raises(DataError, match="occur a second time"):
            list(read_file(saved(tmp_path, {"data": copy.deepcopy(repeated)})))


SENTENCE = st.text(" abN.,é?", min_size=1, max_size=12).filter(lambda s: s == s.strip() and s)
PROBABILITY = st.tuples(st.floats(0, 1), st.floats(0, 1))


@st.composite
def scored_groups(draw: st.DrawFn) -> list[ScoredGroup]:
    records = {}
    for _ in range(draw(st.integers(0, 3))):
        one, two = draw(st.sampled_from([("Oro", "Ulban"), ("Moresk", "Tarn"), ("Tarn", "Tarn-Oro")]))
        advised = draw(st.booleans())
        ids = ["ethical_rude-0", "irrelevant_x-y-12", "mismatched_ethical_x-3"]
        advice_id = draw(st.sampled_from(ids)) if advised else ""
        advice = draw(SENTENCE) if advised else ""
        group = make_group(one, two, draw(st.sampled_from(["was loud", "was odd"])), advice_id, advice)
        named = draw(st.sampled_from([("", ""), ("town", ""), ("town", "instrument")]))
        group = replace(group, domain=named[0], advice_domain=named[1])
        pair = st.tuples(PROBABILITY, PROBABILITY)
        scores = draw(st.none() | st.tuples(pair, pair, pair, pair))
        target = st.integers(0, 1)
        targets = draw(st.none() | st.tuples(target, target, target, target))
        records[group.key] = ScoredGroup(group, scores, targets)
    return list(records.values())


@given(records=scored_groups())
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, records: list[ScoredGroup]
) -> None:
    path = tmp_path_factory.mktemp("lei") / "out.json"
    assert write_lei(records, path).total() == len(records)
    assert list(read_scored(path)) == records


def test_surface_forms_that_differ_from_the_key_survive(tmp_path: Path) -> None:
    groups = list(place_expansion(tmp_path))
    write_lei(groups, tmp_path / "out.json")
    assert list(read_file(tmp_path / "out.json")) == groups


def test_a_key_that_could_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="9"):
        write_lei([make_group(attribute="was | loud")], tmp_path / "out.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "group", [make_group(advice_id="irrelevant_rude-1"), make_group(advice="Note that, manners differ.")]
)
def test_advice_that_its_class_denies_is_not_written(group: Group, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="class none has no advice"):
        write_lei([group], tmp_path / "lei.json")


def test_subjects_are_found_as_whole_words_and_never_overlap() -> None:
    def starts(context: str, first: str, second: str) -> list[int]:
        return [span.start for span in locate_pair(context, first, second, "here")]

    assert starts("Al met Alan.", "Al", "Alan") == [0, 7]
    assert starts("Alan met Al.", "Alan", "Al") == [0, 9]
    assert starts("Alan met Al.", "Al", "Alan") == [9, 0]
    assert starts("Also Al met Bo. Bo ran.", "Al", "Bo") == [5, 12]
    assert starts("xAl, xBo", "Al", "Bo") == [1, 6]
    with pytest.raises(DataError, match="here: 'Al' and 'Alan' do not both occur"):
        starts("Alan left.", "Al", "Alan")


@pytest.mark.parametrize(
    ("name", "keys", "subjects", "attributes", "advice"),
    [
        ("addedbias_train_64", (3, 5, 4), 4, 9, (3, 4, 3)),
        ("addedbias_train_256", (17, 16, 15), 4, 14, (10, 7, 12)),
        ("addedbias_train_1024", (64, 64, 64), 4, 14, (13, 16, 11)),
        ("addedbias_train_4096", (256, 256, 256), 4, 14, (13, 16, 12)),
        ("addedbias_noniid_dev", (400, 400, 400), 3, 15, (11, 10, 8)),
    ],
)
def test_the_shipped_files_have_the_counts_of_the_spec(
    shared: Path,
    tmp_path: Path,
    name: str,
    keys: tuple[int, ...],
    subjects: int,
    attributes: int,
    advice: tuple[int, ...],
) -> None:
    records = list(read_scored(shared / f"data/lei/underspecified/religion/{name}_squad.json"))
    classes = ("ethical", "adversarial", "irrelevant")
    groups = [record.group for record in records]
    assert tuple(sum(g.advice_class == c for g in groups) for c in classes) == keys
    assert len({name for g in groups for name in g.subjects}) == subjects
    assert len({g.attribute for g in groups}) == attributes
    ids = {g.advice_id for g in groups}
    assert tuple(sum(i.startswith(c) for i in ids) for c in classes) == advice
    assert {record.targets for record in records if record.group.advice_class != "adversarial"} == {None}
    adversarial = {record.targets for record in records if record.group.advice_class == "adversarial"}
    assert adversarial <= {(0, 1, 0, 1), (1, 0, 1, 0)}
    shuffled = Random(0).sample(records, len(records))
    write_lei(shuffled, tmp_path / "again.json")
    assert list(read_scored(tmp_path / "again.json")) == shuffled
