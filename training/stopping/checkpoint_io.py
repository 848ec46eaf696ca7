"""How checkpoints reach the disk: whole or not at all, whatever ends the process."""

from __future__ import annotations

import errno
from collections.abc import Callable
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

    Lightning's own writer holds a second copy of everything in memory and does not sync, so that a machine
    that goes down may leave an empty file under the final name.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write; OSError names the file where that fails, and what was there before stays.

        A path with a protocol (`s3://...`) goes to Lightning's writer: such stores replace files whole.
        """
        if "://" in str(path):
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic(path) as temporary, open(temporary, "wb") as file:
                torch.save(checkpoint, file)
        except (OSError, RuntimeError, DataError) as error:  # torch.save makes a RuntimeError of a full disk
            kept = "; the one before is still there" if path.exists() else ""
            cause: BaseException | None = error
            while cause is not None and not (isinstance(cause, OSError) and cause.strerror):
                cause = cause.__cause__ or cause.__context__
            if cause is not None and cause.errno in (errno.ENOSPC, errno.EDQUOT):
                raise OSError(f"no space left on {path.parent} for {path.name}{kept}") from error
            reason = str(error).splitlines()[0] if cause is None else cause.strerror
            raise OSError(f"{path}: the checkpoint cannot be written: {reason}{kept}") from error

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Callable | None = lambda storage, location: storage,
        weights_only: bool | None = True,
    ) -> dict[str, Any]:
        """Read tensors and plain values only, whoever asks: Lightning forgets to say so in places.

        DataError for a file that is not what was written, which torch does not notice.
        """
        if "://" not in str(path):
            return dict(read_archive(path))
        return super().load_checkpoint(path, map_location=map_location, weights_only=True)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of writers that were killed. Only the one process that writes there may call
    this, before it writes."""
    for path in folder.glob(".*.tmp"):
        with suppress(OSError):  # a read-only folder says so even where there is no such file
            path.unlink(missing_ok=True)
