"""Malformed files through the commands: each costs one clear line, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.malformed.documents import ABSENT, FORMATS
from tests.malformed.mutations import Case, byte_cases, field_cases, sample
from tests.malformed.outcome import everything_in, outcome, refused

CASES = sample(case for form in FORMATS for make in (field_cases, byte_cases) for case in make(form))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_clear_line(case: Case, given: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, output = tmp_path / "given" / f"bad_{case.form.name}", tmp_path / "written" / "out"
    path.parent.mkdir()
    output.parent.mkdir()
    if case.content is None:
        path.mkdir()
    else:
        path.write_bytes(case.content)
    before = everything_in(path.parent)
    result = outcome(case.form.main, case.form.arguments(path, given, output), capsys)
    read = result.code == 0 or ABSENT in result.error
    if case.accepted or (case.named is None and read):
        assert read, result.text
        return
    refused(result, path.name, case.named or "")
    assert everything_in(output.parent) == {}
    assert everything_in(path.parent) == before
