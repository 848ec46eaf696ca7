from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_modules.interventions.deletion import perturb_all
from data_modules.questions.rows import from_row, read_rows, to_line, to_row, write_rows
from data_modules.schema import ANSWER_TYPES, VARIANTS, QAExample, Span, Turn
from data_modules.sources import read_qa
from storage.errors import DataError

STORY = "Ida sat. Moro ran."
EXAMPLE = QAExample(
    "a 1",
    STORY,
    "Who ran?",
    answers=(Span(9, 13, "Moro"),),
    history=(Turn("Who sat?", "Ida"),),
    rationale=(Span(9, 18, "Moro ran."),),
    references=("Moro", "the cat"),
    dataset="coqa",
    domain="mctest",
    variant="ts",
    kept=((0, 18),),
)


def changed(**fields: Any) -> str:
    return json.dumps({**to_row(EXAMPLE), **fields}) + "\n"


def test_a_row_says_what_the_variant_answers() -> None:
    assert to_row(EXAMPLE) == {
        "id": "a 1",
        "dataset": "coqa",
        "domain": "mctest",
        "context": STORY,
        "question": "Who ran?",
        "advice": "",
        "history": [["Who sat?", "Ida"]],
        "answer_type": "span",
        "answers": ["Moro", "the cat"],
        "answer_spans": [{"start": 9, "end": 13, "text": "Moro"}],
        "references": ["Moro", "the cat"],
        "rationale": [{"start": 9, "end": 18, "text": "Moro ran."}],
        "variant": "ts",
        "appended": "",
        "kept": [[0, 18]],
    }
    for kind in ("yes", "no", "unknown"):
        assert to_row(replace(EXAMPLE, answers=(), answer_type=kind))["answers"] == [kind]
    assert to_row(QAExample("b", STORY, "Who?"))["answers"] == ["unknown"]


@st.composite
def examples(draw: st.DrawFn) -> QAExample:
    text = st.text(st.characters(), max_size=12)  # controls and line separators too
    context = draw(st.text(st.characters(), min_size=1, max_size=30))
    offsets = st.integers(0, len(context))
    piece = st.tuples(offsets, offsets).map(sorted).map(tuple)
    spans = st.lists(piece.map(lambda ab: Span(*ab, context[slice(*ab)])), max_size=3).map(tuple)
    ends = sorted(draw(st.lists(offsets, max_size=6, unique=True)))
    kind = draw(st.sampled_from(ANSWER_TYPES))
    return QAExample(
        draw(text),
        context,
        draw(text),
        answers=() if kind in ("yes", "no", "unknown") else draw(spans),
        advice=draw(text),
        answer_type=kind,
        history=draw(st.lists(st.builds(Turn, text, text), max_size=3).map(tuple)),
        rationale=draw(spans),
        references=draw(st.lists(text, max_size=3).map(tuple)),
        dataset=draw(text),
        domain=draw(text),
        variant=draw(st.sampled_from(VARIANTS)),
        appended=draw(text),
        kept=tuple(zip(ends[::2], ends[1::2], strict=False)),
    )


@given(st.lists(examples(), max_size=4, unique_by=lambda example: example.id))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_writing_and_reading_gives_the_same_examples(tmp_path: Path, written: list[QAExample]) -> None:
    path = tmp_path / "rows.jsonl"
    assert write_rows(written, path) == len(written)
    assert path.read_bytes().isascii()
    assert path.read_text().count("\n") == len(written)
    assert list(read_rows(path)) == written


def test_read_qa_knows_rows_by_their_content(tmp_path: Path) -> None:
    originals = list(read_qa("stories:conversation_dev"))
    variants = [found for found in perturb_all(originals, "ts_r") if isinstance(found, QAExample)]
    write_rows(variants, tmp_path / "any.name")
    assert list(read_qa(tmp_path / "any.name")) == variants


def test_a_byte_order_mark_and_empty_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    half = replace(EXAMPLE, id="half", question="half a pair \ud800")
    path.write_text("\ufeff" + to_line(EXAMPLE) + "\n  \n" + to_line(half), encoding="utf-8")
    assert list(read_rows(path)) == [EXAMPLE, half]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[]", "expected an object"),
        ("{}", "'context'"),
        (changed(id=3), "'id' must be a string"),
        (changed(variant="tsr"), "'variant' must be one of os, ts"),
        (changed(answer_type="maybe"), "'answer_type' must be one of yes"),
        (changed(history=[["q"]]), r"history\[0\] must be two texts"),
        (changed(kept=[[0, True]]), r"kept\[0\] must be two whole numbers"),
        (changed(kept=[[3, 1]]), "'kept' must lie one behind the other"),
        (changed(kept=[[0, 99]]), "'kept' are longer than the context"),
        (changed(references=[1]), "'references' must be a list of texts"),
        (changed(answer_spans=[{"start": 0, "end": 3, "text": "Bob"}]), r"answer_spans\[0\].*not 'Bob'"),
        (changed(rationale=[{"start": -3, "end": 3, "text": ""}]), r"rationale\[0\].*no part"),
        (changed(rationale=[{"start": 3, "end": 3}]), "'text'"),
        (changed(answer_type="yes"), "yes, which has no 'answer_spans'"),
    ],
)
def test_mistakes_name_file_and_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(to_line(EXAMPLE) + line)
    with pytest.raises(DataError, match=f"rows.jsonl: line 2.*{message}"):
        list(read_rows(path))


def test_files_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="UTF-8"):
        list(read_rows(tmp_path / "bytes"))
    with pytest.raises(DataError, match="cannot be read"):
        list(read_rows(tmp_path / "absent"))


def test_an_error_on_the_way_leaves_no_file(tmp_path: Path) -> None:
    def broken() -> Any:
        yield EXAMPLE
        raise DataError("here")

    with pytest.raises(DataError, match="here"):
        write_rows(broken(), tmp_path / "rows")
    assert not list(tmp_path.iterdir())


def test_rows_of_other_fields_read_as_well() -> None:
    assert from_row({**to_row(EXAMPLE), "note": 1}, "here") == EXAMPLE
