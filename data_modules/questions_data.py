"""The DataModule of questions about a text, in any of their variants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from data_modules.batching import processes
from data_modules.batching.data_module import TextDataModule, at_least, by_stage, refuse_repeated
from data_modules.batching.eval_sets import EvalSet, variant_name
from data_modules.batching.samplers import TrainSampler
from data_modules.encoding.data_cache import DataCache, NotPreparedError
from data_modules.encoding.pairs import PairSet
from data_modules.encoding.set_maker import SetMaker
from data_modules.encoding.sets import QASet, TrainSet
from data_modules.encoding.windows import Encoding
from data_modules.interventions.variants import Interventions
from data_modules.schema import DataError, Variant


class QuestionsDataModule(TextDataModule):
    """Questions, read, tokenised and batched.

    A source is a file (its format is read from its content), `hub:NAME:SPLIT`, or `stories:SPLIT` for the
    embedded data. Evaluation sets are named; the metric keys of the set called `main` carry no set name.

    Args:
        tokenizer: Hub name, folder, or `stories`; linked from the backbone.
        architecture: Row of the table of backbones; linked from the backbone.
        train_qa: Questions to train on.
        val_qa: Questions to validate on, by name.
        test_qa: Questions to test on, by name.
        predict_qa: Questions to write answers to, by name.
        encoding: How text becomes rows of tokens.
        interventions: Deletions of the rationale to train on and to watch; by default there are none.
        qa_batch_size: Question windows in a training batch.
        qa_batch_tokens: Instead, as many windows of similar length as fit into so many tokens, padding
            counted; 0 takes `qa_batch_size`.
        eval_batch_size: Rows in an evaluation batch.
        limit_train_qa: Use the first N questions only; 0 uses all.
        limit_val_qa: Likewise for validation and test.
        skip_bad: Skip and count bad records instead of stopping at the first.
        cache: Folder of perturbed and tokenised data, made once a machine and found again by later runs. It
            may be deleted at any time. Empty: every process prepares all data in memory.
        num_workers: Processes that build batches.
        seed: Of every order and draw; by default that of `seed_everything`.
    """

    kinds: tuple[str, ...] = ("qa",)

    def __init__(
        self,
        *,
        tokenizer: str,
        architecture: str,
        train_qa: str = "",
        val_qa: dict[str, str] | None = None,
        test_qa: dict[str, str] | None = None,
        predict_qa: dict[str, str] | None = None,
        encoding: Encoding = Encoding(),  # noqa: B008  never mutated
        interventions: Interventions = Interventions(),  # noqa: B008  never mutated
        qa_batch_size: int = 16,
        qa_batch_tokens: int = 0,
        eval_batch_size: int = 64,
        limit_train_qa: int = 0,
        limit_val_qa: int = 0,
        skip_bad: bool = False,
        cache: str = "cache/data",
        num_workers: int = 0,
        seed: int | None = None,
    ) -> None:
        super().__init__(
            tokenizer=tokenizer,
            architecture=architecture,
            eval_batch_size=eval_batch_size,
            num_workers=num_workers,
            seed=seed,
        )
        at_least(0, limit_train_qa=limit_train_qa, limit_val_qa=limit_val_qa)
        self.train_qa, self.qa_sources = train_qa, by_stage(val_qa, test_qa, predict_qa)
        self._encoding, self.interventions = encoding.resolved(architecture), interventions
        self.qa_batch_size, self.qa_batch_tokens = qa_batch_size, qa_batch_tokens
        self.limit_train_qa, self.limit_val_qa = limit_train_qa, limit_val_qa
        self.skip_bad, self.cache = skip_bad, cache
        self._failed: DataError | None = None

    @property
    def encoding(self) -> Encoding:
        """How text becomes rows of tokens."""
        return self._encoding

    def sources(self) -> Iterable[str]:
        """Every source that the run may read."""
        yield self.train_qa
        for named in self.qa_sources.values():
            yield from named.values()

    def prepare_data(self) -> None:
        """Put into the cache what it lacks for this run; Lightning asks one process of each machine."""
        if not self.cache:
            return
        assert self.trainer is not None
        stage = str(self.trainer.state.fn.value)
        self._maker = self._new_maker(makes=True)
        try:
            if stage == "fit":
                self.make_train_set()
            self.make_eval_sets("val" if stage in ("fit", "validate") else stage)
        except NotPreparedError:
            return  # told by the cache; every process makes it in memory
        except DataError as error:
            self._failed = error  # the other processes wait for this one: all fail together in `setup`

    def setup(self, stage: str) -> None:
        """Open what the stage needs, or read and tokenise it in memory; done once per process."""
        if self._failed is not None:
            raise self._failed
        self._maker = self._new_maker(makes=False)
        super().setup(stage)
        processes.refuse_different(self._maker.generated)

    def _new_maker(self, *, makes: bool) -> SetMaker:
        return SetMaker(
            tokenizer=self.tokenizer,
            encoding=self.encoding,
            interventions=self.interventions,
            skip_bad=self.skip_bad,
            data_cache=DataCache(self.cache, makes=makes) if self.cache else None,
            processes=processes.here()[1],
        )

    def make_train_set(self) -> TrainSet:
        """The questions in all variants to train on."""
        if not self.train_qa:
            return TrainSet(None, None)
        return TrainSet(
            None, self._maker.qa_set(self.train_qa, self.limit_train_qa, self.interventions.train)
        )

    def make_eval_sets(self, stage: str) -> list[EvalSet]:
        """The named sets, each in the variants to watch, and the pairs whose embeddings are compared."""
        watched = [variant_name(name, v) for name in self.qa_sources[stage] for v in self.interventions.watch]
        refuse_repeated([*watched, *self.other_names(stage)], f"data.{stage}_qa")
        shift = [] if stage == "predict" else self.interventions.shift  # nothing to write about pairs
        return [
            evaluated
            for name, source in self.qa_sources[stage].items()
            for evaluated in self._qa_sets(name, source, shift)
        ]

    def other_names(self, stage: str) -> Iterable[str]:
        """Names of other sets that predictions of the stage are written for."""
        return ()

    def _qa_sets(self, name: str, source: str, shift: Sequence[Variant]) -> list[EvalSet]:
        """A set of questions, or one for each variant of them, and the pairs whose embeddings are watched."""
        limit, watch = self.limit_val_qa, self.interventions.watch
        sets: list[QASet | PairSet] = [*self._maker.qa_sets(source, limit, watch)]
        names = [variant_name(name, v) for v in watch] + [name for _ in shift]
        sets += [self._maker.pair_set(source, limit, v) for v in shift]
        return [EvalSet(*named) for named in zip(names, sets, strict=True)]

    def train_order(self, train_set: TrainSet) -> Any:
        """Batches of questions of similar length, and of groups."""
        groups, qa = train_set.groups, train_set.qa
        rank, world_size = processes.here()
        return TrainSampler(
            group_classes=[i.advice_class for i in groups.ids] if groups is not None else [],
            qa_lengths=qa.lengths if qa is not None else [],
            groups_per_class=getattr(self, "groups_per_class", 1),
            qa_batch_size=self.qa_batch_size,
            qa_batch_tokens=self.qa_batch_tokens,
            pad_to_multiple_of=self.encoding.pad_to_multiple_of,
            qa_every=getattr(self, "qa_every", 1),
            seed=self.seed,
            rank=rank,
            world_size=world_size,
        )
