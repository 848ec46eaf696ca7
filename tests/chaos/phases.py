"""What a training process is doing, told to whoever watches: a callback, and how to read what it writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytorch_lightning as pl


class Phases(pl.Callback):
    """Writes the phase into the file `path`, in one write, whenever it changes."""

    def __init__(self, *, path: str) -> None:
        self.path = path
        self.file: int | None = None

    def tell(self, phase: str) -> None:
        """Put the phase in place of the one before."""
        if self.file is None:
            self.file = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(self.file, f"{phase:<12}".encode(), 0)

    def on_train_start(self, *args: Any) -> None:
        self.tell("training")

    def on_validation_start(self, *args: Any) -> None:
        self.tell("validation")

    def on_validation_end(self, *args: Any) -> None:
        self.tell("training")

    def on_train_end(self, *args: Any) -> None:
        self.tell("ending")


def phase_of(path: Path) -> str:
    """The phase that stands there; `start-up` before any."""
    try:
        return path.read_text().strip() or "start-up"
    except FileNotFoundError:
        return "start-up"
