"""`interventune data` beside what goldens pin (lei_sets, perturbed, written)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from data_modules.__main__ import main
from data_modules.sources import read_groups
from tests.data_modules.fixtures.tiny_lists import write_lists


@pytest.fixture
def advised(tmp_path: Path) -> list[str]:
    """`lei` from the tiny lists."""
    names = ("subjects", "templates", "attributes", "interventions")
    files = write_lists(tmp_path)
    return ["lei", *(part for name in names for part in (f"--{name}", str(files[name])))]


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_classes_and_lead_in(advised: list[str], tmp_path: Path) -> None:
    output = tmp_path / "some"
    assert run(*advised, "--classes", "ethical", "--lead-in", "Remember:", "--output", output) == 0
    groups = list(read_groups(output))
    assert {group.advice_class for group in groups} == {"ethical"}
    assert {group.variants[0].advice.split()[0] for group in groups} == {"Remember:"}


def test_conversations_do_not_fit_into_squads_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    assert run("stories", "--split", "conversation_dev", "--kind", "qa", "--output", output) == 2
    assert "perturb" in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize("command", ["lei", "perturb"])
def test_no_heavy_library_is_loaded(command: str, advised: list[str], tmp_path: Path) -> None:
    perturb = ["perturb", "--dataset", "stories", "--input", "stories:conversation_dev", "--variant", "ts"]
    arguments = [*(advised if command == "lei" else perturb), "--output", str(tmp_path / "out")]
    code = (
        f"import sys; from data_modules.__main__ import main; assert main({arguments!r}) == 0; "
        "print({'torch', 'datasets', 'transformers', 'pytorch_lightning', 'numpy'} & set(sys.modules))"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
