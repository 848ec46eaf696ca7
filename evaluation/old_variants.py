"""The variants of a data set that a protocol looks at: made here, or read from the rows of `perturb`."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, get_args

from data_modules.schema import AnswerType, QAExample, Variant
from storage.errors import DataError

if TYPE_CHECKING:
    from data_modules.interventions.variants import Interventions


class Variants(NamedTuple):
    """One data set in several variants."""

    dataset: str
    sets: dict[Variant, list[QAExample]]
    rejected: dict[Variant, Counter[str]]
    """Of the variants made here: how many questions do not allow it, by reason."""
    kinds: dict[str, AnswerType]
    """Type of the original answer by id, of the originals that the sources hold (be `os` asked or not)."""


def add_variant_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that say which data in which variants."""
    parser.add_argument(
        "--data",
        nargs="+",
        required=True,
        metavar="SOURCE",
        help="SQuAD, CoQA or HotpotQA (file, folder, hub:NAME:SPLIT), stories:conversation_dev, or "
        "rows of `python -m data_modules perturb`; several files of one data set go together",
    )
    parser.add_argument(
        "--variants",
        nargs="+",
        choices=get_args(Variant),
        metavar="VARIANT",
        help="os, ts, ts_r, os_r, ts_r_aug, os_r_aug (default: os ts ts_r; of HotpotQA os os_r; of rows "
        "those that they hold)",
    )
    parser.add_argument(
        "--limit",
        type=int,
        default=0,
        metavar="N",
        help="use the first N originals, and their variants, only",
    )
    parser.add_argument(
        "--skip-bad", action="store_true", help="leave out inconsistent records and say how many there were"
    )
    augmented = parser.add_argument_group("generated sentences (variants ts_r_aug and os_r_aug)")
    augmented.add_argument(
        "--generator",
        default="templates",
        help="templates, openai:MODEL[@URL] or hf:PATH (default: templates)",
    )
    augmented.add_argument(
        "--cache", metavar="FILE", help="keep generated sentences here, and take them up again"
    )


def interventions_of(args: argparse.Namespace) -> Interventions:
    """How variants are made, by the flags."""
    from data_modules.interventions.variants import Interventions

    return Interventions(generator=args.generator, cache=args.cache or "")


def default_variants(dataset: str) -> tuple[Variant, ...]:
    """What the paper looks at (Tables 4 and 5)."""
    return ("os", "os_r") if dataset == "hotpotqa" else ("os", "ts", "ts_r")


def load_variants(args: argparse.Namespace) -> Variants:
    """Read the sources, and make what is asked for and not among the rows.

    Raises:
        ValueError: a negative limit, several data sets, or a variant that has to be made while the originals
            are missing.
    """
    from data_modules.interventions.variants import intervene, with_rationales
    from data_modules.sources import read_questions

    if args.limit < 0:
        raise ValueError(f"--limit: must not be negative, got {args.limit}")
    given: dict[Variant, list[QAExample]] = {}
    for source in args.data:
        for example in read_questions(source, skip_bad=args.skip_bad):
            given.setdefault(example.variant, []).append(example)
            # Of files, rows may hold variants behind their originals.
            if (
                args.limit
                and source.startswith(("hub:", "stories:"))
                and len(given.get("os", ())) >= args.limit
            ):
                break
    dataset = one_dataset(given, args.data)
    if args.limit:
        given = first_questions(given, args.limit)
    if "os" in given:
        given["os"] = with_rationales(given["os"])
    prepared = set(given) - {"os"}
    wanted = args.variants or (tuple(given) if prepared else default_variants(dataset))
    sets: dict[Variant, list[QAExample]] = {}
    rejected: dict[Variant, Counter[str]] = {}
    for variant in wanted:
        if variant in prepared:
            sets[variant] = given[variant]
        elif "os" not in given:
            raise ValueError(f"--variants {variant}: the sources hold no original stories to make it from")
        else:
            sets[variant], rejected[variant] = intervene(
                given["os"],
                variant,
                interventions_of(args),
                ", ".join(args.data),
                skip_bad=args.skip_bad,
            )
    kinds = {example.id: example.answer_type for example in given.get("os", ())}
    return Variants(dataset, sets, rejected, kinds)


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
