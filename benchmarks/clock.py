"""Callbacks that time the epochs of our Trainer and of Hugging Face's, and count synchronisations."""

from __future__ import annotations

import time
import warnings
from typing import Any

import pytorch_lightning as pl
import torch

from benchmarks.flops import synchronise


class Stopwatch:
    """Seconds of every epoch, from before its first batch is fetched until its last step is done."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.windows: list[int] = []
        """Question windows that this process trained on, of every epoch (where the caller counts them)."""
        self.steps: list[int] = []
        self.first_step = 0.0
        """`time.time()` when the first step was done; 0 before."""

    def start(self) -> None:
        """An epoch begins."""
        _wait()
        self._began = time.perf_counter()
        self.windows.append(0)
        self.steps.append(0)

    def step(self, windows: int = 0) -> None:
        """A step is done, or, on a GPU, under way."""
        self.windows[-1] += windows
        self.steps[-1] += 1
        if not self.first_step:
            _wait()
            self.first_step = time.time()

    def stop(self) -> None:
        """The last step of an epoch was told to the device."""
        _wait()
        self.seconds.append(time.perf_counter() - self._began)


class EpochClock(pl.Callback):
    """A stopwatch on our training loop: `--trainer.callbacks+=benchmarks.clock.EpochClock`."""

    def __init__(self) -> None:
        self.watch = Stopwatch()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Before the first batch is fetched."""
        self.watch.start()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count windows, which takes no look at the device."""
        questions = getattr(batch, "qa", None)
        self.watch.step(0 if questions is None else len(questions.start_B))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """After the last step, before checkpoints are written."""
        self.watch.stop()


class SyncCounter(pl.Callback):
    """How often the host waits for the GPU within a step, by torch's own debug mode.

    A step lasts from the end of the one before, so that it fetches and moves its batch too.

    Args:
        skip: Steps at the start that are not counted.
    """

    def __init__(self, skip: int = 5) -> None:
        self.skip, self.steps, self.found = skip, 0, 0
        self._caught: Any = None

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count what was said since the last step, and listen on."""
        said = self._listened()
        if self.skip:
            self.skip -= 1
        else:
            self.steps, self.found = self.steps + 1, self.found + said
        self._caught = warnings.catch_warnings(record=True)
        self._record = self._caught.__enter__()
        warnings.simplefilter("always")
        if torch.cuda.is_available():
            torch.cuda.set_sync_debug_mode("warn")

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Listen no more: the end of an epoch may wait."""
        self._listened()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Likewise."""
        self._listened()

    def _listened(self) -> int:
        if self._caught is None:
            return 0
        if torch.cuda.is_available():
            torch.cuda.set_sync_debug_mode("default")
        self._caught.__exit__(None, None, None)
        self._caught = None
        return sum("synchroniz" in str(warning.message) for warning in self._record)


def _wait() -> None:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        synchronise("cuda")
