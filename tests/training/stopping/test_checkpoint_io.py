"""Checkpoints are on disk whole, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from storage.errors import DataError
from training.stopping.last_checkpoint import AtomicCheckpointIO


def test_a_full_disk_keeps_the_checkpoint_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, save = tmp_path / "last.ckpt", torch.save
    AtomicCheckpointIO().save_checkpoint({"step": 1}, path)
    monkeypatch.setattr(torch, "save", lambda content, _: save(content, "/dev/full"))
    with pytest.raises(OSError, match=r"last\.ckpt: cannot be written"):
        AtomicCheckpointIO().save_checkpoint({"weights": torch.zeros(100_000)}, path)
    monkeypatch.undo()
    assert AtomicCheckpointIO().load_checkpoint(path) == {"step": 1}
    assert os.listdir(tmp_path) == ["last.ckpt"]


def test_a_checkpoint_runs_no_code(tmp_path: Path) -> None:
    path = tmp_path / "foreign.ckpt"
    torch.save({"state_dict": Path}, path)
    with pytest.raises(DataError, match=r"foreign\.ckpt: no readable checkpoint") as caught:
        AtomicCheckpointIO().load_checkpoint(path, weights_only=False)
    assert "weights_only" not in str(caught.value)  # torch's advice would run what the file says
