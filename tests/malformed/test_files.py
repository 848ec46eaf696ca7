"""Malformed files through the commands: each costs one clear line, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data_modules.tiny_lists import write_lists
from tests.malformed.documents import ABSENT, FORMATS, JSON_FORMATS
from tests.malformed.mutations import Case, byte_cases, field_cases, meaning_cases
from tests.malformed.outcome import everything_in, outcome, refused

CASES = [
    *(case for form in JSON_FORMATS for case in field_cases(form)),
    *(case for form in FORMATS for case in meaning_cases(form)),
    *(case for form in FORMATS for case in byte_cases(form)),
]


def test_there_are_enough_of_them() -> None:
    assert len({str(case) for case in CASES}) == len(CASES)
    assert sum(case.told is not None for case in CASES) >= 200


@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_clear_line(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lists, given, written = tmp_path / "lists", tmp_path / "given", tmp_path / "written"
    for folder in (lists, given, written):
        folder.mkdir()
    write_lists(lists)
    path = given / f"bad_{case.form.name}"
    if case.content is None:
        path.mkdir()
    else:
        path.write_bytes(case.content)
    before = everything_in(given)
    main, arguments = case.form.read
    found = outcome(main, arguments(path, lists, written / "out"), capsys)
    if case.told is None:
        assert found.code == 0 or ABSENT in found.error, found.text
        return
    refused(found, path.name, case.told)
    assert everything_in(written) == {}
    assert everything_in(given) == before
