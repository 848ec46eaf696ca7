"""A data set in variants: read and perturbed once, kept on disk, whoever is asked about it afterwards.

    stories = read_stories(options)
    for chunk in stories.chunks(256): ...      # originals beside the variants that they allow
    stories.examples()                         # variant to its examples

Variants are made here, or read from rows of `python -m data_modules perturb` beside those of the originals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from data_modules.schema import AnswerType, QAExample, Rejected, Variant
from storage.command_line import AtLeast
from storage.errors import DataError
from storage.spool import Spool

PART = 64
"""Originals that are perturbed at a time."""

Once = Callable[[Callable[[], Any]], Any]
"""Calls a function in one of several processes and returns what it gave in all of them."""


@dataclass(frozen=True)
class VariantOptions:
    """Which data, in which variants.

    Args:
        data: SQuAD, CoQA or HotpotQA (file, folder, hub:NAME:SPLIT), stories:conversation_dev, or rows of
            `python -m data_modules perturb`; several files of one data set go together.
        variants: which variants (default: os ts ts_r; of HotpotQA os os_r; of rows those that they hold).
        limit: use the first N originals, and their variants, only; 0 for all.
        skip_bad: leave out inconsistent records and say how many there were.
        generator: who writes the sentences of the _aug variants: templates, openai:MODEL[@URL] or hf:PATH.
        cache: keep generated sentences here, and take them up again.
    """

    data: list[Annotated[str, "SOURCE"]]
    variants: list[Variant] | None = None
    limit: Annotated[int, AtLeast(0)] = 0
    skip_bad: bool = False
    generator: str = "templates"
    cache: Path | None = None


class Story(NamedTuple):
    """An original and the variants that it allows."""

    number: int
    """Its place in the data, from 0."""
    original: QAExample
    variants: dict[Variant, QAExample]
    """Without `os`, which is the original."""


@dataclass(frozen=True)
class Stories:
    """One data set in several variants.

    Args:
        options: what was asked for.
        dataset: its name.
        variants: those that are looked at, `os` among them or not.
        stories: the originals with their variants.
        rejected: of the variants made here: how many originals do not allow it, by reason.
        others: rows of variants whose originals are not among the sources.
    """

    options: VariantOptions
    dataset: str
    variants: tuple[Variant, ...]
    stories: Spool[Story] = field(default_factory=Spool)
    rejected: dict[Variant, Counter[str]] = field(default_factory=dict)
    others: dict[Variant, list[QAExample]] = field(default_factory=dict)

    def chunks(self, size: int) -> Iterator[list[Story]]:
        """All originals with their variants, `size` at a time."""
        stories = iter(self.stories)
        while chunk := list(islice(stories, size)):
            yield chunk

    def examples(self) -> dict[Variant, list[QAExample]]:
        """The examples of every variant, all in memory."""
        found: dict[Variant, list[QAExample]] = {variant: [] for variant in self.variants}
        for story in self.stories:
            for variant, example in {"os": story.original, **story.variants}.items():
                if variant in found:
                    found[variant].append(example)
        return {variant: examples + self.others.get(variant, []) for variant, examples in found.items()}

    def types(self) -> dict[str, AnswerType]:
        """Type of the original answer by id, whether `os` is looked at or not."""
        return {story.original.id: story.original.answer_type for story in self.stories}

    def about(self) -> dict[str, Any]:
        """For the record: the data, the variants, and what could not be perturbed."""
        from evaluation.report import source_record

        return {
            "data": [source_record(source) for source in self.options.data],
            "dataset": self.dataset,
            "variants": list(self.variants),
            "rejected": {variant: dict(reasons) for variant, reasons in self.rejected.items()},
            "generator": self.options.generator,
            "limit": self.options.limit,
        }

    def rejection_note(self) -> str:
        """One sentence a variant that lost questions; empty where none did."""
        return " ".join(
            f"`{variant}` leaves out {reasons.total()} of {len(self.stories)} questions ({_listed(reasons)})."
            for variant, reasons in self.rejected.items()
            if reasons
        )


def default_variants(dataset: str) -> tuple[Variant, ...]:
    """What the paper looks at (Tables 4 and 5)."""
    return ("os", "os_r") if dataset == "hotpotqa" else ("os", "ts", "ts_r")


def read_stories(options: VariantOptions, once: Once = lambda make: make()) -> Stories:
    """Read the sources, and make what is asked for and not among the rows. Memory holds one part of the
    stories at a time, and the ids of rows.

    Args:
        options: what is read and made.
        once: of several processes that all call this: how one lets a language model write for all.

    Raises:
        DataError: several data sets, a variant that has to be made while the originals are missing, or one
            that no original allows.
    """
    from data_modules.interventions.deletion import perturb, report_rejected, with_rationale

    sources = ", ".join(options.data)
    dataset, given = _read(options)
    originals = given["os"].rows if "os" in given else Spool[QAExample]()
    prepared = {variant: rows for variant, rows in given.items() if variant != "os"}
    wanted = tuple(options.variants or (tuple(given) if prepared else default_variants(dataset)))
    made = [variant for variant in wanted if variant not in given]
    if made and "os" not in given:
        raise DataError(f"--variants {made[0]}: the sources hold no original stories to make it from")
    result = Stories(options, dataset, wanted, rejected={variant: Counter() for variant in made})
    write, kept = sentence_writer(options, once), Counter[str]()
    count = min(len(originals), options.limit or len(originals))
    for start in range(0, count, PART):
        part = [with_rationale(originals[i]) for i in range(start, min(count, start + PART))]
        results = {}
        for variant in made:
            sentences = write(part, variant)
            results[variant] = [
                perturb(original, variant, sentence=sentences, skip_bad=options.skip_bad) for original in part
            ]
        for i, original in enumerate(part):
            variants: dict[Variant, QAExample] = {}
            for variant in wanted:
                if variant in prepared:
                    found: QAExample | Rejected | None = prepared[variant].pop(original.id)
                else:
                    found = results[variant][i] if variant in results else None
                if isinstance(found, Rejected):
                    result.rejected[variant][found.reason] += 1
                elif found is not None:
                    variants[variant] = found
            kept.update(variants.keys())
            result.stories.append(Story(start + i, original, variants))
    for variant in made:
        report_rejected(kept[variant], result.rejected[variant], variant, sources)
    for variant in prepared if not (options.limit and count) else ():
        result.others[variant] = prepared[variant].rest(options.limit)
    for variant in prepared:
        if variant in wanted and not kept[variant] and not result.others.get(variant):
            raise DataError(
                f"--limit {options.limit}: none of the first {count} questions is among the rows of {variant}"
            )
    return result


class Rows:
    """The rows of one variant, on disk, by id."""

    def __init__(self) -> None:
        self.rows: Spool[QAExample] = Spool()
        self.places: dict[str, int] = {}

    def append(self, example: QAExample) -> None:
        """Add a row; of two with one id the later counts for the original."""
        if example.variant != "os":
            self.places[example.id] = len(self.rows)
        self.rows.append(example)

    def pop(self, name: str) -> QAExample | None:
        """The row with this id, which is taken; None if there is none."""
        place = self.places.pop(name, None)
        return None if place is None else self.rows[place]

    def rest(self, limit: int) -> list[QAExample]:
        """The first `limit` rows (0: all) that nobody took."""
        return [self.rows[place] for place in islice(sorted(self.places.values()), limit or None)]


def _read(options: VariantOptions) -> tuple[str, dict[Variant, Rows]]:
    """The name of the data set, and all that is needed of the sources, by variant."""
    from data_modules.sources import read_questions

    given: dict[Variant, Rows] = {}
    datasets: dict[str, str] = {}
    for source in options.data:
        # Rows of a file may hold variants behind their originals; other sources hold originals only.
        originals_only = source.startswith(("hub:", "stories:"))
        for example in read_questions(source, skip_bad=options.skip_bad):
            datasets.setdefault(example.dataset, source)
            rows = given.setdefault(example.variant, Rows())
            rows.append(example)
            if originals_only and options.limit and len(rows.rows) >= options.limit:
                break
    if not datasets:
        raise DataError(f"{', '.join(options.data)}: holds no questions")
    if len(datasets) > 1:
        names = ", ".join(f"{name or 'unnamed'} in {source}" for name, source in sorted(datasets.items()))
        raise DataError(f"--data: different data sets ({names}); variants are compared within one")
    return next(iter(datasets)), given


def sentence_writer(
    options: VariantOptions, once: Once = lambda make: make()
) -> Callable[[Sequence[QAExample], Variant], Mapping[str, str] | None]:
    """What writes the sentences of `_aug` variants, by id; a language model is opened when it is needed.

    Raises:
        ValueError: no such generator, or the cache is not one; when it is called.
    """
    from data_modules.interventions.augmentation import (
        TEMPLATES,
        generate_sentences,
        needing_sentences,
        write_sentences,
    )
    from data_modules.interventions.deletion import AUGMENTED

    @cache
    def model() -> Any:
        from models.language.open_model import open_text_model
        from models.language.text_cache import CachedTextModel

        return CachedTextModel(open_text_model(options.generator), options.cache)

    def write(originals: Sequence[QAExample], variant: Variant) -> Mapping[str, str] | None:
        if variant not in AUGMENTED:
            return None
        needing = needing_sentences(originals, variant, skip_bad=options.skip_bad)
        if options.generator == TEMPLATES:
            return generate_sentences(needing, progress=False)[0]
        found: Mapping[str, str] = once(lambda: write_sentences(needing, model())[0])
        return found

    return write


def _listed(reasons: Counter[str]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
