"""The command `interventune`: what it lists, and where it leads."""

from __future__ import annotations

from pathlib import Path

import pytest

from interventune.command import main
from tests.data_modules.fixtures.tiny_lists import write_lists


def test_misspelt_command_is_one_line_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evalute"]) == 2
    assert capsys.readouterr().err.splitlines() == ["error: evalute: no such command; did you mean evaluate?"]


def test_commands_reach_their_rooms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "source.json"
    lists = [part for name, path in write_lists(tmp_path).items() for part in (f"--{name}", str(path))][:6]
    assert main(["data", "unqover", *lists, "--output", str(source)]) == 0
    assert source.is_file()
    assert main(["export", str(tmp_path / "no.ckpt"), str(tmp_path / "folder")]) == 2
    assert "no.ckpt" in capsys.readouterr().err
