from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.schema.groups import Group, ScoredGroup
from data_modules.schema.questions import ANSWER_TYPES, VARIANTS, QAExample, Turn
from data_modules.schema.spans import Span, write_records
from data_modules.sources import read_groups, read_questions, read_scored
from storage.errors import DataError
from tests.data_modules.fixtures.tiny_lists import make_group

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PAIR = st.tuples(st.floats(0, 1), st.floats(0, 1))
SCORES = st.tuples(*[st.tuples(PAIR, PAIR)] * 4)
TARGETS = st.tuples(*[st.integers(0, 1)] * 4)
GROUP = st.builds(
    lambda advice, domain, attribute: replace(
        make_group("Oro", "Ulban", attribute, "ethical_rude-0" if advice else "", advice), domain=domain
    ),
    *(TEXT, TEXT, TEXT),
)
SCORED = st.builds(ScoredGroup, GROUP, SCORES, st.none() | TARGETS, answers=st.tuples(TEXT, TEXT))


@given(groups=st.lists(GROUP, min_size=1, max_size=3), scored=st.lists(SCORED, min_size=1, max_size=3))
def test_written_records_are_read_back(
    groups: list[Group], scored: list[ScoredGroup], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("records")
    assert write_records(groups, folder / "groups") == len(groups)
    assert list(read_groups(folder / "groups")) == groups
    write_records(scored, folder / "scored")
    assert list(read_scored(folder / "scored")) == scored
    assert list(read_groups(folder / "scored")) == [record.group for record in scored]


@st.composite
def questions(draw: st.DrawFn) -> QAExample:
    context = draw(st.text(st.characters(codec="utf-8"), min_size=1, max_size=30))
    offsets = st.integers(0, len(context))
    piece = st.tuples(offsets, offsets).map(sorted).map(tuple)
    spans = st.lists(piece.map(lambda ab: Span(*ab, context[slice(*ab)])), max_size=3).map(tuple)
    kind = draw(st.sampled_from(ANSWER_TYPES))
    return QAExample(
        draw(TEXT),
        context,
        draw(TEXT),
        answers=() if kind in ("yes", "no", "unknown") else draw(spans),
        advice=draw(TEXT),
        answer_type=kind,
        history=draw(st.lists(st.builds(Turn, TEXT, TEXT), max_size=3).map(tuple)),
        rationale=draw(spans),
        references=draw(st.lists(TEXT, max_size=3).map(tuple)),
        dataset=draw(TEXT),
        domain=draw(TEXT),
        variant=draw(st.sampled_from(VARIANTS)),
        appended=draw(TEXT),
        kept=draw(st.lists(piece, max_size=3).map(tuple)),
    )


@given(st.lists(questions(), min_size=1, max_size=4, unique_by=lambda example: example.id))
def test_written_questions_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, written: list[QAExample]
) -> None:
    path = tmp_path_factory.mktemp("records") / "questions.jsonl"
    assert write_records(written, path) == len(written)
    assert list(read_questions(path)) == written


ASKED = QAExample("a", "Ida sat.", "Who?")
IDA = {"answers": [{"start": 0, "end": 3, "text": "Ida"}]}


@pytest.mark.parametrize(
    ("read", "record", "change", "error"),
    [
        (read_questions, ASKED, {"answers": [{"start": 0, "end": 3, "text": "Bob"}]}, "cuts no 'Bob'"),
        (read_questions, ASKED, {"rationale": [{"start": -4, "end": -1, "text": "sat"}]}, "'b': offset -4"),
        (read_questions, ASKED, {"context": 5}, "'context'"),
        *((read_questions, ASKED, IDA | {"answer_type": kind}, f"is {kind}") for kind in ("yes", "unknown")),
        (read_groups, make_group(), {"category": None}, "the field 'category'"),
    ],
)
def test_a_bad_record_is_named_by_its_line(
    tmp_path: Path, read: Any, record: Any, change: dict[str, Any], error: str
) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(asdict(record)) + "\n" + json.dumps(asdict(record) | change | {"id": "b"}))
    with pytest.raises(DataError, match=f"records.jsonl, line 2: .*{error}"):
        list(read(path))
