"""The variants of a data set that a protocol looks at: made here, or read from the rows of `perturb`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from data_modules.schema import AnswerType, QAExample, Variant
from storage.command_line import AtLeast
from storage.errors import DataError


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


class Variants(NamedTuple):
    """One data set in several variants."""

    dataset: str
    sets: dict[Variant, list[QAExample]]
    rejected: dict[Variant, Counter[str]]
    """Of the variants made here: how many questions do not allow it, by reason."""
    types: dict[str, AnswerType]
    """Type of the original answer by id, of the originals that the sources hold (be `os` asked or not)."""

    def about(self, options: VariantOptions) -> dict[str, Any]:
        """For the record: the data, the variants, and what could not be perturbed."""
        from evaluation.report import source_record

        return {
            "data": [source_record(source) for source in options.data],
            "dataset": self.dataset,
            "variants": list(self.sets),
            "rejected": {variant: dict(reasons) for variant, reasons in self.rejected.items()},
            "generator": options.generator,
            "limit": options.limit,
        }


def default_variants(dataset: str) -> tuple[Variant, ...]:
    """What the paper looks at (Tables 4 and 5)."""
    return ("os", "os_r") if dataset == "hotpotqa" else ("os", "ts", "ts_r")


def load_variants(options: VariantOptions) -> Variants:
    """Read the sources, and make what is asked for and not among the rows.

    Raises:
        ValueError: several data sets, or a variant that has to be made while the originals are missing.
    """
    from data_modules.interventions.variants import Interventions, intervene, with_rationales

    given = _read(options)
    dataset = one_dataset(given, options.data)
    if options.limit:
        given = first_questions(given, options.limit)
    if "os" in given:
        given["os"] = with_rationales(given["os"])
    prepared = set(given) - {"os"}
    wanted = options.variants or (tuple(given) if prepared else default_variants(dataset))
    how = Interventions(generator=options.generator, cache=str(options.cache or ""))
    sets: dict[Variant, list[QAExample]] = {}
    rejected: dict[Variant, Counter[str]] = {}
    for variant in wanted:
        if variant in prepared:
            sets[variant] = given[variant]
        elif "os" not in given:
            raise DataError(f"--variants {variant}: the sources hold no original stories to make it from")
        else:
            sets[variant], rejected[variant] = intervene(
                given["os"], variant, how, ", ".join(options.data), skip_bad=options.skip_bad
            )
    types = {example.id: example.answer_type for example in given.get("os", ())}
    return Variants(dataset, sets, rejected, types)


def _read(options: VariantOptions) -> dict[Variant, list[QAExample]]:
    """All that is needed of the sources, by variant."""
    from data_modules.sources import read_questions

    given: dict[Variant, list[QAExample]] = {}
    for source in options.data:
        # Rows of a file may hold variants behind their originals; other sources hold originals only.
        originals_only = source.startswith(("hub:", "stories:"))
        for example in read_questions(source, skip_bad=options.skip_bad):
            given.setdefault(example.variant, []).append(example)
            if originals_only and options.limit and len(given.get("os", ())) >= options.limit:
                break
    return given


def first_questions(given: dict[Variant, list[QAExample]], limit: int) -> dict[Variant, list[QAExample]]:
    """The first originals with their variants; without originals, the first rows of each variant.

    Raises:
        DataError: a variant is among the rows, but not of these originals.
    """
    if "os" not in given:
        return {variant: rows[:limit] for variant, rows in given.items()}
    ids = {example.id for example in given["os"][:limit]}
    found = {variant: [row for row in rows if row.id in ids] for variant, rows in given.items()}
    found["os"] = given["os"][:limit]
    for variant, rows in found.items():
        if not rows:
            raise DataError(
                f"--limit {limit}: none of the first {limit} questions is among the rows of {variant}"
            )
    return found


def one_dataset(given: dict[Variant, list[QAExample]], sources: Sequence[str]) -> str:
    """The name of the one data set that all rows come from; DataError if there are several, or none."""
    found = {example.dataset for examples in given.values() for example in examples}
    if not found:
        raise DataError(f"{', '.join(sources)}: holds no questions")
    if len(found) > 1:
        raise DataError(
            f"--data: different data sets ({', '.join(sorted(found))}); variants are compared within one"
        )
    return found.pop()


def rejection_note(variants: Variants) -> str:
    """One sentence a variant that lost questions; empty where none did."""
    parts = []
    for variant, reasons in variants.rejected.items():
        if reasons:
            told = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
            parts.append(f"`{variant}` leaves out {reasons.total()} questions ({told}).")
    return " ".join(parts)
