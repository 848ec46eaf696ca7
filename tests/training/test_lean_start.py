"""What is not imported by commands that only show something: seconds of waiting for nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from training.lean_start import only_shows, show

ROOT = Path(__file__).resolve().parents[2]
HEAVY = (
    "transformers",
    "scipy",
    "matplotlib",
    "sklearn",
    "pandas",
    "datasets",
    "wandb",
    "optuna",
    "tensorboard",
)

SHOW = """
import sys
sys.argv[0] = "training"
from training.__main__ import main
try:
    code = main()
except SystemExit as stop:
    code = stop.code or 0
print("IMPORTED", *sorted(name for name in {heavy} if name in sys.modules), file=sys.stderr)
sys.exit(code)
"""


def python(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, cwd=ROOT, check=False
    )


def shown_by(*args: str) -> subprocess.CompletedProcess[str]:
    return python(SHOW.format(heavy=HEAVY), *args)


def test_printing_a_configuration_imports_nothing_heavy() -> None:
    files = ("-c", "configs/experiments/lei_few_shot.yaml", "-c", "configs/backbones/minilm.yaml")
    shown = shown_by("fit", *files, "--print_config")
    assert shown.returncode == 0, shown.stderr
    assert "class_path: training.modules.advice.LEIModule" in shown.stdout
    assert shown.stderr.splitlines()[-1].strip() == "IMPORTED"


def test_the_evaluation_command_imports_nothing_heavy() -> None:
    code = f"import sys, evaluation.__main__\nprint(*[m for m in {('torch', *HEAVY)} if m in sys.modules])"
    assert python(code).stdout.strip() == ""


def test_a_class_that_needs_more_is_shown_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "own_module.py").write_text(
        "from torchmetrics.text import BERTScore\n"
        "from training.modules.qa import QAModule\n"
        "class OwnModule(QAModule):\n    pass\n"
    )
    own = ("--model=own_module.OwnModule", "--data.train_qa=stories:train", "--print_config")
    shown = subprocess.run(
        [sys.executable, "-m", "training", "fit", "-c", "configs/backbones/minilm.yaml", *own],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert "class_path: own_module.OwnModule" in shown.stdout


def test_what_fails_is_said_by_a_process_with_everything(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    calls: list[list[str]] = []

    def call(command: list[str]) -> int:
        calls.append(command)
        return 2

    def mistake() -> int:
        print("error: half of the truth", file=sys.stderr)
        return 2

    def refused() -> int:
        raise SystemExit(2)

    monkeypatch.setattr(subprocess, "call", call)
    assert [show(mistake, ["fit", "--dta=1"]), show(refused, ["fit", "--dta=1"])] == [2, 2]
    assert [command[-2:] for command in calls] == [["fit", "--dta=1"]] * 2
    assert "half of the truth" not in capfd.readouterr().err


def test_what_succeeds_keeps_its_warnings(capfd: pytest.CaptureFixture[str]) -> None:
    def warned() -> int:
        print("configuration")
        print("a warning", file=sys.stderr)
        raise SystemExit(0)

    assert show(warned, ["fit"]) == 0
    said = capfd.readouterr()
    assert (said.out, said.err) == ("configuration\n", "a warning\n")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fit -c a.yaml --print_config", True),
        ("fit --print_config=skip_null", True),
        ("--help", True),
        ("fit --trainer.help", True),
        ("fit -c help.yaml --run.name=--help", False),
        ("fit --run.name=print_config", False),
    ],
)
def test_which_commands_only_show(line: str, expected: bool) -> None:
    assert only_shows(line.split()) is expected
