"""The LightningDataModule: questions and groups to train on, or multiple-choice questions, and any number of
sets to watch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
from torch.utils.data import DataLoader

from data_modules.batching import processes
from data_modules.batching.eval_sets import EvalSet, variant_name
from data_modules.batching.loaders import eval_loaders, whole_batches
from data_modules.batching.samplers import TrainSampler
from data_modules.choices.benchmarks import split_source
from data_modules.choices_data import Choices, choice_eval_sets, choice_order, choice_train_set
from data_modules.encoding.data_cache import DataCache, NotPreparedError, file_digest
from data_modules.encoding.pairs import PairSet
from data_modules.encoding.set_maker import SetMaker
from data_modules.encoding.sets import QASet, TrainSet
from data_modules.encoding.tokenizers import load_tokenizer, tokenizer_files
from data_modules.encoding.windows import Encoding
from data_modules.groups.advice import unadvised, with_unadvised
from data_modules.groups.planting import randomly_advised
from data_modules.groups.subsets import balanced_sample, spread
from data_modules.interventions.variants import Interventions
from data_modules.schema import Group, Variant
from data_modules.sources import read_groups
from storage.errors import DataError


class QADataModule(pl.LightningDataModule):
    """Questions, groups and multiple-choice questions, read, tokenised and batched.

    A source is a file (its format is read from its content), `hub:NAME:SPLIT`, or `stories:SPLIT` for the
    embedded data. Evaluation sets are named; the metric keys of the set called `main` carry no set name.

    Args:
        tokenizer: Hub name, folder, or `stories`; linked from the backbone.
        architecture: Row of the table of backbones; linked from the backbone.
        train_qa: Questions to train on.
        train_groups: Underspecified groups to train on.
        val_qa: Questions to validate on, by name.
        val_groups: Groups to validate on, by name.
        test_qa: Questions to test on, by name.
        test_groups: Groups to test on, by name.
        predict_qa: Questions to write answers to, by name.
        predict_groups: Groups to write predictions for, by name.
        train_choices: Multiple-choice questions to train on, instead of all others; a source is a file, with
            its labels as FILE+LABELS where they stand apart, `hub:NAME:SPLIT`, or `stories:choices_train`.
        val_choices: Multiple-choice questions to validate on, by name.
        test_choices: Multiple-choice questions to test on, by name.
        predict_choices: Multiple-choice questions to write choices for, by name.
        encoding: How text becomes rows of tokens.
        interventions: Deletions of the rationale to train on and to watch; by default there are none.
        choices: Options of multiple-choice questions.
        train_advice: `as_written`, `none`, or `random` (planting: advice of any class, or none).
        random_advice_share: With `random`: share of the groups that carry advice.
        random_advice_copies: With `random`: how often each distinct group appears.
        watch_unadvised: Evaluate every set of groups without its advice too, as class `none`.
        qa_batch_size: Question windows in a training batch.
        qa_batch_tokens: Instead, as many windows of similar length as fit into so many tokens, padding
            counted; 0 takes `qa_batch_size`.
        groups_per_class: Groups of each class in a training batch.
        qa_every: Every how many batches questions take part, when there are groups.
        eval_batch_size: Rows in an evaluation batch.
        limit_train_qa: Use the first N questions only; 0 uses all.
        limit_val_qa: Likewise for validation and test.
        limit_train_groups: Train on at most N groups, drawn evenly over the classes of advice; 0 uses all.
        limit_val_groups: Use at most N groups of each class, evenly spread; 0 uses all.
        skip_bad: Skip and count bad records instead of stopping at the first.
        cache: Folder of perturbed and tokenised data, made once a machine and found again by later runs. It
            may be deleted at any time. Empty: every process prepares all data in memory.
        num_workers: Processes that build batches.
        seed: Of every order and draw.
    """

    def __init__(
        self,
        *,
        tokenizer: str,
        architecture: str,
        train_qa: str = "",
        train_groups: list[str] | None = None,
        val_qa: dict[str, str] | None = None,
        val_groups: dict[str, str] | None = None,
        test_qa: dict[str, str] | None = None,
        test_groups: dict[str, str] | None = None,
        predict_qa: dict[str, str] | None = None,
        predict_groups: dict[str, str] | None = None,
        train_choices: list[str] | None = None,
        val_choices: dict[str, str] | None = None,
        test_choices: dict[str, str] | None = None,
        predict_choices: dict[str, str] | None = None,
        encoding: Encoding = Encoding(),  # noqa: B008  never mutated
        interventions: Interventions = Interventions(),  # noqa: B008  never mutated
        choices: Choices = Choices(),  # noqa: B008  never mutated
        train_advice: Literal["as_written", "none", "random"] = "as_written",
        random_advice_share: float = 0.5,
        random_advice_copies: int = 4,
        watch_unadvised: bool = True,
        qa_batch_size: int = 16,
        qa_batch_tokens: int = 0,
        groups_per_class: int = 3,
        qa_every: int = 1,
        eval_batch_size: int = 64,
        limit_train_qa: int = 0,
        limit_val_qa: int = 0,
        limit_train_groups: int = 0,
        limit_val_groups: int = 0,
        skip_bad: bool = False,
        cache: str = "cache/data",
        num_workers: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        for name, value, least in (
            ("eval_batch_size", eval_batch_size, 1),
            ("random_advice_copies", random_advice_copies, 1),
            ("limit_train_qa", limit_train_qa, 0),
            ("limit_val_qa", limit_val_qa, 0),
            ("limit_train_groups", limit_train_groups, 0),
            ("limit_val_groups", limit_val_groups, 0),
        ):
            if value < least:
                raise DataError(f"data.{name} must be at least {least}, got {value}")
        if not 0 <= random_advice_share <= 1:
            raise DataError(f"data.random_advice_share must lie in 0 .. 1, got {random_advice_share}")
        if train_choices and (train_qa or train_groups):
            raise DataError(
                "data.train_choices: multiple-choice questions are trained on alone; leave out data.train_qa "
                "and data.train_groups"
            )
        # A small evaluation set may have fewer batches than there are processes; no process pads it.
        self.allow_zero_length_dataloader_with_multiple_devices = True
        self.sources = {
            "val": (val_qa or {}, val_groups or {}),
            "test": (test_qa or {}, test_groups or {}),
            "predict": (predict_qa or {}, predict_groups or {}),
        }
        self.choice_sources = {
            "val": val_choices or {},
            "test": test_choices or {},
            "predict": predict_choices or {},
        }
        self.train_qa_source, self.train_group_sources = train_qa, train_groups or []
        self.train_choice_sources, self.choices = train_choices or [], choices
        self.architecture = architecture
        self.encoding, self.train_advice = encoding.resolved(architecture), train_advice
        self.interventions = interventions
        self.random_advice_share, self.random_advice_copies = random_advice_share, random_advice_copies
        self.watch_unadvised = watch_unadvised
        self.qa_batch_size, self.groups_per_class, self.qa_every = qa_batch_size, groups_per_class, qa_every
        self.qa_batch_tokens = qa_batch_tokens
        self.eval_batch_size, self.num_workers, self.seed = eval_batch_size, num_workers, seed
        self.limit_train_qa, self.limit_val_qa = limit_train_qa, limit_val_qa
        self.limit_train_groups = limit_train_groups
        self.limit_val_groups, self.skip_bad, self.cache = limit_val_groups, skip_bad, cache
        self.tokenizer = load_tokenizer(tokenizer, architecture)
        self.train_set: TrainSet | None = None
        self.eval_sets: dict[str, list[EvalSet]] = {}
        self._failed: DataError | None = None

    def prepare_data(self) -> None:
        """Put into the cache what it lacks for this run; Lightning asks one process of each machine."""
        if not self.cache:
            return
        assert self.trainer is not None
        stage = str(self.trainer.state.fn.value)
        maker = self._maker(makes=True)
        try:
            if stage == "fit":
                self._train_set(maker)
            self._eval_sets("val" if stage in ("fit", "validate") else stage, maker)
        except NotPreparedError:
            return  # told by the cache; every process makes it in memory
        except DataError as error:
            self._failed = error  # the other processes wait for this one: all fail together in `setup`

    def setup(self, stage: str) -> None:
        """Open what the stage needs, or read and tokenise it in memory; done once per process."""
        if self._failed is not None:
            raise self._failed
        maker = self._maker(makes=False)
        stage = str(getattr(stage, "value", stage))  # Lightning's names are an enumeration
        if stage == "fit" and self.train_set is None:
            self.train_set = self._train_set(maker)
            self.train_set.choices = choice_train_set(
                self.train_choice_sources, self.choices, self.tokenizer, self.architecture, self.seed
            )
        for name in ("val",) if stage in ("fit", "validate") else (stage,):
            if name not in self.eval_sets:
                self.eval_sets[name] = self._eval_sets(name, maker)
                # In memory, because to tokenise the largest of the benchmarks takes seconds.
                self.eval_sets[name] += choice_eval_sets(
                    self.choice_sources[name], self.choices, self.tokenizer, self.architecture
                )
            if stage != "fit" and not self.eval_sets[name]:
                raise DataError(
                    f"data.{name}_qa, data.{name}_groups, data.{name}_choices: name a set to {stage}"
                )
        processes.refuse_different(maker.generated)

    def _maker(self, *, makes: bool) -> SetMaker:
        return SetMaker(
            tokenizer=self.tokenizer,
            encoding=self.encoding,
            interventions=self.interventions,
            skip_bad=self.skip_bad,
            data_cache=DataCache(self.cache, makes=makes) if self.cache else None,
            processes=processes.here()[1],
        )

    def _train_set(self, maker: SetMaker) -> TrainSet:
        qa = groups = None
        if self.train_qa_source:
            qa = maker.qa_set(self.train_qa_source, self.limit_train_qa, self.interventions.train)
        if self.train_group_sources:
            options = {
                "limit": self.limit_train_groups,
                "advice": self.train_advice,
                "share": self.random_advice_share,
                "copies": self.random_advice_copies,
                "seed": self.seed,
            }
            groups = maker.group_set(self.train_group_sources, options, self._train_groups)
        return TrainSet(groups, qa)

    def _train_groups(self) -> list[Group]:
        """What it depends on stands in `options` above."""
        records = [
            group
            for source in self.train_group_sources
            for group in read_groups(source, skip_bad=self.skip_bad)
        ]
        if self.limit_train_groups:
            records = balanced_sample(records, self.limit_train_groups, self.seed)
        if self.train_advice == "none":
            return unadvised(records)
        if self.train_advice == "random":
            share, copies = self.random_advice_share, self.random_advice_copies
            return randomly_advised(records, share=share, copies=copies, seed=self.seed)
        return records

    def _qa_sets(self, name: str, source: str, shift: Sequence[Variant], maker: SetMaker) -> list[EvalSet]:
        """A set of questions, or one for each variant of them, and the pairs whose embeddings are watched."""
        limit, watch = self.limit_val_qa, self.interventions.watch
        sets: list[QASet | PairSet] = [*maker.qa_sets(source, limit, watch)]
        names = [variant_name(name, v) for v in watch] + [name for _ in shift]
        sets += [maker.pair_set(source, limit, v) for v in shift]
        return [EvalSet(*named) for named in zip(names, sets, strict=True)]

    def _val_groups(self, source: str) -> list[Group]:
        """What it depends on stands in `options` below."""
        groups = list(read_groups(source, skip_bad=self.skip_bad))
        if not groups:
            raise DataError(f"{source}: holds no groups")
        if self.limit_val_groups:
            groups = spread(groups, self.limit_val_groups)
        return with_unadvised(groups) if self.watch_unadvised else groups

    def _eval_sets(self, stage: str, maker: SetMaker) -> list[EvalSet]:
        qa, groups = self.sources[stage]
        self._check_names(stage, qa, groups)
        shift = [] if stage == "predict" else self.interventions.shift  # nothing to write about pairs
        sets = [made for name, source in qa.items() for made in self._qa_sets(name, source, shift, maker)]
        options = {"limit": self.limit_val_groups, "unadvised": self.watch_unadvised}
        for name, source in groups.items():
            made = maker.group_set([source], options, partial(self._val_groups, source))
            sets.append(EvalSet(name, made))
        return sets

    def _check_names(self, stage: str, qa: Mapping[str, str], groups: Mapping[str, str]) -> None:
        """DataError for two sets that would share their metric keys, or their file of predictions."""
        names = [variant_name(name, v) for name in qa for v in self.interventions.watch]
        names += [*groups, *self.choice_sources[stage]] if stage == "predict" else ()
        for name, count in Counter(names).items():
            if count > 1:
                raise DataError(
                    f"data.{stage}_qa: {count} sets would be called {name!r} (variants, predicted groups and "
                    "choices count too); rename one, or leave one out"
                )

    def train_dataloader(self) -> DataLoader:
        """Batches of `TrainBatch`."""
        assert self.train_set is not None
        groups, qa, choices = self.train_set.groups, self.train_set.qa, self.train_set.choices
        rank, world_size = processes.here()
        if choices is not None:
            order = choice_order(choices, self.choices, self.seed, rank, world_size)
            return whole_batches(self.train_set, order, self.num_workers)
        sampler = TrainSampler(
            group_classes=[i.advice_class for i in groups.ids] if groups is not None else [],
            qa_lengths=qa.lengths if qa is not None else [],
            groups_per_class=self.groups_per_class,
            qa_batch_size=self.qa_batch_size,
            qa_batch_tokens=self.qa_batch_tokens,
            pad_to_multiple_of=self.encoding.pad_to_multiple_of,
            qa_every=self.qa_every,
            seed=self.seed,
            rank=rank,
            world_size=world_size,
        )
        return whole_batches(self.train_set, sampler, self.num_workers)

    def val_dataloader(self) -> list[DataLoader]:
        """One loader for every set of `eval_sets["val"]`."""
        return eval_loaders("val", self.eval_sets["val"], self.eval_batch_size, self.num_workers)

    def test_dataloader(self) -> list[DataLoader]:
        """One loader for every set of `eval_sets["test"]`."""
        return eval_loaders("test", self.eval_sets["test"], self.eval_batch_size, self.num_workers)

    def predict_dataloader(self) -> list[DataLoader]:
        """One loader for every set of `eval_sets["predict"]`."""
        return eval_loaders("predict", self.eval_sets["predict"], self.eval_batch_size, self.num_workers)

    def fingerprints(self) -> dict[str, str]:
        """SHA-256 of every local file that the run reads, by its source; other sources by name alone."""
        watched = [source for sets in self.sources.values() for named in sets for source in named.values()]
        sources = [self.train_qa_source, *self.train_group_sources, *watched]
        chosen = [source for named in self.choice_sources.values() for source in named.values()]
        for source in (*self.train_choice_sources, *chosen):
            sources += split_source(source)
        read = [source for source in dict.fromkeys(sources) if source]
        return {source: file_digest(Path(source)) if Path(source).is_file() else "" for source in read}

    def checkpoint_extras(self) -> dict[str, Any]:
        """What a checkpoint must hold to be used without this DataModule: tokenizer files and encoding."""
        return {"tokenizer_files": tokenizer_files(self.tokenizer), "encoding": asdict(self.encoding)}
