"""`checkpoints/last.ckpt`: always complete and recent; a run resumes from it as if never
interrupted. And the weights of some steps, which evaluations compare.

last.ckpt is written between two batches (every few minutes or steps, after a validation, and when
the run is stopped) and when an epoch ends. Lightning counts batches and epochs differently in each
case, and sometimes wrongly. Here every checkpoint states that k batches of this epoch are
completely done, or that the epoch is.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO
from pytorch_lightning.utilities import rank_zero_info

from interventune.storage.documents import Values, atomic, read_archive
from interventune.training.run import Run

SavePoint = Literal[
    "", "validated", "between batches", "after validation", "epoch done", "epoch cut short"
]


class Stopped(SystemExit):
    """A run that was stopped on request; its exit code is the shells' code for the signal."""

    def __init__(self, signum: int) -> None:
        # Lightning's launcher treats any other exit code of a child as a failure, and kills the
        # run.
        child = "LOCAL_RANK" in os.environ and "TORCHELASTIC_RUN_ID" not in os.environ
        super().__init__(0 if child and os.environ["LOCAL_RANK"] != "0" else 128 + signum)


class LastCheckpoint(Checkpoint):
    """Writes `last.ckpt` and kept weights, and ends the run at SIGTERM or Ctrl-C with `last.ckpt`;
    a second Ctrl-C ends it at once.

    Several processes synchronise for this every `log_every_n_steps` batches, because it makes a GPU
    wait. `Run` sets how often they are written.
    """

    path: Path | None = None
    save_point: SavePoint = ""
    # The received signal, whether it waits for the end of the step, and the previous handlers.
    received = 0
    deferred = False
    handlers: dict[int, Any]
    due = stopping = validated = False
    kept_step = -1

    def __init__(self, run: Run) -> None:
        self.run = run
        self.handlers = {}

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Take over signal handling; until training begins, a signal ends the run at once."""
        # Lightning would override these handlers, and synchronise all processes in every step.
        trainer._signal_connector.register_signal_handlers = lambda: None
        trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None
        if threading.current_thread() is threading.main_thread():  # handlers can be set only there
            for signum in (signal.SIGTERM, signal.SIGINT):
                self.handlers.setdefault(signum, signal.signal(signum, self._handle))

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        again = signum == signal.SIGINT == self.received
        self.received = signum
        if again or not self.deferred:
            raise Stopped(signum)

    def teardown(self, *_: Any, **__: Any) -> None:
        while self.handlers:
            signum, handler = self.handlers.popitem()
            signal.signal(signum, handler or signal.SIG_DFL)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Delay signals until the end of the step from here on."""
        folder = trainer.log_dir  # a collective operation
        if folder is not None and not trainer.fast_dev_run:
            self.path = Path(folder) / "checkpoints/last.ckpt"
            if trainer.is_global_zero:
                for left in self.path.parents[1].rglob(".*.tmp"):  # left by killed writers
                    left.unlink(missing_ok=True)
        self.saved_step = trainer.global_step
        self.saved_at = time.monotonic()
        self.deferred = True
        self._keep(trainer)
        if done := trainer.fit_loop.epoch_loop.batch_progress.current.ready:
            # Lightning creates the loader's iterator long before it reads the state with the
            # starting point.
            trainer.train_dataloader.load_state_dict({"consumed": done})
            iter(trainer.fit_loop._data_fetcher)
        else:  # nothing has begun; wrong under max_steps
            trainer.fit_loop.epoch_loop.restarting = False

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Save, or stop, between two batches, when no partial gradients would be lost."""
        if trainer.world_size == 1 or batch_idx % (trainer.log_every_n_steps or 1) == 0:
            late = 0 < 60 * self.run.save_every_minutes <= time.monotonic() - self.saved_at
            agreed = trainer.strategy.reduce_boolean_decision
            self.stopping = agreed(self.received > 0, all=False)
            self.due = agreed(self.due or late, all=False)
        validated = self.validated
        self.validated = False
        if batch_idx % trainer.accumulate_grad_batches:
            return
        step = trainer.global_step
        every = self.run.save_every_n_steps
        by_steps = every > 0 and step % every == 0
        if (self.due or self.stopping or by_steps) and step != self.saved_step:
            self._save(trainer, "after validation" if validated else "between batches")
        if self.stopping:
            raise Stopped(self.received or signal.SIGTERM)

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Keep the weights of a completed step."""
        self._keep(trainer)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """If stopped, a validation is repeated from the last checkpoint."""
        if trainer.state.fn == "fit":
            self.deferred = False
            if self.received:
                raise Stopped(self.received)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save its scores before the next batch, or with the epoch."""
        if trainer.state.fn == "fit":
            self.deferred = self.due = self.validated = True

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save, after ModelCheckpoint has processed the epoch's validation."""
        done = trainer.fit_loop.epoch_loop._num_ready_batches_reached()
        self._save(trainer, "epoch done" if done else "epoch cut short")

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """End the processes started by this one: while waiting for others, they would
        not notice.
        """
        self.teardown()
        children = getattr(trainer.strategy.launcher, "procs", [])
        for child in children:
            child.kill()
        # otherwise Lightning's watcher reports a failure and kills the first process
        children.clear()
        if isinstance(exception, Stopped) and trainer.is_global_zero:
            resumable = self.path is not None and self.path.exists()
            then = f"; add --ckpt_path auto to resume from {self.path}" if resumable else ""
            print(f"stopped at step {trainer.global_step}{then}", file=sys.stderr, flush=True)

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: Values
    ) -> None:
        """Normalise the counters, and record what they count."""
        fit_loop = checkpoint["loops"]["fit_loop"]
        epoch = fit_loop["epoch_progress"]["current"]
        # ModelCheckpoint saves after validation, or when an epoch is done.
        by_others: SavePoint = "epoch done" if epoch["processed"] == epoch["ready"] else "validated"
        consistent_counters(fit_loop, self.save_point or by_others, trainer.accumulate_grad_batches)
        checkpoint["processes"] = trainer.world_size
        checkpoint["per_step"] = trainer.world_size * trainer.accumulate_grad_batches

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: Values
    ) -> None:
        """Convert the counts of batches and, if epochs limit the training, of the schedule's steps
        to this number of processes. A moved run finds its best.ckpt where it is now.
        """
        if trainer.state.fn != "fit":
            return
        for callback in trainer.checkpoint_callbacks[:-1]:
            state = checkpoint["callbacks"].get(callback.state_key)
            folder = str(getattr(callback, "dirpath", ""))
            if state and Path(folder).resolve() == Path(trainer.ckpt_path).resolve().parent:
                best = state["best_k_models"].items()
                state["best_k_models"] = {f"{folder}/{Path(path).name}": x for path, x in best}
                for name in ("best_model_path", "kth_best_model_path"):
                    state[name] = state[name].replace(state["dirpath"], folder)
                state["dirpath"] = folder
        if trainer.max_steps == -1:
            now = trainer.world_size * trainer.accumulate_grad_batches
            for schedule in checkpoint["lr_schedulers"]:
                schedule["last_epoch"] = schedule["last_epoch"] * checkpoint["per_step"] // now
        before = checkpoint["processes"]
        if before != trainer.world_size:
            rank_zero_info(
                f"the checkpoint is from {before} processes, this run has {trainer.world_size}: "
                "it resumes at the same share of the epoch, in another order"
            )
            progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
            for counts in (progress["total"], progress["current"]):
                for key, value in counts.items():
                    counts[key] = value * before // trainer.world_size
            progress["is_last_batch"] = False

    def _keep(self, trainer: Trainer) -> None:
        """Save the weights of this step, once, if they are due."""
        step = trainer.global_step
        every = self.run.keep_every_n_steps
        if self.path is not None and every and step % every == 0 and step != self.kept_step:
            trainer.save_checkpoint(self.path.with_name(f"step_{step:06}.ckpt"), weights_only=True)
            self.kept_step = step

    def _save(self, trainer: Trainer, save_point: SavePoint) -> None:
        if self.path is not None:
            self.save_point = save_point
            trainer.save_checkpoint(self.path)
            self.save_point = ""
            self.due = False
            self.saved_step = trainer.global_step
            self.saved_at = time.monotonic()


