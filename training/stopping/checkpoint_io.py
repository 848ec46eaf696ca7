"""How checkpoints reach the disk: whole or not at all, whatever ends the process."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO

from models.checkpoint import read_archive
from storage.errors import DataError
from storage.files import atomic


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes under a temporary name in the same folder, syncs, renames; reads with `weights_only=True`.

    Lightning's own writer does not sync: a machine that goes down may leave an empty file under the name.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write; OSError names the file where that fails, and what was there before stays."""
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic(path) as temporary, open(temporary, "wb") as file:
                torch.save(checkpoint, file)
        except (OSError, RuntimeError, DataError) as error:  # torch.save makes a RuntimeError of a full disk
            cause: BaseException | None = error
            while cause is not None and not isinstance(cause, OSError):
                cause = cause.__cause__ or cause.__context__
            reason = cause.strerror if cause is not None and cause.strerror else str(error).splitlines()[0]
            kept = "; the one before is still there" if path.exists() else ""
            raise OSError(f"{path}: the checkpoint cannot be written: {reason}{kept}") from error

    def load_checkpoint(self, path: str | Path, *_: Any, **__: Any) -> dict[str, Any]:
        """Read tensors and plain values only. DataError for a file that is not what was written."""
        return dict(read_archive(path))


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of writers that were killed. Only the one process that writes there may call
    this, before it writes."""
    for path in folder.glob(".*.tmp"):
        with suppress(OSError):
            path.unlink(missing_ok=True)
