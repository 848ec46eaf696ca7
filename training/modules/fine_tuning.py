"""The base of all training modules: a model on a backbone, optimizer, schedule, and checks of the
data.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jsonargparse.typing import ClosedUnitInterval, NonNegativeFloat
from pytorch_lightning import Callback, LightningModule
from torch import Tensor, nn

from interventune.data_modules.encoding.tokenizers import tokenizer_files
from interventune.losses.answers import Losses, with_share
from interventune.models.backbones import EncoderModel
from interventune.models.checkpoint import KEY, describe, nonfinite
from interventune.storage.documents import DataError, Values
from interventune.training.callbacks.eval_sets import EvalSets

PRETRAINING_ONLY = "mask_emb"
"""XLNet's embedding of a masked token, which no loss here reaches; DDP would wait for
its gradient.
"""


class DivergedError(RuntimeError):
    """A fit that cannot continue: its loss or its weights are not finite. The predictions of such a
    model read as "unknown", and therefore as perfect faithfulness.
    """


class FineTuning(LightningModule):
    """Training (the flags depend on the experiment).

    Args:
        model: The model to train.
        learning_rate: Highest learning rate of the schedule.
        weight_decay: AdamW's weight decay; biases and normalisation weights are not decayed.
        warmup_ratio: With `linear`: share of all steps in which the learning rate rises from 0.
        schedule: `linear` warm-up and decay to 0, or `constant`, as in the confusion paper's code.
        adam_eps: AdamW's epsilon; that code has 1e-7.
    """

    model: EncoderModel
    weights: Mapping[str, float] = {}
    """Weights of losses in the total, 1 for others; the total is logged if there are any."""
    run_seed = 0
    """Of the run: `seed_everything`."""
    reads: Sequence[str] = ()
    """Files besides the data that must stay as they are, also when the run resumes."""
    bad_loss: Tensor | None = None
    """Whether a loss since the last check (with scaling: every loss) was not finite."""

    def __init__(
        self,
        model: EncoderModel,
        *,
        learning_rate: NonNegativeFloat,
        weight_decay: NonNegativeFloat,
        warmup_ratio: ClosedUnitInterval = 0.1,
        schedule: Literal["linear", "constant"] = "linear",
        adam_eps: float = 1e-8,
    ) -> None:
        super().__init__()
        self.model = model
        # The items over which a loss is a mean, `questions` unless named here; none for a sum.
        self.mean_over: dict[str, list[str]] = {}
        self.strict_loading = not model.adapter.get("base")  # the base's weights are already loaded
        # Plain numbers: a checkpoint may not contain jsonargparse's types.
        self.learning_rate = float(learning_rate)
        self.weight_decay = float(weight_decay)
        self.warmup_ratio = warmup_ratio
        self.schedule = schedule
        self.adam_eps = adam_eps
        for name, parameter in model.named_parameters():
            if name.endswith(PRETRAINING_ONLY):
                parameter.requires_grad_(False)

    @property
    def datamodule(self) -> Any:
        return self.trainer.datamodule

    @property
    def encoding(self) -> Any:
        return self.datamodule.encoding

    def setup(self, stage: str) -> None:
        """Check that tokenizer, embeddings and data fit, before any long work."""
        positions = self.model.max_tokens
        length = self.encoding.max_length
        if positions is not None and length > positions:
            raise ValueError(
                f"--data.encoding.max_length={length}: the model has only {positions} positions"
            )
        words = len(self.datamodule.tokenizer)
        rows = self.model.config.vocab_size
        if words > rows:
            raise ValueError(
                f"backbone: the tokenizer has {words} tokens, the model {rows} embeddings; "
                "they do not belong together (set backbone.config.vocab_size for random weights)"
            )
        self.check_data(stage)

    def check_data(self, stage: str) -> None:
        """ValueError for data that this module cannot use."""

    def configure_callbacks(self) -> list[Callback]:
        return [EvalSets()]

    def losses(self, batch: Any) -> Losses:
        """Return the losses of a batch by name."""
        raise NotImplementedError

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Count the items of the step: of all batches that are accumulated, in all processes. Seed
        torch, so that an interrupted run draws the same dropout masks as an uninterrupted one.
        """
        sampler = self.datamodule.train_sampler
        count = self.datamodule.train_set.items_of
        every = self.trainer.accumulate_grad_batches
        world = sampler.world_size
        first = batch_idx - batch_idx % every
        end = min(first + every, int(self.trainer.num_training_batches))
        number = batch_idx * world + sampler.rank  # over all processes, so each draws its own
        hashed = np.random.SeedSequence([self.run_seed, self.current_epoch, number])
        torch.manual_seed(int(hashed.generate_state(1, np.uint64)[0] >> 1))  # 63 bits
        self.in_batch: Counter[str] = count(sampler.drawn[number])
        self.in_step = sum(map(count, sampler.drawn[first * world : end * world]), Counter[str]())
        # The number of batches whose gradients a step averages: Lightning divides by `every` even
        # if fewer batches are left.
        self.averaged = every * world

    def share(self, name: str) -> float:
        """Return the share of the current batch that gives a step the gradient of one batch with
        all its items (see `with_share`).
        """
        items = self.mean_over.get(name, ["questions"])
        total = sum(self.in_step[item] for item in items)
        return self.averaged * (sum(self.in_batch[item] for item in items) / total if total else 1)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the weighted sum of the losses. Logged values are those of single batches, not of
        steps.
        """
        total: Any = 0
        for name, loss in self.losses(batch).items():
            self.log(f"train/loss/{name}", loss, prog_bar=not self.weights)
            total = total + self.weights.get(name, 1) * with_share(loss, self.share(name))
        if self.weights:
            self.log("train/loss/total", total, prog_bar=True)
        return total

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """End the fit in all processes together if a loss is not finite.

        A single CPU process checks every loss. A GPU or several processes would have to synchronise
        for it: they check every `log_every_n_steps` batches. With scaled losses (float16) a bad
        batch is skipped, so training ends only if all losses since the last check are bad.
        """
        trainer = self.trainer
        scaled = getattr(trainer.precision_plugin, "scaler", None) is not None
        bad = ~outputs["loss"].detach().isfinite()
        if self.bad_loss is not None:
            bad = bad & self.bad_loss if scaled else bad | self.bad_loss
        self.bad_loss = bad
        cheap = self.device.type == "cpu" and trainer.world_size == 1 and not scaled
        if cheap or (batch_idx + 1) % (trainer.log_every_n_steps or 1) == 0:
            self.refuse_diverged(bool(bad), "the loss is")
            self.bad_loss = None

    def refuse_diverged(self, bad: bool, what: str) -> None:
        """DivergedError in all processes, if one is `bad`, with the step, the learning rate and the
        last good checkpoint.
        """
        trainer = self.trainer
        if not trainer.strategy.reduce_boolean_decision(bad, all=False):
            return
        rate = trainer.optimizers[0].param_groups[0]["lr"]
        last = Path(trainer.log_dir or "") / "checkpoints/last.ckpt"  # a collective operation
        good = f"the last good checkpoint is {last}"
        raise DivergedError(
            f"{what} not finite at step {trainer.global_step}, with a learning rate of {rate:.3g}; "
            f"{good if last.is_file() else 'no checkpoint was written before'}; "
            "try a lower model.learning_rate"
        )

    def test_step(self, *batch: Any) -> Values:
        """Return what the callbacks need of a batch, as in validation."""
        return self.validation_step(*batch)

    predict_step = test_step

    def configure_model(self) -> None:
        """Shard the model over processes, if the strategy is `fsdp`."""
        if self.device_mesh is not None:
            # Takes half a second, needed only here.
            from interventune.training.strategies import shard

            shard(self, self.device_mesh["data_parallel"])

    def configure_optimizers(self) -> Any:
        from transformers import get_linear_schedule_with_warmup

        optimizer = torch.optim.AdamW(
            decay_groups(self, self.weight_decay),
            lr=self.learning_rate,
            eps=self.adam_eps,
            fused=True,
        )
        # The fused step can unscale float16 gradients itself, but then they could not be clipped
        # before. With this setting the scaler unscales first, as for any other optimizer.
        optimizer._step_supports_amp_scaling = False
        if self.schedule == "constant":
            return optimizer
        steps = self.trainer.estimated_stepping_batches
        if steps == math.inf:
            raise ValueError("trainer.max_epochs=-1: set trainer.max_steps, the schedule's end")
        total = int(steps)
        scheduler = get_linear_schedule_with_warmup(optimizer, self.warmup_steps(total), total)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

    def warmup_steps(self, total: int) -> int:
        return round(self.warmup_ratio * total)

    def on_load_checkpoint(self, checkpoint: Values) -> None:
        """DataError if an adapter was trained on other weights, or with another rank."""
        saved = checkpoint.get(KEY, {}).get("adapter", {})
        own = self.model.adapter
        if any(saved.get(name) != own.get(name) for name in ("rank", "digest")):
            texts = [
                ", ".join(f"{name}={value}" for name, value in adapter.items()) or "none"
                for adapter in (saved, own)
            ]
            raise DataError(f"ckpt_path: its adapter (backbone.lora_*) is {', not '.join(texts)}")

    def on_save_checkpoint(self, checkpoint: Values) -> None:
        """Make the checkpoint self-contained: add architecture, configuration,
        tokenizer, encoding.
        """
        self.refuse_diverged(bool(nonfinite(checkpoint["state_dict"])), "the weights are")
        files = tokenizer_files(self.datamodule.tokenizer)
        if self.model.adapter:
            from interventune.models.adapters import own_weights

            checkpoint["state_dict"] = own_weights(self.model, checkpoint["state_dict"])
        checkpoint[KEY] = describe(self.model, files, asdict(self.encoding))


def decay_groups(module: nn.Module, weight_decay: float) -> list[Values]:
    """Return an optimizer's parameter groups: decayed weights, then biases and normalisation
    weights. Biases are recognised by name, because some of XLNet's have two dimensions.
    """
    norms = [part for part in module.modules() if type(part).__name__.endswith("Norm")]
    normalisation = {id(parameter) for part in norms for parameter in part.parameters()}
    groups: list[Values] = [{"params": [], "weight_decay": rate} for rate in (weight_decay, 0.0)]
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            plain = name.endswith("bias") or id(parameter) in normalisation
            groups[plain]["params"].append(parameter)
    return groups
