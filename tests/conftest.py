"""Fixtures for all rooms."""

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
# pytest --hypothesis-profile many
settings.register_profile("many", max_examples=400, deadline=None)
settings.load_profile("tests")
SHARED = Path(__file__).resolve().parents[2] / "shared"
"""Released data sets, which stay out of the repository."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what needs the released data sets where they are not there."""
    without = [item for item in items if "shared" in getattr(item, "fixturenames", ())]
    if without and not SHARED.is_dir():
        config.hook.pytest_deselected(items=without)
        items[:] = [item for item in items if item not in without]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of released data sets beside the checkout."""
    return SHARED


@pytest.fixture(scope="session")
def oracle() -> Path:
    """Inputs in our own words, with the numbers that the papers' authors' code gives for them."""
    return Path(__file__).parent / "oracle"


@pytest.fixture(autouse=True, scope="module")
def _what_is_imported_stays() -> None:
    """Collections look through what tests have made, not all libraries: a tenth of the time."""
    gc.collect()
    gc.freeze()


@contextmanager
def once(factory: pytest.TempPathFactory, name: str) -> Iterator[tuple[Path, bool]]:
    """A folder of that name for all processes of a test run, and whether the caller fills it."""
    base = factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    folder = shared / f"once_{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    folder.mkdir(exist_ok=True)
    with FileLock(f"{folder}.lock"):
        yield folder, not (folder / "made").exists()
        (folder / "made").touch()
