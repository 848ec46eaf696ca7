"""What a training process is doing, told to whoever watches: a callback, and how to read what it writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytorch_lightning as pl


class Phases(pl.Callback):
    """Writes the phase into a file, in one write, whenever it changes.

    Args:
        path: the file.
    """

    def __init__(self, *, path: str) -> None:
        self.path = path
        self.file: int | None = None

    def tell(self, phase: str) -> None:
        """Put the phase in place of the one before."""
        if self.file is None:
            self.file = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(self.file, f"{phase:<12}".encode(), 0)

    def on_train_start(self, *args: Any) -> None:
        """The first batch is next."""
        self.tell("training")

    def on_validation_start(self, *args: Any) -> None:
        """Between two training steps."""
        self.tell("validation")

    def on_validation_end(self, *args: Any) -> None:
        """Back to training."""
        self.tell("training")

    def on_train_end(self, *args: Any) -> None:
        """What is left is to write the last files."""
        self.tell("ending")


def phase_of(path: Path) -> str:
    """The phase that was told last; `start-up` before any."""
    try:
        return path.read_text().strip() or "start-up"
    except FileNotFoundError:
        return "start-up"
