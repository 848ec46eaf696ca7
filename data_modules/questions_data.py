"""The DataModule of questions about a text, in any of their variants."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import datasets
import numpy as np
import pyarrow as pa
import torch.distributed as dist

from data_modules.batching.data_module import (
    EvalSet,
    TextDataModule,
    TrainSet,
    at_least,
    by_stage,
    variant_name,
)
from data_modules.batching.samplers import BatchIndex, question_batches
from data_modules.batching.sets import PairSet, QASet
from data_modules.encoding.tables import Tables, Work, flat, process_rank
from data_modules.encoding.windows import Encoding, encode_questions
from data_modules.interventions.deletion import (
    AUGMENTED,
    TEMPLATES,
    Rules,
    Sentences,
    perturb,
    report_rejected,
    with_rationale,
)
from data_modules.schema import QAExample, Rejected, Variant
from data_modules.sources import read_questions
from storage.errors import DataError

# mypy takes MYPY for True; a block under TYPE_CHECKING jsonargparse would execute.
MYPY = False
if MYPY:
    from data_modules.interventions.augmentation import OpenGenerator

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Interventions:
    """Deletions of the rationale, for training and for watching.

    Args:
        train: Variants that are trained on together: [os] is original training, [os, ts, ts_r] the paper's
            intervention-based training (HotpotQA: [os, os_r]).
        rationale: Of questions whose rationale is not known: none (they have no variants without it), or the
            sentence that holds the answer, as for SQuAD.
        watch: Variants to evaluate every set of questions on.
        shift: Variants whose embeddings are compared with those of the original story during evaluation.
        layers: Layers that are compared: the last, or all (the embeddings first).
        generator: Where the sentences of the `_aug` variants come from: `templates`, `openai:MODEL[@URL]`
            or `hf:PATH`.
        cache: File in which generated sentences are kept.
        max_requests: At most so many new requests to a generator; 0 sets no limit.
        rules: Details of the deletions.
        seed: Of the templates; by default that of `seed_everything`.
    """

    train: list[Variant] = field(default_factory=lambda: ["os"])
    watch: list[Variant] = field(default_factory=lambda: ["os"])
    shift: list[Variant] = field(default_factory=list)
    rationale: Literal["given", "answer_sentence"] = "given"
    layers: Literal["last", "all"] = "last"
    generator: str = "templates"
    cache: str = ""
    max_requests: int = 0
    rules: Rules = field(default_factory=Rules)
    seed: int | None = None

    def __post_init__(self) -> None:
        if not self.train or not self.watch:
            raise DataError("interventions: train and watch need one variant at least, such as [os]")
        if "os" in self.shift:
            raise DataError("interventions.shift: os is what the others are compared with; leave it out")


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
        qa_batches: What a training batch is drawn from: windows of `similar_length`, which pad little, or all
            at `random`, as the papers do. Short stories are more often without an answer, so that batches of
            one length differ more in their share of unknown.
        qa_batch_tokens: Instead, as many windows of similar length as fit into so many tokens, padding
            counted; 0 takes `qa_batch_size`.
        eval_batch_size: Rows in an evaluation batch.
        limit_train_qa: Use the first N questions only; 0 uses all.
        limit_val_qa: Likewise for validation and test; predictions are of all.
        skip_bad: Skip and count bad records instead of stopping at the first.
        cache: Folder of perturbed and tokenised data, made once a machine and found again by later runs. It
            may be deleted at any time. Empty: every process prepares all data in memory.
        num_workers: Processes that build batches.
        seed: Of every order and draw; by default that of `seed_everything`.
    """

    kinds: tuple[str, ...] = ("qa",)
    group_sources: Mapping[str, Mapping[str, str]] = by_stage(None, None, None)
    """Named sets of groups beside the questions, by stage; GroupsDataModule has some."""
    open_generator: OpenGenerator | None = None
    """Opens the language model of `interventions.generator`; who starts the run hands it in."""

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
        qa_batches: Literal["similar_length", "random"] = "similar_length",
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
        at_least(1, qa_batch_size=qa_batch_size)
        if qa_batch_tokens and qa_batches == "random":
            raise DataError(
                "data.qa_batch_tokens: batches by tokens hold windows of similar length; with "
                "data.qa_batches=random give data.qa_batch_size alone"
            )
        at_least(0, qa_batch_tokens=qa_batch_tokens, limit_train_qa=limit_train_qa, limit_val_qa=limit_val_qa)
        self.train_qa, self.qa_sources = train_qa, by_stage(val_qa, test_qa, predict_qa)
        self.encoding, self.interventions = encoding.resolved(architecture, self.tokenizer), interventions
        self.qa_batch_size, self.qa_batch_tokens = qa_batch_size, qa_batch_tokens
        self.qa_batches: Literal["similar_length", "random"] = qa_batches
        self.limit_train_qa, self.limit_val_qa = limit_train_qa, limit_val_qa
        self.skip_bad = skip_bad
        self.tables = Tables(cache, self.tokenizer)

    encoding: Encoding

    def sources(self) -> Iterable[str]:
        """Every source that the run may read."""
        yield self.train_qa
        for named in self.qa_sources.values():
            yield from named.values()

    def make_train_set(self) -> TrainSet:
        """The questions in all variants to train on, one variant after the other."""
        if not self.train_qa:
            return TrainSet(None, None)
        tables = self.question_tables(self.train_qa, self.limit_train_qa, self.interventions.train)
        table = datasets.concatenate_datasets(tables) if len(tables) > 1 else tables[0]
        return TrainSet(None, QASet(table, self.tokenizer, self.encoding, may_abstain=False))

    def make_eval_sets(self, stage: str) -> list[EvalSet]:
        """The named sets, each in the variants to watch, and the pairs whose embeddings are compared."""
        how, limit = self.interventions, 0 if stage == "predict" else self.limit_val_qa
        names = Counter(variant_name(name, v) for name in self.qa_sources[stage] for v in how.watch)
        names.update(list(self.group_sources[stage]) if stage == "predict" else ())
        for name, count in names.items():  # they would share their metric keys, or their file of predictions
            if count > 1:
                raise DataError(
                    f"data.{stage}_qa: {count} sets would be called {name!r} (variants and predicted groups "
                    "count too); rename one, or leave one out"
                )
        shift = how.shift if stage != "predict" else []  # nothing to write about pairs
        sets: list[EvalSet] = []
        for name, source in self.qa_sources[stage].items():
            tables = self.question_tables(source, limit, how.watch, shift)
            variants = [QASet(table, self.tokenizer, self.encoding) for table in tables[: len(how.watch)]]
            abstain = any(data.may_abstain for data in variants)  # or their numbers would not compare
            for variant, data in zip(how.watch, variants, strict=True):
                data.may_abstain = abstain
                sets.append(EvalSet(variant_name(name, variant), data))
            for variant, table in zip(shift, tables[len(how.watch) :], strict=True):
                sets.append(EvalSet(name, PairSet(table, self.tokenizer, self.encoding, variant)))
        return sets

    def question_tables(
        self, source: str, limit: int, single: Sequence[Variant], pairs: Sequence[Variant] = ()
    ) -> list[datasets.Dataset]:
        """Variants of the first `limit` questions of a source (0: of all), alone; then others, beside the
        originals. They are read once, and only if a table is missing.

        Raises:
            DataError: no question is left, or they cannot be read.
        """
        how = self.interventions
        originals: list[QAExample] = []
        tables = []
        for number, variant in enumerate([*single, *pairs]):
            asks = variant in AUGMENTED and how.generator != TEMPLATES
            options: dict[str, Any] = {"limit": limit, "skip_bad": self.skip_bad, "variant": variant}
            options |= {"pairs": number >= len(single), "rationale": how.rationale}
            options |= {"encoding": asdict(self.encoding)}
            if variant != "os":
                options["rules"] = asdict(how.rules)
            sources = [source]
            if variant in AUGMENTED:
                options["generator"] = [how.generator, how.cache, how.seed or 0]
                kind, _, folder = how.generator.partition(":")
                if kind == "hf" and Path(folder).is_dir():
                    sources.append(folder)  # whose weights may change in place

            def work(variant: Variant = variant, asks: bool = asks, paired: bool = options["pairs"]) -> Work:
                if not originals:
                    originals.extend(islice(read_questions(source, skip_bad=self.skip_bad), limit or None))
                sentences = self._generated(originals, variant) if asks else None
                encode = partial(
                    encode_variant,
                    variant=variant,
                    how=how,
                    skip_bad=self.skip_bad,
                    sentences=sentences,
                    pairs=paired,
                    tokenizer=self.tokenizer,
                    encoding=self.encoding,
                )
                failed = any(isinstance(sentence, Rejected) for sentence in (sentences or {}).values())
                return Work(originals, encode, keep=not failed)

            table = self.tables.get(sources, options, work, f"tokenising {variant} of {source}")
            found = table.data.column("windows" if options["pairs"] else "id")  # which first windows have
            reasons = table.data.column("rejected").drop_null().value_counts().to_pylist()
            rejected = Counter({reason["values"]: reason["counts"] for reason in reasons})
            report_rejected(len(found) - found.null_count, rejected, variant, source)
            if asks and process_rank()[1] > 1:
                name = "variant_input_ids" if options["pairs"] else "input_ids"
                written = hashlib.sha256(flat(table.data, name).tobytes()).hexdigest()
                everywhere = [written] * process_rank()[1]
                dist.all_gather_object(everywhere, written)
                if len({*everywhere}) > 1:
                    raise DataError(
                        "data.interventions.generator: it wrote different sentences on different machines; "
                        "let them share the folder data.cache, or write rows with `interventune data "
                        "perturb` first"
                    )
            tables.append(table)
        return tables

    def _generated(self, originals: Sequence[QAExample], variant: Variant) -> Sentences:
        """The sentences of a language model that a `_aug` variant appends, by id, or why there is none.

        Raises:
            DataError: every process would ask for the same.
        """
        from data_modules.interventions.augmentation import (
            failures_of,
            generate_sentences,
            needing_sentences,
        )

        how = self.interventions
        if self.tables.folder is None and process_rank()[1] > 1:
            raise DataError(
                f"data.interventions.generator: {how.generator} would be asked by every process; name a "
                "folder for prepared data (data.cache), or write rows with `interventune data perturb` "
                "first, and give them as sources"
            )
        sentences = generate_sentences(
            needing_sentences(originals, variant, rules=how.rules, skip_bad=self.skip_bad),
            generator=how.generator,
            cache=Path(how.cache) if how.cache else None,
            max_requests=how.max_requests or None,
            seed=how.seed or 0,
            open_generator=self.open_generator,
        )
        if failures := failures_of(sentences):
            logger.warning("%s: no sentence for %s", how.generator, dict(failures))
        return sentences

    def train_batches(self, train_set: TrainSet) -> Callable[[np.random.Generator], list[BatchIndex]]:
        """Draws an epoch of question windows, each once."""
        if train_set.qa is None:
            raise DataError("data.train_qa: name questions to train on")
        return partial(
            question_batches,
            lengths_N=train_set.qa.lengths,
            batch_size=self.qa_batch_size,
            order=self.qa_batches,
            batch_tokens=self.qa_batch_tokens,
            multiple=self.encoding.pad_to_multiple_of,
            world_size=process_rank()[1],
        )


