"""A data set in variants, read and perturbed once for all who are asked about it.

    stories = read_stories(options)
    stories.examples()                         # by variant its examples
    stories.pairs["ts_r"]                      # each behind its original

Variants are made here, or read from rows of `interventune data perturb` beside those of the originals.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain, islice
from typing import Annotated

from data_modules.schema import QAExample, Rejected, Variant
from evaluation.headlines import listed
from storage.command_line import AtLeast
from storage.errors import DataError

Pair = tuple[QAExample | None, QAExample]
"""An example behind its original."""


@dataclass(frozen=True)
class VariantOptions:
    """Which data, in which variants.

    Args:
        data: SQuAD, CoQA or HotpotQA (file, folder, hub:NAME:SPLIT), stories:conversation_dev, or rows of
            `interventune data perturb`; several files of one data set go together.
        variants: which variants (default: os ts ts_r; of HotpotQA os os_r; of rows those that they hold);
            reworded, quoted, spaced and reformatted (all three) keep the meaning.
        limit: use the first N originals, and their variants, only; 0 for all.
        skip_bad: leave out inconsistent records and say how many there were.
    """

    data: list[Annotated[str, "SOURCE"]]
    variants: list[Variant] | None = None
    limit: Annotated[int, AtLeast(0)] = 0
    skip_bad: bool = False


@dataclass(frozen=True)
class Stories:
    """One data set in several variants.

    Args:
        dataset: its name.
        originals: all of them.
        pairs: by variant its examples, each behind its original: itself for `os`, None where rows of a
            variant have no original among the sources.
        rejected: how many originals do not allow a variant that was made here, by reason.
    """

    dataset: str
    originals: list[QAExample]
    pairs: dict[Variant, list[Pair]]
    rejected: dict[Variant, Counter[str]]

    def examples(self) -> dict[Variant, list[QAExample]]:
        """The examples of every variant."""
        return {variant: [example for _, example in pairs] for variant, pairs in self.pairs.items()}

    def rejection_note(self) -> str:
        """One sentence a variant that lost questions; empty where none did."""
        total = len(self.originals)
        return " ".join(
            f"`{variant}` leaves out {reasons.total()} of {total} questions ({listed(reasons)})."
            for variant, reasons in self.rejected.items()
            if reasons
        )


def read_stories(options: VariantOptions) -> Stories:
    """Read the sources, and make the variants that are asked for and not among the rows.

    Raises:
        DataError: several data sets, a variant that has to be made while the originals are missing, or one
            that no original allows.
    """
    from data_modules.interventions.deletion import report_rejected, with_rationale

    rows, limit = read_rows(options), options.limit or None
    originals = [with_rationale(example) for example in rows.pop("os", [])[:limit]]
    dataset = next(chain(originals, *rows.values())).dataset
    usual: list[Variant] = ["os", "os_r"] if dataset == "hotpotqa" else ["os", "ts", "ts_r"]  # Tables 4, 5
    if rows:
        usual = ["os", *rows] if originals else [*rows]
    stories = Stories(dataset, originals, {}, {})
    for variant in options.variants or usual:
        if variant in rows:
            stories.pairs[variant] = joined(originals, rows[variant], limit)
            if not stories.pairs[variant]:
                raise DataError(
                    f"--limit {limit}: none of the first questions is among the rows of {variant}"
                )
        elif not originals:
            raise DataError(f"--variants {variant}: the sources hold no original stories to make it from")
        else:
            pairs, rejected = perturbed(originals, variant, skip_bad=options.skip_bad)
            report_rejected(len(pairs), rejected, variant, ", ".join(options.data))
            stories.pairs[variant], stories.rejected[variant] = pairs, rejected
    return stories


def perturbed(
    originals: list[QAExample], variant: Variant, *, skip_bad: bool
) -> tuple[list[Pair], Counter[str]]:
    """The originals that allow a variant, each with it, and how many do not, by reason."""
    from tqdm.auto import tqdm

    from data_modules.interventions.augmentation import generate_sentences, needing_sentences
    from data_modules.interventions.deletion import AUGMENTED, perturb

    if variant == "os":
        return [(original, original) for original in originals], Counter()
    sentences, rejected = None, Counter[str]()
    if variant in AUGMENTED:
        sentences = generate_sentences(needing_sentences(originals, variant, skip_bad=skip_bad))
    pairs: list[Pair] = []
    for original in tqdm(originals, f"making {variant}", unit="story", disable=None):
        made = perturb(original, variant, sentence=sentences, skip_bad=skip_bad)
        if isinstance(made, Rejected):
            rejected[made.reason] += 1
        else:
            pairs.append((original, made))
    return pairs, rejected


def joined(originals: list[QAExample], rows: list[QAExample], limit: int | None) -> list[Pair]:
    """Originals with the rows of a variant that have their ids, then rows without an original; with a limit
    these only where there are no originals at all."""
    by_id = {row.id: row for row in rows}
    known = {original.id for original in originals}
    others = [row for row in by_id.values() if row.id not in known and not (limit and originals)]
    pairs = [(original, by_id[original.id]) for original in originals if original.id in by_id]
    return [*pairs, *((None, row) for row in others[:limit])]


def read_rows(options: VariantOptions) -> dict[Variant, list[QAExample]]:
    """The examples of the sources by variant."""
    from data_modules.sources import read_questions

    rows: dict[Variant, list[QAExample]] = {}
    datasets: dict[str, str] = {}
    for source in options.data:
        questions = read_questions(source, skip_bad=options.skip_bad)
        if options.limit and source.startswith(("hub:", "stories:")):  # which hold originals only
            questions = islice(questions, options.limit)
        for example in questions:
            datasets.setdefault(example.dataset, source)
            rows.setdefault(example.variant, []).append(example)
    if len(datasets) > 1:
        names = ", ".join(f"{name or 'unnamed'} in {source}" for name, source in sorted(datasets.items()))
        raise DataError(f"--data: different data sets ({names}); variants are compared within one")
    return rows
