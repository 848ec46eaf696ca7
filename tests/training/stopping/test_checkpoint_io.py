"""Checkpoints are on disk whole, or not at all."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from storage.errors import DataError
from training.stopping.last_checkpoint import AtomicCheckpointIO


@pytest.fixture
def full_disk() -> Iterator[None]:
    """Files may not grow beyond 10 kB, which fails like a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, ignored)


def test_a_full_disk_keeps_the_checkpoint_before(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint({"step": 1}, path)
    request.getfixturevalue("full_disk")
    with pytest.raises((OSError, DataError), match=r"last\.ckpt: cannot be written: File too large"):
        AtomicCheckpointIO().save_checkpoint({"weights": torch.zeros(100_000)}, path)
    assert AtomicCheckpointIO().load_checkpoint(path) == {"step": 1}
    assert os.listdir(tmp_path) == ["last.ckpt"]


def test_a_checkpoint_runs_no_code(tmp_path: Path) -> None:
    path = tmp_path / "foreign.ckpt"
    torch.save({"state_dict": Path}, path)
    with pytest.raises(DataError, match=r"foreign\.ckpt: holds objects other than") as caught:
        AtomicCheckpointIO().load_checkpoint(path, weights_only=False)
    assert "weights_only" not in str(caught.value)  # torch's advice would run what the file says
