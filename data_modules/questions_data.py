"""The DataModule of questions about a text, in any of their variants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from itertools import islice
from typing import Any, Literal

import datasets
import pyarrow as pa
from jsonargparse.typing import NonNegativeInt, PositiveInt

from data_modules.batching.data_module import MAIN, EvalSet, TextDataModule, TrainSet
from data_modules.batching.samplers import Draw, process_rank, question_batches
from data_modules.batching.sets import PairSet, QASet
from data_modules.encoding.tables import Tables
from data_modules.encoding.windows import Encoding
from data_modules.schema import QAExample, Variant
from data_modules.sources import read_questions
from storage.errors import DataError


@dataclass(kw_only=True)
class Interventions:
    """Deletions of the rationale, for training and for watching.

    Args:
        train: Variants that are trained on together: [os] is original training, [os, ts, ts_r] the paper's
            intervention-based training (HotpotQA: [os, os_r]).
        watch: Variants to evaluate every set of questions on.
        shift: Variants whose embeddings are compared with those of the original story during evaluation.
    """

    train: list[Variant] = field(default_factory=lambda: ["os"])
    watch: list[Variant] = field(default_factory=lambda: ["os"])
    shift: list[Variant] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.train or not self.watch:
            raise DataError("interventions: train and watch need one variant at least, such as [os]")


class QuestionsDataModule(TextDataModule):
    """Questions, read, tokenised and batched.

    A source is a file (its format is read from its content), `hub:NAME:SPLIT`, or `stories:SPLIT` for the
    embedded data. Evaluation sets are named; the metric keys of the set called `main` carry no set name.

    Args:
        train_qa: Questions to train on.
        val_qa: Questions to validate on, by name.
        test_qa: Questions to test on, by name.
        predict_qa: Questions to write answers to, by name.
        encoding: How text becomes rows of tokens.
        interventions: Deletions of the rationale to train on and to watch; by default there are none.
        qa_batch_size: Question windows in a training batch.
        qa_batches: What a training batch is drawn from: windows of `similar_length`, which pad little, or all
            at `random`, as the papers do. Short stories are more often without an answer, so that batches of
            one length differ more in their share of unknown.
        limit_train_qa: Use the first N questions only; 0 uses all.
        limit_val_qa: Likewise for validation and test; predictions are of all.
        cache: Folder of perturbed and tokenised data, made once a machine and found again by later runs. It
            may be deleted at any time. Empty: every process prepares all data in memory.
        **options: see TextDataModule.
    """

    kinds: tuple[str, ...] = ("qa",)
    group_sources: Mapping[str, Mapping[str, str]] = {}
    """Named sets of groups beside the questions, by stage; GroupsDataModule has some."""

    def __init__(
        self,
        *,
        train_qa: str = "",
        val_qa: dict[str, str] | None = None,
        test_qa: dict[str, str] | None = None,
        predict_qa: dict[str, str] | None = None,
        encoding: Encoding = Encoding(),  # noqa: B008  never mutated
        interventions: Interventions = Interventions(),  # noqa: B008  never mutated
        qa_batch_size: PositiveInt = 16,
        qa_batches: Literal["similar_length", "random"] = "similar_length",
        limit_train_qa: NonNegativeInt = 0,
        limit_val_qa: NonNegativeInt = 0,
        cache: str = "cache/data",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.train_qa, self.qa_sources = train_qa, self.named([train_qa], val_qa, test_qa, predict_qa)
        self.encoding, self.interventions = encoding.resolved(self.architecture), interventions
        self.qa_batch_size = qa_batch_size
        self.qa_batches: Literal["similar_length", "random"] = qa_batches
        self.limit_train_qa, self.limit_val_qa = limit_train_qa, limit_val_qa
        self.tables = Tables(cache, self.tokenizer)

    encoding: Encoding

    def make_train_set(self) -> TrainSet:
        """The questions in all variants to train on, one variant after the other."""
        if not self.train_qa:
            return TrainSet(None, None)
        found = self.question_tables(self.train_qa, self.limit_train_qa, self.interventions.train)
        tables = [found[variant] for variant in self.interventions.train]
        table = datasets.concatenate_datasets(tables) if len(tables) > 1 else tables[0]
        return TrainSet(None, QASet(table, self.tokenizer, self.encoding, may_abstain=False))

    def make_eval_sets(self, stage: str) -> list[EvalSet]:
        """The named sets, each in the variants to watch, and the pairs whose embeddings are compared."""
        watch, limit = self.interventions.watch, 0 if stage == "predict" else self.limit_val_qa
        shift = self.interventions.shift if stage != "predict" else []  # nothing to write about pairs
        sets: list[EvalSet] = []
        for name, source in self.qa_sources[stage].items():
            tables = self.question_tables(source, limit, [*watch, *(["os", *shift] if shift else [])])
            made = {v: QASet(table, self.tokenizer, self.encoding) for v, table in tables.items()}
            abstain = any(made[variant].may_abstain for variant in watch)  # or numbers would not compare
            for variant in watch:
                made[variant].may_abstain = abstain
                of_variant = variant if name == MAIN else f"{name}/{variant}"
                sets.append(EvalSet(name if variant == "os" else of_variant, made[variant]))
            sets += [EvalSet(name, PairSet(made["os"], made[variant], variant)) for variant in shift]
        names = [found.name for found in sets if not isinstance(found.data, PairSet)]
        names += self.group_sources.get(stage, ()) if stage == "predict" else ()
        if twice := [name for name in names if names.count(name) > 1]:  # in metric keys, files of predictions
            raise DataError(f"data.{stage}_qa: several sets, or their variants, are called {twice[0]!r}")
        return sets

    def question_tables(
        self, source: str, limit: int, variants: Sequence[Variant]
    ) -> dict[Variant, datasets.Dataset]:
        """Variants of the first `limit` questions of a source (0: of all). They are read once, and only if a
        table is missing. DataError where no question is left."""
        from data_modules.interventions.variants import report_rejected

        @cache
        def read() -> list[QAExample]:
            return list(islice(read_questions(source), limit or None))

        tables = {}
        for variant in dict.fromkeys(variants):
            options = {"limit": limit, "encoding": asdict(self.encoding), "variant": variant}
            encode = partial(encode_variant, variant, self.tokenizer, self.encoding)
            table = self.tables.get(source, options, encode, read)
            found = table.data.column("id")  # which first windows have
            reasons = table.data.column("rejected").drop_null().value_counts().to_pylist()
            rejected = Counter({reason["values"]: reason["counts"] for reason in reasons})
            report_rejected(len(found) - found.null_count, rejected, variant, source)
            tables[variant] = table
        return tables

    def train_batches(self, train_set: TrainSet) -> Draw:
        """Draws an epoch of question windows, each once."""
        if train_set.qa is None:
            raise DataError("data: name questions (train_qa) or groups (train_groups) to train on")
        return partial(
            question_batches,
            lengths_N=train_set.qa.lengths,
            batch_size=self.qa_batch_size,
            order=self.qa_batches,
            world_size=process_rank()[1],
        )


def encode_variant(
    variant: Variant, tokenizer: Any, encoding: Encoding, examples: Sequence[QAExample]
) -> pa.Table:
    """One variant of some questions as rows; the column `rejected` says why others have none."""
    from data_modules.encoding.questions import encode_questions
    from data_modules.interventions.variants import made_of

    made, rejected = made_of(examples, variant)
    reasons = pa.table({"rejected": pa.array([*rejected.elements()], pa.string())})
    table = encode_questions(made, tokenizer, encoding)
    return pa.concat_tables([table, reasons], promote_options="default")
