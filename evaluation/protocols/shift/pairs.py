"""Original stories with their variants, a chunk at a time: all that the shift protocol holds of its data.

Variants are made here, or read from rows of `python -m data_modules perturb` beside those of the originals.
Such rows keep the order of the data set, so two files are joined by looking at one chunk of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

from data_modules.interventions.augmentation import TEMPLATES, generate_sentences, write_sentences
from data_modules.interventions.deletion import AUGMENTED, perturb_all, with_rationale
from data_modules.interventions.variants import needing_sentences
from data_modules.schema import QAExample, Rejected, Variant
from data_modules.sources import read_questions
from evaluation.old_variants import default_variants
from evaluation.protocols.shift.distributed import Processes
from storage.errors import DataError

T = TypeVar("T")

Sentences = Callable[[Sequence[QAExample]], Mapping[str, str]]
"""Generated sentences by id, for the examples that get one."""


class Story(NamedTuple):
    """An original and the variants that it allows."""

    number: int
    """Its place in the data, from 0."""
    original: QAExample
    variants: dict[Variant, QAExample]


class StorySource:
    """The stories of one data set, in chunks; every call of `chunks` reads them anew.

    Args:
        sources: as `read_questions` takes them; what a source holds is told from its first row.
        variants: to compare with the originals; empty: those among the sources, or the paper's.
        sentences: what the `_aug` variants end with.
        limit: the first so many originals only; 0 for all.
        skip_bad: leave out inconsistent records.

    Raises:
        DataError: no originals, no variant, or different data sets.
    """

    def __init__(
        self,
        sources: Sequence[str],
        variants: Sequence[Variant],
        *,
        sentences: Sentences | None = None,
        limit: int = 0,
        skip_bad: bool = False,
    ) -> None:
        if limit < 0:
            raise DataError(f"--limit: must not be negative, got {limit}")
        self.limit, self.skip_bad, self.sentences = limit, skip_bad, sentences
        self.sources: dict[Variant, list[str]] = {}
        self.dataset = self._sort(sources)
        if "os" not in self.sources:
            raise DataError(
                f"{', '.join(sources)}: only variants; name the file with their originals (variant os), too"
            )
        prepared = [variant for variant in self.sources if variant != "os"]
        wanted = variants or prepared or default_variants(self.dataset)
        self.variants: tuple[Variant, ...] = tuple(dict.fromkeys(v for v in wanted if v != "os"))
        if not self.variants:
            raise DataError("--variants: name one beside os, which the others are compared with")
        self.made = tuple(variant for variant in self.variants if variant not in prepared)
        self.rejected: dict[Variant, Counter[str]] = {}
        """Of the last reading: how many originals do not allow a variant that was made here, by reason."""

    def chunks(self, size: int) -> Iterator[list[Story]]:
        """All originals with their variants, `size` at a time.

        Raises:
            DataError: a bad record, a row of another data set, or a variant without its original.
        """
        self.rejected = {variant: Counter() for variant in self.made}
        prepared = {v: Rows(self._read(v)) for v in self.variants if v not in self.made}
        number = 0
        for read in batched(islice(self._read("os"), self.limit or None), size):
            originals = [with_rationale(example) for example in read]
            found = {
                variant: prepared[variant].take({example.id for example in originals})
                if variant in prepared
                else self._make(originals, variant)
                for variant in self.variants
            }
            yield [
                Story(
                    number + i,
                    example,
                    {v: rows[example.id] for v, rows in found.items() if example.id in rows},
                )
                for i, example in enumerate(originals)
            ]
            number += len(originals)
        if not self.limit:
            for variant, rows in prepared.items():
                if rows.next is not None:
                    raise DataError(
                        f"{', '.join(self.sources[variant])}: {rows.next.id!r} is a {variant} row without "
                        "an original, or not in the originals' order; compare variants of one data set, as "
                        "perturb writes them"
                    )

    def _sort(self, sources: Sequence[str]) -> str:
        """Sort the sources by the variant of their first row; the name of their data set."""
        datasets: dict[str, str] = {}
        for source in sources:
            first = next(read_questions(source, skip_bad=self.skip_bad), None)
            if first is None:
                raise DataError(f"{source}: holds no questions")
            self.sources.setdefault(first.variant, []).append(source)
            datasets.setdefault(first.dataset, source)
        if len(datasets) > 1:
            told = ", ".join(f"{name or 'unnamed'} in {source}" for name, source in sorted(datasets.items()))
            raise DataError(f"--data: different data sets ({told}); variants are compared within one")
        return next(iter(datasets))

    def _read(self, variant: Variant) -> Iterator[QAExample]:
        """The rows of one variant; what is in their files beside them is refused."""
        sources = self.sources[variant]
        read = (
            (source, example)
            for source in sources
            for example in read_questions(source, skip_bad=self.skip_bad)
        )
        for source, example in read:
            if example.variant != variant:
                raise DataError(
                    f"{source}: {example.id!r} is of variant {example.variant}, the rows before of "
                    f"{variant}; give each variant a file of its own"
                )
            if example.dataset != self.dataset:
                raise DataError(
                    f"{source}: {example.id!r} is of another data set ({example.dataset or 'unnamed'}) than "
                    f"the first row ({self.dataset or 'unnamed'}); variants are compared within one"
                )
            yield example

    def _make(self, originals: Sequence[QAExample], variant: Variant) -> dict[str, QAExample]:
        """A variant of the originals that allow it, by id."""
        sentences: Mapping[str, str] = {}
        if variant in AUGMENTED and self.sentences is not None:
            sentences = self.sentences(needing_sentences(originals, variant, skip_bad=self.skip_bad))
        made = {}
        for result in perturb_all(originals, variant, sentence=sentences, skip_bad=self.skip_bad):
            if isinstance(result, Rejected):
                self.rejected[variant][result.reason] += 1
            else:
                made[result.id] = result
        return made


class Rows:
    """Rows that are taken in their order, as long as they are wanted.

    Args:
        rows: the rows of one variant.
    """

    def __init__(self, rows: Iterator[QAExample]) -> None:
        self.rows = rows
        self.next = next(rows, None)

    def take(self, ids: set[str]) -> dict[str, QAExample]:
        """The next rows up to the first that is not among `ids`, by id."""
        taken: dict[str, QAExample] = {}
        while self.next is not None and self.next.id in ids:
            taken[self.next.id] = self.next
            self.next = next(self.rows, None)
        return taken


def batched(items: Iterator[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` items; the last may be shorter.

    >>> list(batched(iter("abcde"), 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    while batch := list(islice(items, size)):
        yield batch


def sentence_writer(generator: str, cache: str | None, team: Processes) -> Sentences:
    """What `--generator` writes. Templates hold nothing. What a language model wrote is remembered, kept in
    `cache`, for the next pass over the data; it runs in the first process alone.

    Raises:
        ValueError: no such generator, or the cache is not one.
    """
    if generator == TEMPLATES:
        return lambda examples: generate_sentences(examples, progress=False)[0]
    from models.language.open_model import open_text_model
    from models.language.text_cache import CachedTextModel

    def opened() -> CachedTextModel:
        return CachedTextModel(open_text_model(generator), Path(cache) if cache else None)

    model = opened() if team.first else None
    return lambda examples: team.from_first(lambda: write_sentences(examples, model)[0])  # type: ignore[arg-type]