def encode_variant(
    originals: Sequence[QAExample],
    *,
    variant: Variant,
    how: Interventions,
    skip_bad: bool,
    sentences: Sentences | None,
    pairs: bool,
    tokenizer: Any,
    encoding: Encoding,
) -> pa.Table:
    """Intervene in some questions and encode what comes of it, alone or beside the originals.

    Args:
        originals: the questions as they were read.
        variant: which intervention.
        how: its rules, its templates, and what counts as a rationale.
        skip_bad: reject a question that contradicts itself instead of raising DataError.
        sentences: of the `_aug` variants, by id, or why there is none; None: out of the templates.
        pairs: encode pairs of an original and its variant.
        tokenizer: a fast tokenizer of transformers.
        encoding: how text becomes rows.
    """
    if variant != "os" or how.rationale == "answer_sentence":
        originals = [with_rationale(example) for example in originals]
    if variant in AUGMENTED and sentences is None:
        from data_modules.interventions.augmentation import generate_sentences, needing_sentences

        needing = needing_sentences(originals, variant, rules=how.rules, skip_bad=skip_bad)
        sentences = generate_sentences(needing, seed=how.seed or 0)
    results: Sequence[QAExample | Rejected] = (
        originals  # `os`: as they are, be they rows of a variant already
    )
    if variant != "os":
        results = [
            perturb(example, variant, sentence=sentences, rules=how.rules, skip_bad=skip_bad)
            for example in originals
        ]
    kept = [(one, two) for one, two in zip(originals, results, strict=True) if isinstance(two, QAExample)]
    if pairs:
        from data_modules.encoding.pairs import encode_pairs  # only where embeddings are watched

        table = encode_pairs(kept, tokenizer, encoding)
    else:
        table = encode_questions([two for _, two in kept], tokenizer, encoding)
    rejected = pa.array([result.reason for result in results if isinstance(result, Rejected)], pa.string())
    return pa.concat_tables([table, pa.table({"rejected": rejected})], promote_options="default")
