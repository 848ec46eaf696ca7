"""Fixtures for all rooms."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before any test imports transformers


@pytest.fixture(scope="session")
def shared() -> Path:
    """The project's folder of data and worked examples beside the checkout; tests skip where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip(f"needs {folder}")
    return folder
