"""The command `interventune`: what it lists, and where it leads."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from interventune.command import COMMANDS, main


def test_alone_it_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name in COMMANDS)


@pytest.mark.parametrize(
    ("name", "below"), [("train", "validate"), ("evaluate", "bias"), ("data", "perturb")]
)
def test_a_command_alone_lists_its_commands(
    name: str, below: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(SystemExit):  # argparse's way to end its help
        assert main([name]) == 0
    assert below in capsys.readouterr().out


def test_a_misspelt_command_is_one_line_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evalute"]) == 2
    assert capsys.readouterr().err.splitlines() == ["error: evalute: no such command; did you mean evaluate?"]


def test_commands_reach_their_rooms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    groups = tmp_path / "groups.json"
    assert main(["data", "stories", "--split", "heldout", "--kind", "groups", "--output", str(groups)]) == 0
    assert groups.is_file()
    assert main(["export", str(tmp_path / "no.ckpt"), str(tmp_path / "folder")]) == 2
    assert "no.ckpt" in capsys.readouterr().err
