"""A data set in variants: made here, or read from rows of `interventune data perturb`."""

from collections import Counter
from dataclasses import dataclass
from itertools import islice

from interventune.data_modules.interventions.variants import (
    made_of,
    report_rejected,
    with_rationale,
)
from interventune.data_modules.schema.questions import QAExample, Variant, traits
from interventune.storage.command_line import CountOrZero, Source
from interventune.storage.documents import DataError
from interventune.storage.finished_work import work_key
from interventune.storage.progress import progress


@dataclass(frozen=True)
class VariantOptions:
    """Which data, in which variants.

    Args:
        data: questions in the format of SQuAD, CoQA or HotpotQA (a file, a folder, hub:NAME:SPLIT),
            stories:conversation_dev, or rows written by `interventune data perturb`. Several files
            of one data set are read together.
        variants: versions of each story (default: os ts ts_r; for HotpotQA os os_r; for a file that
            has several, those). os: the original; ts, ts_r: cut after, before the rationale, the
            sentence that justifies the answer (if the answer is gone, it is appended); os_r:
            without the rationale; _aug: the answer in a sentence instead of a bare phrase;
            reworded, quoted, spaced: same meaning; swap: another answer; near_miss: a changed
            question. All are made by English rules.
        limit: use only the first N questions and their variants; 0: all.
    """

    data: list[Source]
    variants: list[Variant] | None = None
    limit: CountOrZero = 0

    @property
    def name(self) -> str:
        """The names of the sources, without folders."""
        return ", ".join(source.rpartition("/")[2] for source in self.data)


@dataclass(frozen=True)
class Stories:
    """One data set in several variants.

    Args:
        originals: all of them.
        examples: those of every variant, in the order of their originals; rows without an original
            come last.
        rejected: a sentence for each variant made here that not all originals allow.
    """

    originals: list[QAExample]
    examples: dict[Variant, list[QAExample]]
    rejected: str


def passage(original: QAExample) -> str:
    """Return a short name of a question's text: questions about one text are one unit
    of intervals.
    """
    return work_key(text=original.context)[:12]


def read_stories(options: VariantOptions) -> Stories:
    """Read the sources, and make the requested variants that are not among the rows. DataError: no
    originals to make a variant from, or no question is left in it.
    """
    rows = read_rows(options)
    limit = options.limit or None
    originals = [with_rationale(example) for example in rows.pop("os", [])[:limit]]
    usual: list[Variant] = ["os"] if originals and rows else []
    usual += rows or traits(originals[0].dataset).variants
    examples_of = dict[Variant, list[QAExample]]()
    sentences = list[str]()
    for variant in options.variants or usual:
        examples = originals
        rejected = Counter[str]()
        if variant in rows:
            by_id = {row.id: row for row in rows[variant]}
            examples = [by_id.pop(original.id) for original in originals if original.id in by_id]
            if not (originals and limit):
                examples += [*by_id.values()][:limit]
        elif not originals:
            raise DataError(
                f"--variants {variant}: the sources hold no original stories to make it from"
            )
        elif variant != "os":
            bar = progress(originals, f"making {variant}", "story")
            examples, rejected = made_of(bar, variant)
        reasons = report_rejected(len(examples), rejected, variant, ", ".join(options.data))
        if rejected:
            lost = f"{rejected.total()} of {len(originals)} questions have no variant `{variant}`"
            sentences.append(f"{lost}{reasons}.")
        examples_of[variant] = examples
    return Stories(originals, examples_of, " ".join(sentences))


def read_rows(options: VariantOptions) -> dict[Variant, list[QAExample]]:
    """Read the examples of the sources by variant; DataError if they are of several data sets."""
    from interventune.data_modules.sources import read_questions

    rows: dict[Variant, list[QAExample]] = {}
    source_of: dict[str, str] = {}
    seen = set[tuple[str, Variant]]()
    for source in options.data:
        only_originals = source.startswith(("hub:", "stories:"))
        most = options.limit if options.limit and only_originals else None
        for example in islice(read_questions(source), most):
            source_of[example.dataset] = source
            key = example.id, example.variant
            if key in seen:
                raise DataError(
                    f"--data: {source} and a source before it both have the question {key}; name "
                    "each file once, and write other ids"
                )
            seen.add(key)
            rows.setdefault(example.variant, []).append(example)
    if len(source_of) > 1:
        names = ", ".join(f"{name or 'unnamed'} in {source}" for name, source in source_of.items())
        raise DataError(f"--data: different data sets ({names}); variants are compared within one")
    return rows
