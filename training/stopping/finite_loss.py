"""Stop a fit whose loss or weights are not finite, before they are saved.

The predictions of such a model read as "unknown", and therefore as perfect faithfulness.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor

from interventune.models.weights import nonfinite


class DivergedError(RuntimeError):
    """A fit that cannot continue."""


class FiniteLoss(Callback):
    """Raises `DivergedError` in all processes together.

    A single CPU process checks every loss. A GPU or several processes would have to synchronise for
    it: they check every `log_every_n_steps` batches. With scaled losses (float16) a bad batch is
    skipped, so training stops only if all losses since the last check are bad.
    """

    bad: Tensor | None = None
    """Whether a loss since the last check (with scaling: every loss) was not finite."""

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        scaled = getattr(trainer.precision_plugin, "scaler", None) is not None
        bad = ~outputs["loss"].detach().isfinite()
        if self.bad is not None:
            bad = bad & self.bad if scaled else bad | self.bad
        self.bad = bad
        cheap = pl_module.device.type == "cpu" and trainer.world_size == 1 and not scaled
        if cheap or (batch_idx + 1) % (trainer.log_every_n_steps or 1) == 0:
            if trainer.strategy.reduce_boolean_decision(bool(bad), all=False):
                raise diverged(trainer, "the loss is")
            self.bad = None


def diverged(trainer: Trainer, what: str) -> DivergedError:
    """Return an error with the step, the learning rate and the last good checkpoint."""
    rate = next((optimizer.param_groups[0]["lr"] for optimizer in trainer.optimizers), 0.0)
    last = Path(trainer.log_dir or "") / "checkpoints" / "last.ckpt"  # a collective operation
    good = f"the last good checkpoint is {last}"
    return DivergedError(
        f"{what} not finite at step {trainer.global_step}, with a learning rate of {rate:.3g}; "
        f"{good if last.is_file() else 'no checkpoint was written before'}; "
        "try a lower model.learning_rate"
    )


def refuse_diverged(trainer: Trainer, weights: Mapping[str, Tensor]) -> None:
    """DivergedError, in all processes, if weights to be saved are not finite in any of them."""
    if trainer.strategy.reduce_boolean_decision(bool(nonfinite(weights)), all=False):
        raise diverged(trainer, "the weights are")
