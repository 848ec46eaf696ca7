"""What the three DataModules share: named evaluation sets for every stage, and the loaders of all sets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partialmethod
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl
from jsonargparse.typing import NonNegativeInt, PositiveInt
from torch.utils.data import DataLoader, Dataset

from data_modules.batching.batches import TrainBatch
from data_modules.batching.group_set import GroupSet
from data_modules.batching.samplers import (
    BatchIndex,
    Draw,
    EpochSampler,
    ResumableLoader,
    outlive_signal,
    process_rank,
)
from data_modules.batching.sets import QASet
from data_modules.encoding.tokenizers import load_tokenizer
from data_modules.sources import split_labels
from storage.errors import DataError
from storage.files import file_digest

MAIN = "main"
"""The name of a set whose metric keys carry no set name."""


class EvalSet(NamedTuple):
    """A named set to evaluate on, in the order of its data loader."""

    name: str
    data: Any
    """A QASet, GroupSet, PairSet or ChoiceSet."""


@dataclass
class TrainSet(Dataset):
    """Groups and questions to train on together."""

    groups: GroupSet | None = None
    qa: QASet | None = None

    def __getitem__(self, index: BatchIndex) -> TrainBatch:
        groups = self.groups[index.groups] if self.groups and index.groups else None
        return TrainBatch(groups, self.qa[index.qa] if self.qa and index.qa else None)


class TextDataModule(pl.LightningDataModule):
    """The base of all DataModules. A subclass makes sets out of its sources and orders the training batches.

    Args:
        tokenizer: Hub name, folder, or `stories`; linked from the backbone.
        architecture: Row of the table of backbones; linked from the backbone.
        eval_batch_size: Rows in an evaluation batch.
        num_workers: Processes that build batches.
        seed: Of every order and draw; by default that of `seed_everything`.
    """

    kinds: tuple[str, ...]
    """What evaluation sets may hold: `qa` where `data.val_qa` names some."""
    encoding: Any
    """How text becomes rows of tokens: a dataclass."""

    def __init__(
        self,
        *,
        tokenizer: str,
        architecture: str,
        eval_batch_size: PositiveInt = 64,
        num_workers: NonNegativeInt = 0,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        # A small evaluation set may have fewer batches than there are processes; no process pads it.
        self.allow_zero_length_dataloader_with_multiple_devices = True
        self.architecture = architecture
        self.eval_batch_size, self.seed = eval_batch_size, seed or 0
        workers = {"num_workers": num_workers, "persistent_workers": num_workers > 0}
        self.loader_options: dict[str, Any] = {"batch_size": None, "pin_memory": True, **workers}
        self.loader_options["worker_init_fn"] = outlive_signal
        self.tokenizer = load_tokenizer(tokenizer, architecture)
        self.sources: list[str] = []
        """Every source that the run may read."""
        self.train_set: Any = None
        self.eval_sets: dict[str, list[EvalSet]] = {}

    def named(self, train: Sequence[str], *named: Mapping[str, str] | None) -> dict[str, dict[str, str]]:
        """Named sources of `val`, `test` and `predict`, by stage; these and `train` join `sources`."""
        by_stage = dict(zip(("val", "test", "predict"), (dict(each or {}) for each in named), strict=True))
        self.sources += [*train, *chain(*(each.values() for each in by_stage.values()))]
        return by_stage

    @abstractmethod
    def make_train_set(self) -> Dataset:
        """Read, or find prepared, what is trained on."""

    @abstractmethod
    def make_eval_sets(self, stage: str) -> list[EvalSet]:
        """The same for the sets of `val`, `test` or `predict`."""

    @abstractmethod
    def train_batches(self, train_set: Any) -> Draw:
        """What draws the training batches of an epoch. DataError where there is nothing to train on."""

    def setup(self, stage: str) -> None:
        """Make the sets that the stage (fit, validate, test, predict) needs, once in each process."""
        stage = str(getattr(stage, "value", stage))  # Lightning's names are an enumeration
        if stage == "fit" and self.train_set is None:
            self.train_set = self.make_train_set()
            rank, world_size = process_rank()
            draw = self.train_batches(self.train_set)
            self.train_sampler = EpochSampler(draw, seed=self.seed, rank=rank, world_size=world_size)
        name = stage if stage in ("test", "predict") else "val"
        if name not in self.eval_sets:
            self.eval_sets[name] = self.make_eval_sets(name)
        if stage != "fit" and not self.eval_sets[name]:
            options = ", ".join(f"data.{name}_{kind}" for kind in self.kinds)
            raise DataError(f"{options}: name a set to {stage}")

    def train_dataloader(self) -> DataLoader:
        """The batches of this process."""
        return ResumableLoader(self.train_set, sampler=self.train_sampler, **self.loader_options)

    def eval_loaders(self, stage: str) -> list[DataLoader]:
        """A loader for every set of `eval_sets[stage]`, with this process's share of its batches. DataError
        where no set has a batch for each process: Lightning leaves out the whole evaluation on one without
        any, and the others wait for its sums."""
        rank, world_size = process_rank()
        loaders, most = [], 0
        for _, data in self.eval_sets[stage]:
            size = self.eval_batch_size
            while len(batches := data.batches(size)) < world_size and size > 1:
                size //= 2
            most = max(most, len(batches))
            loaders.append(DataLoader(data, sampler=batches[rank::world_size], **self.loader_options))
        if loaders and most < world_size:
            raise DataError(f"trainer.devices: no set to {stage} has batches for {world_size} processes")
        return loaders

    val_dataloader = partialmethod(eval_loaders, "val")
    test_dataloader = partialmethod(eval_loaders, "test")
    predict_dataloader = partialmethod(eval_loaders, "predict")

    def fingerprints(self) -> dict[str, str]:
        """SHA-256 of every local file that the run reads, by its source; other sources by name alone."""
        read = dict.fromkeys(part for source in self.sources for part in split_labels(source) if part)
        return {source: file_digest(Path(source)) if Path(source).is_file() else "" for source in read}
