"""Malformed files through the commands: each costs one clear line, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data_modules.tiny_lists import write_lists
from tests.malformed.documents import ABSENT, FORMATS, JSON_FORMATS
from tests.malformed.mutations import Case, byte_cases, field_cases, sample
from tests.malformed.outcome import check_one_clear_line

CASES = sample(
    [
        *(case for form in JSON_FORMATS for case in field_cases(form)),
        *(case for form in FORMATS for case in byte_cases(form)),
    ]
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_clear_line(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lists = tmp_path / "lists"
    lists.mkdir()
    write_lists(lists)
    check_one_clear_line(case, lists, tmp_path, ABSENT, capsys)
