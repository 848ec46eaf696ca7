"""`interventune data`: mistakes, and commands that no golden runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from data_modules.__main__ import main
from tests.data_modules.fixtures.tiny_lists import write_lists


@pytest.fixture
def advised(tmp_path: Path) -> list[str]:
    """`lei` from the tiny lists."""
    names = ("subjects", "templates", "attributes", "interventions")
    files = write_lists(tmp_path)
    return ["lei", *(part for name in names for part in (f"--{name}", str(files[name])))]


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_lei_refuses_what_leaves_nothing_or_lacks_advice(
    advised: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*advised, "--output", tmp_path / "all") == 0
    assert run(*advised, "--disjoint-from", tmp_path / "all", "--output", tmp_path / "out") == 2
    assert "no group is left" in capsys.readouterr().err
    Path(advised[-1]).write_text('{"ethical": {"rude": ["Be fair."]}}')
    assert run(*advised, "--output", tmp_path / "out") == 2
    assert "interventions.json: no advice for the category 'wealth'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["lei", "perturb"])
def test_no_heavy_library_is_loaded(command: str, advised: list[str], tmp_path: Path) -> None:
    perturb = ["perturb", "--input", "stories:conversation_dev", "--variant", "ts"]
    arguments = [*(advised if command == "lei" else perturb), "--output", str(tmp_path / "out")]
    code = (
        f"import sys; from data_modules.__main__ import main; assert main({arguments!r}) == 0; "
        "print({'torch', 'datasets', 'transformers', 'pytorch_lightning'} & set(sys.modules))"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
