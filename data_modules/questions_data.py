"""The DataModule of questions about a text, in any of their variants."""

import json
import logging
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import datasets
import numpy as np
from filelock import FileLock
from jsonargparse.typing import NonNegativeInt, PositiveInt

from interventune.storage.documents import DataError, atomic, file_digest, source_digest
from interventune.storage.finished_work import work_key
from interventune.storage.provenance import logged_warnings

from . import tables
from .batching.data_module import (
    MAIN,
    BatchIndex,
    Draw,
    EvalSet,
    Sources,
    TextDataModule,
    TrainSet,
    length_bucketed,
    process_rank,
)
from .batching.pair_set import PairSet
from .batching.sets import HIDDEN, NO_ANSWER, QASet, column, encode_questions
from .encoding.tokenizers import tokenizer_id
from .encoding.windows import Encoding, chunks
from .schema.questions import QAExample, Texts, Variant
from .sources import read_questions

logger = logging.getLogger(__package__)


@dataclass(kw_only=True)
class Interventions:
    """Interventions: variants of stories to train and evaluate on (see `interventune data perturb
    --help`).

    Args:
        train: Variants to train on together: [os] is original training, [os, ts, ts_r] the paper's
            intervention-based training (HotpotQA: [os, os_r]).
        watch: Variants on which every evaluation set is measured.
        shift: Variants whose embeddings evaluation compares with those of the original story.
    """

    train: list[Variant] = field(default_factory=lambda: ["os"])
    watch: list[Variant] = field(default_factory=lambda: ["os"])
    shift: list[Variant] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.train or not self.watch:
            raise DataError(
                "interventions: train and watch need one variant at least, such as [os]"
            )


