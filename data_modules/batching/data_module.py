"""The base of the three DataModules: named evaluation sets, loaders, resuming within an epoch.

Every order is a pure function of (seed, epoch, number of ranks), equal on all ranks; rank r of W
takes batches r, r + W, ...
"""

import logging
import signal
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partialmethod
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch.distributed as dist
from jsonargparse.typing import NonNegativeInt, PositiveInt
from torch.utils.data import DataLoader

from interventune.data_modules.encoding.tokenizers import load_tokenizer
from interventune.data_modules.encoding.windows import Batches, chunks
from interventune.data_modules.sources import split_labels
from interventune.storage.documents import DataError, Values, source_digest

from .candidates import GroupBatch, GroupSet
from .sets import QABatch, QASet

MAIN = "main"
"""The set whose metric keys omit the set name."""

POOL = 50
"""Number of batches in a pool that is sorted by length."""

Sources = dict[str, str] | None
"""Named sources of evaluation sets."""

Draw = Callable[[np.random.Generator], list[Any]]
"""Draws all batches of an epoch, as indices, from a random generator; their number is constant."""


class TrainBatch(NamedTuple):
    """The input of one optimisation step; each part may be absent."""

    groups: GroupBatch | None = None
    qa: QABatch | None = None


class BatchIndex(NamedTuple):
    """Indices of the groups and question windows of one training batch."""

    groups: tuple[int, ...] = ()
    qa: tuple[int, ...] = ()


class EvalSet(NamedTuple):
    """A named set to evaluate on, in the order of its data loader."""

    name: str
    data: Any
    """A QASet, GroupSet, PairSet or ChoiceSet."""


@dataclass
class TrainSet:
    """Groups and questions to train on together."""

    groups: GroupSet | None = None
    qa: QASet | None = None

    def __getitem__(self, index: BatchIndex) -> TrainBatch:
        groups = self.groups[index.groups] if self.groups and index.groups else None
        return TrainBatch(groups, self.qa[index.qa] if self.qa and index.qa else None)

    def items_of(self, index: BatchIndex) -> Counter[str]:
        """Return how many items a batch has, by name.

        Items are question windows (`questions`) and their tokens (see `QASet.tokens_N`), groups
        (`groups`), and groups of each class of advice.
        """
        counts = Counter(questions=len(index.qa), groups=len(index.groups))
        if self.qa:
            counts.update(
                {name: int(of_N[[*index.qa]].sum()) for name, of_N in self.qa.tokens_N.items()}
            )
        if self.groups:
            counts.update(self.groups.groups[i].advice_class for i in index.groups)
        return counts


class TextDataModule(pl.LightningDataModule):
    """Data. The base of all DataModules; subclasses make sets from their sources and order training
    batches.

    Args:
        tokenizer: Hub name, folder, or `stories`; set by the backbone.
        architecture: Name of the architecture; set by the backbone.
        eval_batch_size: Rows in an evaluation batch.
        num_workers: Processes that build batches.
        seed: Seed of every order and sample (default: `seed_everything`).
    """

    kinds: tuple[str, ...]
    """Kinds of evaluation sets: `qa` for those in `data.val_qa`, for example."""
    encoding: Any
    """Options by which text becomes rows of tokens: a dataclass."""

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
        # A small evaluation set may have fewer batches than there are processes, and is not padded
        # for it.
        self.allow_zero_length_dataloader_with_multiple_devices = True
        self.architecture = architecture
        self.eval_batch_size = eval_batch_size
        self.seed = seed or 0
        self.loader_options: Values = {
            "batch_size": None,
            "pin_memory": True,
            "num_workers": num_workers,
            "worker_init_fn": outlive_signal,
            "persistent_workers": num_workers > 0,
        }
        self.tokenizer = load_tokenizer(tokenizer, architecture)
        self.sources: list[str] = []
        """Every source that the run may read."""
        self.warned = set[str]()
        self.train_set: Any = None
        self.eval_sets: dict[str, list[EvalSet]] = {}

    def named(self, train: Sequence[str], *named: Sources) -> dict[str, dict[str, str]]:
        """Return named sources of `val`, `test` and `predict`, by stage; add all to `sources`."""
        of_stage = [sources or {} for sources in named]
        for name in chain(*of_stage):  # names files and metrics
            if "/" in name or not name.isprintable():
                raise DataError(f"data: a set is called {name!r}; no slash, no line break")
        self.sources += [*train, *chain(*map(dict.values, of_stage))]
        return dict(zip(("val", "test", "predict"), of_stage, strict=True))

    @abstractmethod
    def make_train_set(self) -> tuple[Any, Draw | None]:
        """Read the training set, or find it prepared, with its batch order; None without any."""

    @abstractmethod
    def make_eval_sets(self, stage: str) -> list[EvalSet]:
        """Do the same for the sets of `val`, `test` or `predict`."""

    def warn_of_many(self, source: str, share: Any, what: str, limit: float) -> None:
        """Warn, once of each kind, if a share of a source is above a limit."""
        if share > limit and what not in self.warned:
            self.warned.add(what)
            logging.getLogger(__name__).warning(f"{source}: {100 * share:.0f} % of {what}")

    def setup(self, stage: str) -> None:
        """Make the sets for the stage (fit, validate, test, predict), once in each process."""
        stage = str(getattr(stage, "value", stage))  # Lightning's names are an enum
        if stage == "fit" and self.train_set is None:
            self.train_set, draw = self.make_train_set()
            if draw is None:
                options = " or ".join(f"data.train_{kind}" for kind in self.kinds)
                raise DataError(f"nothing to train on; set {options}")
            self.train_sampler = EpochSampler(draw, self.seed, *process_rank())
        name = stage if stage in ("test", "predict") else "val"
        if name not in self.eval_sets:
            self.eval_sets[name] = sets = self.make_eval_sets(name)
            # They name metrics and files of predictions.
            keys = [(x.name, name == "predict" or x.data.family) for x in sets]
            for (repeated, family), count in Counter(keys).items():
                if count > 1 and family != "shift":
                    raise DataError(
                        f"data.{name}_qa: several sets, or their variants, are called {repeated!r}"
                    )
        if stage != "fit" and not self.eval_sets[name]:
            options = " or ".join(f"data.{name}_{kind}.main" for kind in self.kinds)
            raise DataError(f"nothing to {stage}; set {options}")

    def train_dataloader(self) -> DataLoader:
        """Return the batches of this process."""
        return ResumableLoader(self.train_set, sampler=self.train_sampler, **self.loader_options)

    def eval_loaders(self, stage: str) -> list[DataLoader]:
        """Return a loader for every set of `eval_sets[stage]`, with this process's batches.

        DataError if no set has a batch for each process: on one without any, Lightning skips the
        evaluation, and the others wait for its sums.
        """
        rank, world_size = process_rank()
        loaders = []
        most = 0
        for _, data in self.eval_sets[stage]:
            size = self.eval_batch_size
            while len(batches := data.batches(size)) < world_size and size > 1:
                size //= 2
            most = max(most, len(batches))
            loaders.append(
                DataLoader(data, sampler=batches[rank::world_size], **self.loader_options)
            )
        if loaders and most < world_size:
            raise DataError(
                f"trainer.devices: no set to {stage} has batches for {world_size} processes"
            )
        return loaders

    val_dataloader = partialmethod(eval_loaders, "val")
    test_dataloader = partialmethod(eval_loaders, "test")
    predict_dataloader = partialmethod(eval_loaders, "predict")

    def fingerprints(self) -> dict[str, str]:
        """Return the SHA-256 of every local file that the run reads; "" for other sources."""
        return {
            part: source_digest(part) for part in chain(*map(split_labels, self.sources)) if part
        }


