from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.records import read_scored, write_records
from data_modules.schema import ANSWER_TYPES, VARIANTS, Group, QAExample, ScoredGroup, Span, Turn
from data_modules.sources import format_of, read_groups, read_questions
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
    assert {format_of(folder / name).name for name in ("groups", "scored")} == {"groups"}


def test_read_groups_names_line_and_fault(tmp_path: Path) -> None:
    lacking, moved = asdict(make_group()), asdict(make_group())
    del lacking["category"]
    moved["variants"][3]["candidates"][1]["start"] += 1
    path = tmp_path / "groups"
    for wrong, named in ((lacking, "the field 'category'"), (moved, "offset 1 cuts 'lban'")):
        path.write_text("".join(json.dumps(row) + "\n" for row in (asdict(make_group()), wrong)))
        with pytest.raises(DataError, match=f"groups, line 2: .*{named}"):
            list(read_groups(path))


@st.composite
def questions(draw: st.DrawFn) -> QAExample:
    context = draw(st.text(st.characters(codec="utf-8"), min_size=1, max_size=30))
    offsets = st.integers(0, len(context))
    piece = st.tuples(offsets, offsets).map(sorted).map(tuple)
    spans = st.lists(piece.map(lambda ab: Span(*ab, context[slice(*ab)])), max_size=3).map(tuple)
    return QAExample(
        draw(TEXT),
        context,
        draw(TEXT),
        answers=draw(spans),
        advice=draw(TEXT),
        answer_type=draw(st.sampled_from(ANSWER_TYPES)),
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


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"answers": [{"start": 0, "end": 3, "text": "Bob"}]}, "question 'a': offset 0 cuts 'Ida'"),
        ({"rationale": [{"start": -4, "end": -1, "text": "sat"}]}, "question 'a': offset -4"),
        ({"context": 5}, "'context'"),
    ],
)
def test_read_questions_names_line_and_fault(tmp_path: Path, change: dict, error: str) -> None:
    row = {"id": "a", "context": "Ida sat.", "question": "Who?", "answer_type": "span"}
    path = tmp_path / "questions.jsonl"
    path.write_text(json.dumps(row) + "\n" + json.dumps(row | change))
    with pytest.raises(DataError, match=f"questions.jsonl, line 2: .*{error}"):
        list(read_questions(path))