class QuestionsDataModule(TextDataModule):
    """Data: questions about texts.

    A source is a file (the format is detected from its content), `hub:NAME:SPLIT`, or
    `stories:SPLIT` for built-in data. Evaluation sets have names; the metrics of the set called
    `main` are logged without it.

    Args:
        train_qa: Questions to train on: a source, such as train.json, hub:NAME:SPLIT or
            stories:train.
        val_qa: Questions to validate on, as {name: source}; --data.val_qa.main=dev.json sets one.
        test_qa: Questions to test on, as {name: source}.
        predict_qa: Questions whose answers to write, as {name: source}.
        encoding: How text becomes rows of tokens.
        interventions: Variants of stories to train and evaluate on (default: the originals).
        qa_batch_size: Windows (long stories have several) in a training batch.
        qa_batches: How training batches are drawn: windows of `similar_length`, which need little
            padding, or at `random`, as in the authors' code. Batches of similar length differ more
            in their share of unknown.
        limit_train_qa: Train on the first N questions only; 0: all.
        limit_val_qa: The same for validation and test.
        cache: Folder of prepared data, shared by runs; it may be deleted. Empty: prepare data in
            memory.
        **options: see TextDataModule.
    """

    kinds: Texts = ("qa",)

    def __init__(
        self,
        *,
        train_qa: str = "",
        val_qa: Sources = None,
        test_qa: Sources = None,
        predict_qa: Sources = None,
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
        self.train_qa = train_qa
        self.qa_sources = self.named([train_qa], val_qa, test_qa, predict_qa)
        self.encoding = encoding.resolved(self.architecture)
        self.interventions = interventions
        self.qa_batch_size = qa_batch_size
        self.qa_batches = qa_batches
        self.limit_train_qa = limit_train_qa
        self.limit_val_qa = limit_val_qa
        self.cache = cache
        self.windows = (
            f"encoding.max_length={encoding.max_length}, encoding.doc_stride={encoding.doc_stride}"
        )

    def make_train_set(self) -> tuple[TrainSet, Draw | None]:
        """Return the questions in all training variants, one variant after the other."""
        if not self.train_qa:
            return TrainSet(), None
        variants = self.interventions.train
        table_of = self.question_tables(self.train_qa, self.limit_train_qa, variants)
        table = datasets.concatenate_datasets([table_of[variant] for variant in variants])
        qa = QASet(table, self.tokenizer, self.encoding)
        answerable_N = (np.array(qa.column("kind")) != "unknown")[qa.question_N]
        hidden_N = answerable_N & (column(table.data, "answer_type") == NO_ANSWER)
        what = "its training windows do not show the answer and are labelled unknown"
        self.warn_of_many(self.train_qa, np.mean(hidden_N), f"{what} ({self.windows})", limit=0.5)
        return TrainSet(None, qa), partial(
            question_batches,
            lengths_N=qa.lengths,
            batch_size=self.qa_batch_size,
            order=self.qa_batches,
            world_size=process_rank()[1],
        )

    def make_eval_sets(self, stage: str) -> list[EvalSet]:
        """Return the sets in the watched variants, and the pairs whose embeddings are compared."""
        predicts = stage == "predict"
        watch = self.interventions.watch
        shift = [] if predicts else self.interventions.shift  # pairs have no predictions to write
        limit = 0 if predicts else self.limit_val_qa
        sets = []
        for name, source in self.qa_sources[stage].items():
            variants: list[Variant] = [*watch, "os", *shift] if shift else watch
            table_of = self.question_tables(source, limit, variants, hidden=predicts)
            qa = {v: QASet(table, self.tokenizer, self.encoding) for v, table in table_of.items()}
            # All variants may abstain, or none: else their numbers are not comparable.
            may_abstain = any(qa[variant].may_abstain for variant in watch)
            for variant in watch:
                qa[variant].may_abstain = may_abstain
                of_variant = variant if name == MAIN else f"{name}/{variant}"
                sets.append(EvalSet(name if variant == "os" else of_variant, qa[variant]))
            sets += [EvalSet(name, PairSet(qa["os"], qa[variant], variant)) for variant in shift]
        return sets

    def question_tables(
        self, source: str, limit: int, variants: Sequence[Variant], *, hidden: bool = False
    ) -> dict[Variant, datasets.Dataset]:
        """Return variants of the first `limit` questions of a source (0: all), from the cache.

        Its keys are digests of all inputs. One process per machine makes a table while the others
        wait; the source is read once, and only if a table is missing, but the warnings of reading
        it are always logged. Without `hidden`, questions
        whose answers no window shows are left out, with a warning if they are many. DataError if no
        question is left.
        """
        from .interventions.variants import made_of, report_rejected

        warnings = dict[str, None]()

        @cache
        def originals() -> list[QAExample]:
            with logged_warnings() as texts:
                examples = list(islice(read_questions(source), limit or None))
            warnings.update(texts)
            return examples

        def encoded(variant: Variant) -> datasets.Dataset:
            examples, rejected = made_of(originals(), variant)
            how = self.tokenizer, self.encoding, rejected
            table = encode_questions(examples, *how, hidden=hidden)
            counts = json.loads(table.info.description)
            table.info.description = json.dumps([counts, [*warnings]])
            return table

        table_of = {}
        stored = dict[str, None]()
        inputs = [source, limit, hidden, asdict(self.encoding)]
        if self.cache:
            inputs += [source_state(source), tokenizer_id(self.tokenizer), code_digest()]
        for variant in dict.fromkeys(variants):
            if self.cache:
                path = Path(self.cache, work_key(inputs=inputs, variant=variant)[:32])
                with FileLock(path.with_suffix(".lock")):
                    if not path.exists():
                        datasets.disable_progress_bars()
                        with atomic(path) as part:
                            encoded(variant).save_to_disk(part, num_shards=1)
                table = datasets.load_from_disk(path).with_format("arrow")
            else:
                table = encoded(variant)
            left = len(table.data["id"].drop_null())  # first windows have ids
            counts, texts = json.loads(table.info.description)
            stored |= dict.fromkeys(texts)
            rejected = Counter(counts)
            report_rejected(left, rejected, variant, source)
            share = rejected[HIDDEN] / (left + rejected.total())
            what = f"its questions are left out: {HIDDEN} ({self.windows})"
            self.warn_of_many(source, share, what, limit=0.03)
            table_of[variant] = table
        for text in () if warnings else stored:
            logger.warning(text)
        return table_of


def question_batches(
    rng: np.random.Generator, lengths_N: np.ndarray, batch_size: int, world_size: int, order: str
) -> list[BatchIndex]:
    """Draw an epoch of question windows, each once, in batches of similar length or at random."""
    if order == "random":
        batches = chunks(rng.permutation(len(lengths_N)).tolist(), batch_size)
    else:
        batches = length_bucketed(lengths_N, batch_size, rng, world_size)
    return [BatchIndex(qa=tuple(batch)) for batch in batches]


@cache
def code_digest() -> str:
    """Digest of this package's code and library versions: a changed reader remakes the tables."""
    libraries = map(version, ("tokenizers", "transformers", "sentencex", "datasets"))
    return " ".join([folder_digest(Path(__file__).parent), *libraries])


def source_state(source: str) -> str:
    """Return what distinguishes two states of a source.

    This is the content of a file, or of all files of a folder; for a dataset of the Hub, the
    library's fingerprint; nothing for embedded data, whose code is in every key.
    """
    if source.startswith("hub:"):
        return getattr(tables.table_rows(source.removeprefix("hub:")), "_fingerprint", "")
    path, _ = tables.folder_and_split(source)
    return folder_digest(path) if os.path.isdir(path) else source_digest(path)


def folder_digest(folder: Path) -> str:
    """SHA-256 of the files of a folder with their names, except compiled code."""
    digests = {
        str(path.relative_to(folder)): file_digest(path)
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    return work_key(digests=digests)
