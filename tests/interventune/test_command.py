"""The command `interventune`: what it lists, where it leads, how it completes."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest

from evaluation.protocol import PROTOCOLS
from interventune import completion
from interventune.command import COMMANDS, main


def test_alone_it_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name in COMMANDS)


@pytest.mark.parametrize("name", ["train", "evaluate", "data"])
def test_a_command_alone_lists_what_is_below(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):  # argparse's way to end its help
        assert main([name]) == 0
    below = {"train": "validate", "evaluate": "faithfulness", "data": "perturb"}[name]
    assert below in capsys.readouterr().out


def test_a_misspelt_command_is_one_line_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evalute"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "evaluate" in said


def test_commands_reach_their_rooms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    groups = tmp_path / "groups.json"
    assert main(["data", "stories", "--split", "heldout", "--kind", "groups", "--output", str(groups)]) == 0
    assert groups.is_file()
    assert main(["export", str(tmp_path / "no.ckpt"), str(tmp_path / "folder")]) == 2
    assert "no.ckpt" in capsys.readouterr().err


def completions(script: str, *words: str) -> set[str]:
    """What bash offers behind these words."""
    line = " ".join(f"'{word}'" for word in words)
    asked = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _shtab_interventune"
    shell = f'{script}\n{asked}; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_bash_completes_protocols_and_flags(capsys: pytest.CaptureFixture[str]) -> None:
    completion.main(["bash"])
    script = capsys.readouterr().out
    assert completions(script, "interventune", "evaluate", "") >= {row.name for row in PROTOCOLS}
    assert completions(script, "interventune", "evaluate", "bias", "--che") == {"--checkpoint"}


def test_bash_completes_the_flags_of_sweeps_and_selections(capsys: pytest.CaptureFixture[str]) -> None:
    completion.main(["bash"])
    script = capsys.readouterr().out
    assert completions(script, "interventune", "sweep", "--wo") == {"--workers"}
    assert completions(script, "interventune", "select", "--st") == {"--study"}
    positional = "_shtab_interventune_{}_pos_0_COMPGEN"
    assert positional.format("sweep") in script
    assert positional.format("select") not in script  # a selection has no positional argument


def test_the_help_names_every_shell() -> None:
    assert completion.__doc__ is not None
    assert all(shell in completion.__doc__ for shell in completion.shtab.SUPPORTED_SHELLS)
