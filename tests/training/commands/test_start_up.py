"""Help answers at once: nothing heavy is imported for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HEAVY = ("torch", "pytorch_lightning", "transformers", "scipy", "matplotlib", "pandas", "datasets", "wandb")


@pytest.mark.parametrize("words", ["training --help", "evaluation --help", "evaluation bias --help"])
def test_help_imports_nothing_heavy(words: str) -> None:
    room, *arguments = words.split()
    code = (
        f"import sys; from {room}.__main__ import main\n"
        f"try: main({arguments})\n"
        "except SystemExit: pass\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout
    assert done.stderr.strip() == "[]"
