from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.choices.benchmarks import choice_of, write_choices
from data_modules.schema import ChoiceQuestion
from storage.json_files import json_lines

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)


@st.composite
def questions(draw: st.DrawFn) -> ChoiceQuestion:
    choices = tuple(draw(st.lists(texts, min_size=2, max_size=5)))
    return ChoiceQuestion(
        id=draw(texts),
        prompt=draw(texts),
        choices=choices,
        label=draw(st.integers(0, len(choices) - 1)),
        benchmark=draw(texts),
        probe=draw(texts),
        donors=tuple(draw(st.lists(st.integers(0, 9), max_size=3))),
        target=draw(st.sampled_from(["label", "uniform"])),
    )


def rows_of(path: Path) -> list[ChoiceQuestion]:
    """The questions of a file."""
    return [choice_of(row, where) for where, row in json_lines(path)]


@given(st.lists(questions(), max_size=4))
def test_rows_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, examples: list[ChoiceQuestion]
) -> None:
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    assert write_choices(path, examples) == len(examples)
    assert rows_of(path) == examples


def test_four_fields_are_enough() -> None:
    row = {"id": 7, "prompt": "p", "choices": ["a", "b"], "label": 1}
    assert choice_of(row, "here") == ChoiceQuestion("7", "p", ("a", "b"), 1)
