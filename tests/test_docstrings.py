"""Examples in docstrings say what the code gives; those of interventune.api: test_api.py."""

import doctest
import importlib
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("storage", "data_modules", "models", "losses", "metrics", "training", "evaluation")
WITH_EXAMPLES = sorted(
    ".".join(("interventune", *path.relative_to(ROOT).with_suffix("").parts))
    for room in ROOMS
    for path in (ROOT / room).rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), extraglobs={"torch": torch})
    assert result.failed == 0 < result.attempted
