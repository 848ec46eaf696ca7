"""The command `interventune`: what it lists, and where it leads."""

from __future__ import annotations

from pathlib import Path

import pytest

from interventune.command import main


def test_misspelt_command_is_one_line_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evalute"]) == 2
    assert capsys.readouterr().err.splitlines() == ["error: evalute: no such command; did you mean evaluate?"]


def test_commands_reach_their_rooms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    groups = tmp_path / "groups.json"
    assert main(["data", "stories", "--split", "heldout", "--kind", "groups", "--output", str(groups)]) == 0
    assert groups.is_file()
    assert main(["export", str(tmp_path / "no.ckpt"), str(tmp_path / "folder")]) == 2
    assert "no.ckpt" in capsys.readouterr().err
