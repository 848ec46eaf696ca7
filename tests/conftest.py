"""Fixtures for all rooms."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings

from tests import forking

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before any test imports transformers
settings.register_profile("tests", max_examples=40, deadline=None)
settings.register_profile("many", max_examples=400, deadline=None)  # pytest --hypothesis-profile many
settings.load_profile("tests")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The project's folder of data and worked examples beside the checkout; tests skip where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip(f"needs {folder}")
    return folder


def pytest_configure(config: pytest.Config) -> None:
    """One server of processes for all workers."""
    if not hasattr(config, "workerinput"):
        running = ExitStack()
        running.enter_context(forking.server())
        config.add_cleanup(running.close)