def length_bucketed(
    lengths_N: np.ndarray, batch_size: int, rng: np.random.Generator, world_size: int = 1
) -> Batches:
    """Make batches of similar length: shuffle, sort within pools of batches, cut, shuffle again.
    The `world_size` batches that processes take at the same time are similar too. Samples that do
    not suffice for all processes are drawn at random, and come last.
    """
    order_N = rng.permutation(len(lengths_N))
    together = batch_size * world_size
    spare_N, order_N = np.split(order_N, [-(-len(order_N) // batch_size) % world_size * batch_size])
    steps = []
    for pool in chunks(order_N.tolist(), together * POOL):
        steps += chunks(sorted(pool, key=lengths_N.__getitem__), together)
    ordered = [*(steps[i] for i in rng.permutation(len(steps))), spare_N.tolist()]
    return [batch for step in ordered for batch in chunks(step, batch_size)]


@dataclass
class EpochSampler:
    """The batches of one process, epoch by epoch; `start` skips the first batches of an epoch.
    `drawn` holds this epoch's batches of all processes.

    DataError if there are fewer batches than processes.
    """

    draw: Draw
    seed: int
    rank: int
    world_size: int
    epoch: int = 0
    start: int = 0

    def __post_init__(self) -> None:
        total = len(self.draw(np.random.default_rng([self.seed, 0])))
        self.batches = total // self.world_size
        if not self.batches:
            raise DataError(
                f"an epoch has {total} batches, too few for {self.world_size} processes"
            )

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch; Lightning calls this at the start of each."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Return the number of batches of a full epoch, regardless of `start`."""
        return self.batches

    def __iter__(self) -> Iterator[Any]:
        self.drawn = self.draw(np.random.default_rng([self.seed, self.epoch]))
        first = self.rank + self.start * self.world_size
        end = self.batches * self.world_size
        yield from self.drawn[first : end : self.world_size]


class ResumableLoader(DataLoader):
    """A DataLoader over an `EpochSampler` that counts the batches taken by its reader.

    Those that workers hold ready do not count. Lightning stores the state in its checkpoints.

    An epoch begins when its first batch is requested: before, the sampler does not know which epoch
    it is.
    """

    sampler: EpochSampler
    consumed = 0
    _start = 0

    def state_dict(self) -> dict[str, int]:
        """Return the number of batches of this epoch that were taken."""
        return {"consumed": self.consumed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Let the next epoch begin after as many batches, unless that was all of them."""
        self._start = self.consumed = state["consumed"]

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # only next() is asked of it
        start = self._start
        self._start = 0
        self.consumed = self.sampler.start = start if start < self.sampler.batches else 0
        for batch in super().__iter__():
            self.consumed += 1
            yield batch


def outlive_signal(worker: int) -> None:
    """Let a worker of a DataLoader ignore a cluster's or Ctrl-C's signal to all processes.

    The main process finishes its step first, and ends its workers, by a second SIGTERM if
    necessary.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, signal.SIG_DFL))


def process_rank() -> tuple[int, int]:
    """Return the rank of this process and the number of processes; (0, 1) for a single one."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
