"""Fixtures for all rooms."""

from __future__ import annotations

import gc
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before any test imports transformers
settings.register_profile("tests", max_examples=25, deadline=None)
settings.register_profile("many", max_examples=400, deadline=None)  # pytest --hypothesis-profile many
settings.load_profile("tests")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The project's folder of data and worked examples beside the checkout; tests skip where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip(f"needs {folder}")
    return folder


@pytest.fixture(autouse=True, scope="module")
def _what_is_imported_stays() -> None:
    """Collections look through what tests have made, not through all libraries, which took a tenth of the
    time."""
    gc.collect()
    gc.freeze()


@contextmanager
def once(factory: pytest.TempPathFactory, name: str) -> Iterator[tuple[Path, bool]]:
    """A folder of that name that all processes of a test run share, and whether the caller is the first, who
    fills it while others wait."""
    base = factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    folder = shared / f"once_{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    folder.mkdir(exist_ok=True)
    with FileLock(f"{folder}.lock"):
        yield folder, not (folder / "made").exists()
        (folder / "made").touch()