def consistent_counters(fit_loop: Values, save_point: SavePoint, accumulation: int) -> None:
    """Correct the state of Lightning's loops, in place, so that training resumes properly.

    Args:
        fit_loop: `checkpoint["loops"]["fit_loop"]`.
        save_point: when it was taken. "validated" needs no change: Lightning skips the pending
            validation. "between batches": the next batch has been fetched, and its hooks have
            begun. "after validation": the same, but Lightning will skip the pending validation and
            then count its step. "epoch done", "epoch cut short" (by max_steps, for example): the
            epoch has begun to count as processed.
        accumulation: batches per step; partial gradients are not saved, so their batches are
            repeated.
    """
    if save_point == "validated":
        return
    batches = fit_loop["epoch_loop.batch_progress"]
    epochs = fit_loop["epoch_progress"]
    done, total = (batches[counted]["processed"] for counted in ("current", "total"))
    if save_point.startswith("epoch"):
        for counts in (epochs["total"], epochs["current"]):
            counts["processed"] -= save_point == "epoch cut short"
            counts["completed"] = counts["processed"]
    if save_point == "epoch done":
        done = 0
    else:
        total = total - done % accumulation
        done = done - done % accumulation
    if save_point == "after validation":
        fit_loop["epoch_loop.state_dict"]["_batches_that_stepped"] -= 1
    batches["total"].update(dict.fromkeys(batches["total"], total))
    batches["current"].update(dict.fromkeys(batches["current"], done))
    batches["is_last_batch"] = False


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes under a temporary name in the same folder, syncs, renames; reads with
    `weights_only=True`.

    Lightning's own writer does not sync: after a machine crash, the file may be empty.
    """

    def save_checkpoint(
        self, checkpoint: Values, path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write; on failure, OSError or DataError names the file, and its earlier
        content remains.
        """
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with atomic(path) as temporary, open(temporary, "wb") as file:
                torch.save(checkpoint, file)
        except RuntimeError as error:  # torch's error for a full disk
            reason = getattr(error.__context__, "strerror", error)
            raise OSError(f"{path}: cannot be written: {reason}") from error

    def load_checkpoint(self, path: str | Path, *_: Any, **__: Any) -> Values:
        """Read tensors and plain values only. DataError for a file with other content."""
        return dict(read_archive(path))
