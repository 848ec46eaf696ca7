"""Help answers at once: nothing heavy is imported for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
HEAVY = ("torch", "pytorch_lightning", "transformers", "scipy", "matplotlib", "pandas", "datasets", "wandb")


def test_help_imports_nothing_heavy() -> None:
    calls = [("training", []), ("evaluation", []), ("evaluation", ["bias"])]
    code = (
        "import sys; from contextlib import suppress; from importlib import import_module\n"
        f"for room, words in {calls}:\n"
        "    with suppress(SystemExit): import_module(room + '.__main__').main([*words, '--help'])\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.count("--help") >= len(calls)
    assert done.stderr.strip() == "[]"
