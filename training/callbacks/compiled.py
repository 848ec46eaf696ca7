"""torch.compile as an option of a run."""

from __future__ import annotations

import pytorch_lightning as pl


class Compiled(pl.Callback):
    """Compiles the encoder in place when training starts: names of weights, and so checkpoints, stay."""

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Lengths of batches differ, hence dynamic shapes."""
        model = getattr(pl_module, "model", pl_module)
        getattr(model, "encoder", model).compile(dynamic=True)
