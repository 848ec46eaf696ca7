"""What a run will need, before it is launched: memory of every device, steps, hours.

    interventune train plan -c lei_few_shot -c llama3_8b --backbone.lora_rank=8 --devices 8 --memory 80

The configured training step runs with weights that have shapes and no values (models/without_values.py), and
what lives at the same time is added up. Weights are not read: of a model on the Hub its configuration is
enough.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.cli import LightningArgumentParser
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.utils._pytree import tree_map_only

from data_modules.batching.data_module import TrainSet
from data_modules.batching.samplers import BatchIndex
from data_modules.batching.sets import PAD_TO, TrainBatch
from data_modules.encoding.tables import Tables, flat
from data_modules.encoding.tokenizers import load_tokenizer
from models.without_values import ShapesOnly, on_gpu, place_, size_of
from storage.files import write_text
from training.callbacks.run_record import accumulated
from training.cli import InterventuneCLI, follow_seed, quiet, spelled_out
from training.modules.fine_tuning import FineTuning
from training.strategies import encoder_layers

GIB = 2**30
TIMES = 3
"""A batch is repeated so often to see what a row takes."""
STORIES: dict[str, Any] = {
    "train_qa": "stories:train",
    "train_groups": ["stories:train"],
    "train_choices": ["stories:choices_train"],
}
"""What stands for data that are not here: batches of the same kinds."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What the run may take.

    Args:
        devices: How many devices share the run (`trainer.devices` is not looked at).
        memory: GiB of each of them.
        reserve: GiB of these for CUDA's context, NCCL and fragmentation.
        peak_tflops: What a device does at most, in TFLOP/s: 989 is dense bfloat16 of an H100 SXM, 312 of an
            A100.
        utilization: Share of it that training reaches.
        output: File for all numbers, as JSON.
    """

    devices: int = 1
    memory: float = 80.0
    reserve: float = 2.0
    peak_tflops: float = 989.0
    utilization: float = 0.35
    output: str = ""

    def __post_init__(self) -> None:
        for name in ("devices", "memory", "peak_tflops", "utilization"):
            if not getattr(self, name) > 0:
                raise ValueError(f"--{name}: must be greater than 0, got {getattr(self, name)}")
        if self.utilization > 1:
            raise ValueError(f"--utilization: a share of the peak is at most 1, got {self.utilization}")
        if not 0 <= self.reserve < self.memory:
            raise ValueError(f"--reserve: must lie in 0 .. memory ({self.memory:g}), got {self.reserve}")


class Step(NamedTuple):
    """A training step on one device, in bytes and operations."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    """What comes on top of these three where memory is fullest."""
    rest: int
    """What comes on top of them at most: while few gradients are there it may be more."""
    flops: int


@dataclass(kw_only=True)
class Plan:
    """What was found out."""

    configuration: dict[str, Any]
    parameters: int
    trained: int
    rows: int
    """In the batch of a device, the longest of an epoch."""
    tokens: int
    """There, padding counted."""
    gib: dict[str, dict[str, float]]
    """GiB of a device for every strategy: weights, gradients, optimizer, activations, buffers, their sum
    (peak), and what may be used (room)."""
    most_rows: dict[str, int]
    """Rows of that length for which there is room; 0 where not even one fits."""
    tflop_per_batch: float
    epoch: dict[str, float] = field(default_factory=dict)
    """Optimizer steps, batches of a device, tokens of all; empty where data or tokenizer are not here."""
    hours: float | None = None
    """Of the whole run, without validation."""
    notes: list[str] = field(default_factory=list)

    def table(self, budget: Budget) -> str:
        """For the console."""
        about = ", ".join(f"{name} {value}" for name, value in self.configuration.items() if value)
        columns = list(self.gib.values())
        lines = [
            about,
            f"{self.parameters:,} parameters, {self.trained:,} trained",
            f"a batch of a device: {self.rows} rows, {self.tokens:,} tokens with padding",
            f"{'GiB of a device':18}" + "".join(f"{name:>14}" for name in self.gib),
            *(f"  {name:16}" + "".join(f"{one[name]:14.3g}" for one in columns) for name in columns[0]),
            f"  {'':16}" + "".join(f"{_verdict(one):>14}" for one in columns),
            f"  {'rows that fit':16}" + "".join(f"{rows or 'none':>14}" for rows in self.most_rows.values()),
        ]
        if self.epoch:
            lines.append(
                "an epoch: " + ", ".join(f"{value:,.0f} {name}" for name, value in self.epoch.items())
            )
        speed = f"{self.tflop_per_batch:,.3g} TFLOP a batch"
        if self.hours is not None:
            share = f"{budget.utilization:.0%} of {budget.peak_tflops:g} TFLOP/s (assumed)"
            speed += f"; all epochs: {self.hours:,.3g} hours on {budget.devices} device(s) at {share}"
        return "\n".join([*lines, speed, *(f"note: {note}" for note in self.notes), "computed, not measured"])


def _verdict(one: dict[str, float]) -> str:
    return "fits" if max(one["peak"], one["validation"]) <= one["room"] else "does not fit"


def measure(module: Any, batch: TrainBatch, mode: Any, trainer: pl.Trainer) -> Step:
    """A training step after many, as Lightning's loop runs it: the gradients of the step before are there
    until the backward pass begins.

    Args:
        module: with weights that have shapes alone; its trainer is a stand-in.
        batch: with values.
        mode: of the weights.
        trainer: for precision, clipping and accumulation.
    """
    trained = [weight for weight in module.parameters() if weight.requires_grad]
    weights = [*module.parameters(), *module.buffers()]
    hooks = []
    with mode, ShapesOnly(mode) as shapes:

        def arrived(weight: Tensor) -> None:
            shapes.aside += size_of([weight.grad])

        for weight in weights:
            shapes.count(weight)
        optimizer = module.configure_optimizers()["optimizer"]
        for weight in trained:
            weight.grad = torch.zeros_like(weight)
        optimizer.step()
        gradients = size_of(weight.grad for weight in trained)
        states = size_of(value for state in optimizer.state.values() for value in state.values())
        shapes.aside, shapes.rest = (own := size_of(weights)) + gradients + states, 0
        with trainer.precision_plugin.forward_context():
            loss = module.training_step(batch, 0)
        if trainer.accumulate_grad_batches == 1:
            optimizer.zero_grad()
            shapes.aside -= gradients
            hooks = [weight.register_post_accumulate_grad_hook(arrived) for weight in trained]
        loss.backward()
        for hook in hooks:
            hook.remove()
        if trainer.gradient_clip_val:
            nn.utils.clip_grad_norm_(trained, trainer.gradient_clip_val)
        optimizer.step()
        optimizer.zero_grad()
    return Step(own, gradients, states, shapes.peak - own - gradients - states, shapes.rest, shapes.flops)


class Epoch:
    """The batches of an epoch, by their sizes alone.

    Args:
        data: a DataModule, which gets its training set.
    """

    def __init__(self, data: Any) -> None:
        self.multiple, self.train_set = PAD_TO, data.make_train_set()
        data.train_set, draw = self.train_set, data.train_batches(self.train_set)
        self.batches: list[BatchIndex] = draw(np.random.default_rng([data.seed, 0]))
        self.tokens = np.array([self._tokens(index) for index in self.batches])

    def _tokens(self, index: BatchIndex) -> int:
        """Of a batch, padding counted."""
        found: TrainSet = self.train_set
        groups, qa, choices = list(index.groups), list(index.qa), list(index.choices)
        sizes = []
        if found.groups is not None and groups:
            length_NV = flat(found.groups.table.data, "length").reshape(-1, 4)
            sizes.append((4 * len(groups), length_NV[groups].max()))
        if found.qa is not None and qa:
            sizes.append((len(qa), found.qa.lengths[qa].max()))
        if found.choices is not None and choices:
            width = found.choices.width or found.choices.lengths[choices].max()
            rows = len(choices) if found.choices.behind_prompts else found.choices.counts[choices].sum()
            sizes.append((rows, width))
        return sum(int(rows) * -(-int(width) // self.multiple) * self.multiple for rows, width in sizes)

    def longest(self) -> TrainBatch:
        """The batch of most tokens."""
        return self.train_set[self.batches[int(self.tokens.argmax())]]


def parts_of(batch: TrainBatch) -> list[Any]:
    """Those that are there."""
    return [part for part in (batch.groups, batch.qa, batch.choices) if part is not None]


def widened(part: Any, width: int) -> Any:
    """A part of a batch with rows of `width` tokens, none of them padding; new ones stand in front."""
    found: dict[str, Any] = part._asdict()
    more = max(0, width - found["inputs"]["input_ids"].shape[-1])
    for name, value in found.items():
        if name == "inputs":
            full = {key: pad(rows, (more, 0)) for key, rows in value.items()}
            found[name] = full | {"attention_mask": torch.ones_like(full["attention_mask"])}
        elif name.endswith("_BT"):
            found[name] = pad(value, (more, 0), value=True)
        elif name in ("start_B", "end_B", "cls_B", "candidate_BVSE", "candidate_BCE") and value is not None:
            found[name] = value + more
    return type(part)(**found)


class PlanCLI(InterventuneCLI):
    """The command line of `fit`, with a plan in the place of a run."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """The flags of `fit`, and the budget's."""
        super().add_arguments_to_parser(parser)
        parser.add_class_arguments(Budget)

    def before_instantiate_classes(self) -> None:
        """No folder, no logger; the tokenizer of the embedded stories where the model's own is not here."""
        logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
        self.options, self.notes = self.config[self.command], list[str]()
        follow_seed(self.options, int(self.options.get("seed_everything") or 0))
        self.budget = Budget(**{one.name: self.options[one.name] for one in fields(Budget)})
        data = self.options.data.init_args
        try:
            load_tokenizer(data.tokenizer, data.architecture)
        except ValueError:
            self.notes.append(
                f"no tokenizer at {data.tokenizer!r}: steps and tokens of an epoch are not known"
            )
            data.tokenizer = "stories"

    def instantiate_classes(self) -> None:
        """Model and data; no weight has values."""
        with torch.device("meta"):
            super().instantiate_classes()

    def instantiate_trainer(self, **options: Any) -> pl.Trainer:
        """One that knows how a step is made, and never trains."""
        names = ("precision", "gradient_clip_val", "accumulate_grad_batches", "max_epochs", "max_steps")
        wanted = {name: self.options.trainer[name] for name in (*names, "limit_train_batches")}
        off = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
        wanted = {name: value for name, value in wanted.items() if value is not None}
        return pl.Trainer(accelerator="cpu", devices=1, **wanted, **dict.fromkeys(off, False))

    def _run_subcommand(self, subcommand: str) -> None:
        plan = self.plan()
        print(plan.table(self.budget), flush=True)
        if self.budget.output:
            write_text(Path(self.budget.output), json.dumps(asdict(plan), indent=1) + "\n")

    def plan(self) -> Plan:
        """All numbers."""
        module: Any = self.model
        accelerator = "cpu" if self.options.trainer.accelerator == "cpu" else "gpu"
        epoch, batch = self.longest_batch()
        module.trainer = SimpleNamespace(datamodule=self.datamodule, estimated_stepping_batches=1)
        module.log = lambda *_, **__: None
        FineTuning.setup(module, "fit")
        if accelerator == "gpu":
            on_gpu(module.model)
        self.trainer.precision_plugin.convert_module(module)
        mode = place_(module)
        module._device = torch.device("cpu")  # Lightning remembers where it was made
        groups = self.datamodule.train_set.groups
        module.stand_in(0 if groups is None else len(groups))
        step = measure(module.train(), batch, mode, self.trainer)
        more: TrainBatch = tree_map_only(Tensor, lambda value: torch.cat([value] * TIMES), batch)
        wider = self.strategies(measure(module, more, mode, self.trainer))
        ids = [part.inputs["input_ids"] for part in parts_of(batch)]
        rows, room = sum(part.shape[:-1].numel() for part in ids), self.budget.memory - self.budget.reserve
        gib, most = {}, {}
        for name, parts in self.strategies(step).items():
            gib[name] = {part: value / GIB for part, value in parts.items()}
            # To validate, every device takes the whole model (training/strategies.py).
            kept = parts["weights"] * (name == "fsdp") + parts["gradients"] + parts["optimizer"]
            validation = (step.weights + kept) / GIB
            gib[name] |= {"peak": sum(gib[name].values()), "validation": validation, "room": room}
            slope = (wider[name]["activations"] - parts["activations"]) / GIB / (TIMES - 1)
            most[name] = max(0, int(rows * (1 + (room - gib[name]["peak"]) / max(slope, 1 / GIB))))
        if hasattr(module, "reference"):
            self.notes.append("the reference is scored once before the first step: no second model in memory")
        backbone = self.options.backbone
        plan = Plan(
            configuration={
                "model": backbone.checkpoint,
                "precision": self.trainer.precision,
                "LoRA rank": backbone.lora_rank,
                "gradient checkpointing": backbone.gradient_checkpointing,
                "accelerator": accelerator,
                "devices": self.budget.devices,
            },
            parameters=sum(weight.numel() for weight in module.parameters()),
            trained=sum(weight.numel() for weight in module.parameters() if weight.requires_grad),
            rows=rows,
            tokens=sum(part.numel() for part in ids),
            gib=gib,
            most_rows=most,
            tflop_per_batch=step.flops / 1e12,
            notes=self.notes,
        )
        if epoch is not None:
            plan.epoch, plan.hours = self.time(epoch, step.flops)
        return plan

    def longest_batch(self) -> tuple[Epoch | None, TrainBatch]:
        """The epoch, and its longest batch; where data or tokenizer are not here, none, and a batch of the
        embedded stories in rows of as many tokens as `max_length` allows."""
        data = self.datamodule
        if not self.notes:
            try:
                epoch = Epoch(data)
                return epoch, epoch.longest()
            except (ValueError, OSError) as error:
                if "hub:" not in str([getattr(data, name, "") for name in STORIES]):
                    raise
                self.notes.append(f"steps and tokens of an epoch are not known: {str(error).splitlines()[0]}")
        width = data.encoding.max_length
        self.notes.append(f"every row is taken to have {width} tokens (max_length of the encoding)")
        data.tables, data.limit_train_groups = Tables("", data.tokenizer), 0
        data.limit_train_qa = 4 * getattr(data, "qa_batch_size", 0)
        for name, source in STORIES.items():
            if getattr(data, name, None):
                setattr(data, name, source)
        batch = Epoch(data).longest()
        groups, qa = batch.groups and widened(batch.groups, width), batch.qa and widened(batch.qa, width)
        choices = batch.choices and widened(batch.choices, width)
        return None, TrainBatch(groups, qa, choices)

    def strategies(self, step: Step) -> dict[str, dict[str, float]]:
        """Bytes of a device, by what holds them."""
        devices, (weights, gradients, optimizer, _, rest, _) = self.budget.devices, step
        found: dict[str, tuple[float, ...]] = {"one device": (*step[:4], 0)}
        if devices > 1:
            layers = [size_of(layer.parameters()) for layer in encoder_layers(self.model.model.encoder)]
            # What is outside the layers stays gathered; of these one is computed and the next one fetched.
            gathered = (weights - sum(layers) + 2 * max(layers, default=0)) * (1 + gradients / weights)
            shards = (weights / devices, gradients / devices, optimizer / devices)
            found["ddp"] = (*step[:4], gradients)  # buckets in which gradients are summed
            found["fsdp"] = (*shards, rest, gathered)
        names = ("weights", "gradients", "optimizer", "activations", "buffers")
        return {name: dict(zip(names, parts, strict=True)) for name, parts in found.items()}

    def time(self, epoch: Epoch, flops: int) -> tuple[dict[str, float], float]:
        """An epoch, and hours of the run."""
        budget, trainer, planned = self.budget, self.trainer, self.options.run.planned_processes
        limit, batches = trainer.limit_train_batches, len(epoch.batches) // budget.devices
        batches = min(batches, limit) if isinstance(limit, int) else int(batches * limit)
        accumulate = trainer.accumulate_grad_batches
        accumulate = accumulated(planned, accumulate, budget.devices) if planned else accumulate
        steps, mean = -(-batches // accumulate), float(epoch.tokens.mean())
        ends = [steps * trainer.max_epochs] if (trainer.max_epochs or -1) > 0 else []
        total = min(ends + [trainer.max_steps] * (trainer.max_steps > 0), default=steps)
        seconds = flops * mean / epoch.tokens.max() / (budget.peak_tflops * 1e12 * budget.utilization)
        found = {"steps": steps, "batches of a device": batches, "tokens": batches * budget.devices * mean}
        return found, total * accumulate * seconds / 3600


def run_plan(arguments: Sequence[str]) -> PlanCLI:
    """`plan` and its arguments, whose configurations have been found and checked."""
    quiet()
    plain = [one.replace("--peak-tflops", "--peak_tflops") for one in spelled_out(arguments)]
    return PlanCLI(["fit", *plain[1:]])
