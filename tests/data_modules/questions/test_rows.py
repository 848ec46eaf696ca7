from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_modules.questions.rows import read_file, to_line, write_rows
from data_modules.schema import ANSWER_TYPES, VARIANTS, QAExample, Span, Turn
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
    return json.dumps({**json.loads(to_line(EXAMPLE)), **fields}) + "\n"


def test_a_row_says_what_the_variant_answers() -> None:
    assert json.loads(to_line(EXAMPLE)) == {
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
        assert json.loads(to_line(replace(EXAMPLE, answers=(), answer_type=kind)))["answers"] == [kind]
    assert json.loads(to_line(QAExample("b", STORY, "Who?")))["answers"] == ["unknown"]


@st.composite
def examples(draw: st.DrawFn) -> QAExample:
    text = st.text(st.characters(codec="utf-8"), max_size=12)  # controls and line separators too
    context = draw(st.text(st.characters(codec="utf-8"), min_size=1, max_size=30))
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
    assert list(read_file(path)) == written


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (changed(kept=[[3, 1]]), "kept"),
        (changed(kept=[[0, 99]]), "kept"),
        (changed(answer_spans=[{"start": 0, "end": 3, "text": "Bob"}]), r"answer_spans\[0\]"),
        (changed(rationale=[{"start": -3, "end": 3, "text": ""}]), r"rationale\[0\]"),
        (changed(answer_type="yes"), "answer_spans"),
        (to_line(EXAMPLE), "a 1"),
    ],
)
def test_mistakes_name_file_line_and_field(tmp_path: Path, line: str, field: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(to_line(EXAMPLE) + line)
    with pytest.raises(DataError, match=f"rows.jsonl, line 2: .*{field}"):
        list(read_file(path))
