"""The commands compute what they computed when expected/ was recorded (record.py says how to do so anew)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.golden.commands import Room
from tests.golden.record import SHARED, goldens, machine, made, path_of
from tests.golden.reports import differences

SHOWN = 20
ELSEWHERE = 100
"""How much further fractions may lie apart where other kernels compute them."""


@pytest.fixture(scope="session")
def room(tmp_path_factory: pytest.TempPathFactory) -> Room:
    """One for all processes of a test run."""
    base = tmp_path_factory.getbasetemp()
    home = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "golden"
    home.mkdir(exist_ok=True)
    return Room(home)


def without_arguments(value: object) -> object:
    """Flags are recorded to be read; what they compute is compared."""
    if isinstance(value, dict):
        return {key: without_arguments(item) for key, item in value.items() if key != "arguments"}
    return value


@pytest.mark.parametrize("name", goldens())
def test_golden(name: str, room: Room) -> None:
    if name.startswith("shared_") and not SHARED.is_dir():
        pytest.skip(f"needs {SHARED}")
    expected = json.loads(path_of(name).read_text(encoding="utf-8"))
    rel = 1e-5 if name.startswith("curve_") else 1e-6
    rel *= 1 if expected.pop("recorded_on") == machine() else ELSEWHERE
    told = differences(without_arguments(expected), without_arguments(made(name, room)), rel=rel)
    assert not told, f"{len(told)} differences:\n" + "\n".join(told[:SHOWN])


def test_every_file_has_its_golden() -> None:
    folder: Path = path_of("any").parent
    assert sorted(path.stem for path in folder.iterdir()) == sorted(goldens())
