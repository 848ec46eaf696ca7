"""How checkpoints reach the disk: whole or not at all, whatever ends the process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO

from models.checkpoint import read_archive
from storage.files import atomic


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes under a temporary name in the same folder, syncs, renames; reads with `weights_only=True`.

    Lightning's own writer does not sync: a machine that goes down may leave an empty file under the name.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write; OSError or DataError names the file where that fails, and what was there before stays."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with atomic(path) as temporary, open(temporary, "wb") as file:
                torch.save(checkpoint, file)
        except RuntimeError as error:  # which torch makes of a full disk
            reason = getattr(error.__context__, "strerror", error)
            raise OSError(f"{path}: cannot be written: {reason}") from error

    def load_checkpoint(self, path: str | Path, *_: Any, **__: Any) -> dict[str, Any]:
        """Read tensors and plain values only. DataError for a file that is not what was written."""
        return dict(read_archive(path))
