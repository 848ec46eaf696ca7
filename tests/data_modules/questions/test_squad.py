from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.questions.squad import read_squad, read_squad_hub, rows_to_examples, write_squad
from data_modules.schema import QAExample, Span
from storage.errors import DataError

CONTEXT = "Ann lives in Rome. Bob lives in Rome."


def document(**changes: Any) -> dict[str, Any]:
    qa = {
        "id": "q1",
        "question": " Where is Ann? ",
        "answers": [{"text": "Rome", "answer_start": 13}],
    } | changes
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": CONTEXT, "qas": [qa]}]}]}


def saved(folder: Path, content: Any) -> Path:
    path = folder / "data.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_a_question_is_read_with_its_text_untouched(tmp_path: Path) -> None:
    (example,) = read_squad(saved(tmp_path, document()))
    assert example == QAExample("q1", CONTEXT, " Where is Ann? ", (Span(13, 17, "Rome"),), dataset="squad")


def test_references_are_kept_in_order_without_repeats(tmp_path: Path) -> None:
    answers = [
        {"text": t, "answer_start": s} for t, s in (("Rome", 32), ("Rome", 13), ("Rome", 32), ("in Rome", 10))
    ]
    (example,) = read_squad(saved(tmp_path, document(answers=answers)))
    assert [(span.start, span.text) for span in example.answers] == [
        (32, "Rome"),
        (13, "Rome"),
        (10, "in Rome"),
    ]


@pytest.mark.parametrize("impossible", [True, "true"])
def test_squad_v2_unanswerable_has_no_answers(tmp_path: Path, impossible: Any) -> None:
    plausible = [{"text": "Rome", "answer_start": 13}]
    content = document(answers=[], is_impossible=impossible, plausible_answers=plausible)
    (example,) = read_squad(saved(tmp_path, content))
    assert example.answers == ()


@pytest.mark.parametrize(
    ("text", "start"), [("Rome", 12), ("Rome", -24), ("Rome", 99), ("", 3), ("rome", 13)]
)
def test_a_wrong_offset_names_file_place_and_id_and_can_be_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, start: int
) -> None:
    content = document(answers=[{"text": text, "answer_start": start}])
    content["data"] += document(id="good")["data"]
    path = saved(tmp_path, content)
    with pytest.raises(DataError, match=r"data\.json: data\[0\]\.paragraphs\[0\]\.qas\[0\] \(id q1\)"):
        list(read_squad(path))
    assert [example.id for example in read_squad(path, skip_bad=True)] == ["good"]
    assert "skipped 1 bad record" in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "expected an object with the field 'data'"),
        ({"data": {}}, "the field 'data' must be a list"),
        ({"data": [{"title": "t"}]}, r"data\[0\]: the field 'paragraphs' \(a list\) is missing"),
        ({"data": [{"paragraphs": [{"qas": []}]}]}, r"data\[0\]\.paragraphs\[0\]: the field 'context'"),
        ({"data": [{"paragraphs": [{"context": "c"}]}]}, r"paragraphs\[0\]: the field 'qas'"),
        (document(question=None), r"qas\[0\]: the field 'question' must be a string, found NoneType"),
        (document(answers="Rome"), "the field 'answers' must be a list"),
        (
            document(answers=[{"text": "Rome"}]),
            r"answers\[0\]: the field 'answer_start' \(a whole number\) is missing",
        ),
        (document(answers=[{"text": "Rome", "answer_start": "13"}]), "must be a whole number, found str"),
        (document(is_impossible=True), r"is_impossible is True, but the field 'answers' holds 1"),
        (document(is_impossible="perhaps"), "'is_impossible' must be true or false"),
    ],
)
def test_a_wrong_shape_names_the_place_in_the_json(tmp_path: Path, content: Any, message: str) -> None:
    for skip_bad in (False, True):
        with pytest.raises(DataError, match=message):
            list(read_squad(saved(tmp_path, content), skip_bad=skip_bad))


@st.composite
def examples(draw: st.DrawFn) -> QAExample:
    context = draw(st.text(min_size=1, max_size=30))
    spans = []
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(context) - 1))
        end = draw(st.integers(start + 1, len(context)))
        spans.append(Span(start, end, context[start:end]))
    return QAExample(
        draw(st.text(max_size=5)),
        context,
        draw(st.text(max_size=9)),
        tuple(dict.fromkeys(spans)),
        dataset="squad",
    )


@given(written=st.lists(examples(), max_size=4, unique_by=lambda example: example.id))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, written: list[QAExample]
) -> None:
    path = tmp_path_factory.mktemp("squad") / "out.json"
    assert write_squad(written, path) == len(written)
    assert list(read_squad(path)) == written


def test_advice_is_written_before_the_question(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    write_squad([QAExample("i", "c", "Who?", (), "Note that, be fair.")], path)
    assert next(read_squad(path)).question == "Note that, be fair. Who?"


ROW = {
    "id": "1",
    "title": "",
    "context": CONTEXT,
    "question": "Where?",
    "answers": {"text": ["Rome"], "answer_start": [13]},
}


def test_rows_in_the_hubs_layout_follow_the_same_rules() -> None:
    empty = ROW | {"id": "2", "answers": {"text": [], "answer_start": []}}
    one, two = rows_to_examples([ROW, empty], "hub")
    assert one.answers == (Span(13, 17, "Rome"),)
    assert two.answers == ()
    bad = ROW | {"answers": {"text": ["Rome"], "answer_start": [1]}}
    with pytest.raises(DataError, match=r"hub: row 0 \(id 1\)"):
        list(rows_to_examples([bad], "hub"))
    assert len(list(rows_to_examples([bad, ROW], "hub", skip_bad=True))) == 1
    with pytest.raises(DataError, match="2 answer texts but 1 offsets"):
        list(rows_to_examples([ROW | {"answers": {"text": ["a", "b"], "answer_start": [1]}}], "hub"))


def test_the_hub_is_asked_for_name_and_split(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    asked = []

    def load_dataset(name: str, *config: str, split: str | None = None) -> Any:
        asked.append((name, *config, split))
        if name == "broken":
            raise ConnectionError("no network\nand a long story")
        return [ROW] if split else {"train": [ROW], "validation": [ROW]}

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert len(list(read_squad_hub("rajpurkar/squad:validation[:100]"))) == 1
    assert len(list(read_squad_hub("rajpurkar/squad/plain_text:train"))) == 1
    assert asked == [("rajpurkar/squad", "validation[:100]"), ("rajpurkar/squad", "plain_text", "train")]
    with pytest.raises(
        DataError, match=r"name one of its splits, as rajpurkar/squad:train \(train, validation\)"
    ):
        list(read_squad_hub("rajpurkar/squad"))
    with pytest.raises(DataError, match=r"broken:train: cannot load this dataset: no network$"):
        list(read_squad_hub("broken:train"))


def test_real_files_are_read_whole(shared: Path) -> None:
    count = {
        name: sum(1 for _ in read_squad(shared / "data/squad" / name))
        for name in ("train-44-articles.json", "dev-24-articles.json")
    }
    assert count == {"train-44-articles.json": 11_877, "dev-24-articles.json": 4_961}
