"""Disjoint train, dev and test parts: no subject, attribute or advice in two splits (LEI spec 3.4).

Groups whose three parts do not fall into one split belong to none. Templates are shared, as in LEI's files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Literal, get_args

from data_modules.groups.advice import Advice, category_name
from data_modules.groups.sets import Parts, restrict
from data_modules.groups.unqover import Expansion
from storage.errors import DataError

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
WEIGHTS = (4, 3, 4)
"""LEI's religion subjects: 4 train, 3 dev, 4 test."""


def split_parts(
    expansion: Expansion, advice: Sequence[Advice], *, seed: int = 0, weights: Sequence[int] = WEIGHTS
) -> dict[Split, Parts]:
    """The parts of each split, in proportion to `weights`: each list of subjects is divided, attributes
    within their category, advice within its class and category.

    Advice with the same words goes to one split, whatever its ids and classes. DataError when the subjects
    do not suffice for a pair in every split of weight above 0.
    """
    if len(weights) != len(SPLITS) or min(weights) < 0 or not any(weights):
        raise DataError(f"--split-sizes: expected three numbers of at least 0, not all 0, found {weights}")
    subjects: dict[str, Split] = {}
    for number, names in enumerate(_subject_lists(expansion)):
        subjects |= _apportion(names, weights, Random(f"{seed}/subjects/{number}"))
    attributes: dict[str, Split] = {}
    for category, names in _attributes(expansion).items():
        attributes |= _apportion(names, weights, Random(f"{seed}/attributes/{category}"))
    tables = (subjects, attributes, _split_advice(advice, weights, seed))
    parts: dict[Split, Parts] = {}
    for split, weight in zip(SPLITS, weights, strict=True):
        share = [frozenset(name for name, part in table.items() if part == split) for table in tables]
        parts[split] = Parts(*share)
        if weight and not len(restrict(expansion, (), to=parts[split])[0]):
            sizes = f"{len(share[0])} subject(s) and {len(share[1])} attribute(s)"
            raise DataError(f"split {split!r}: {sizes} fall to it, which make no group; give longer lists")
    return parts


def _subject_lists(expansion: Expansion) -> list[list[str]]:
    """One list, or two when subjects of the first are only ever paired with subjects of the second."""
    first = list(dict.fromkeys(pair[0].name.lower() for pair in expansion.pairs))
    second = list(dict.fromkeys(pair[1].name.lower() for pair in expansion.pairs))
    return [first, second] if not set(first) & set(second) else [list(dict.fromkeys(first + second))]


def _attributes(expansion: Expansion) -> dict[str, list[str]]:
    table: dict[str, dict[str, None]] = {}
    for cell in expansion.cells:
        name, category = cell.attribute.name.lower(), category_name(cell.attribute.category)
        if not any(name in names for names in table.values()):
            table.setdefault(category, {})[name] = None
    return {category: list(names) for category, names in table.items()}


def _split_advice(advice: Iterable[Advice], weights: Sequence[int], seed: int) -> dict[str, Split]:
    strata: dict[tuple[str, str], dict[str, list[str]]] = {}
    for item in advice:
        stratum = strata.setdefault((item.advice_class, item.category), {})
        stratum.setdefault(" ".join(item.sentence.lower().split()), []).append(item.id)
    result: dict[str, Split] = {}
    placed: dict[str, Split] = {}
    for (advice_class, category), sentences in strata.items():
        fresh = [text for text in sentences if text not in placed]
        placed |= _apportion(fresh, weights, Random(f"{seed}/advice/{advice_class}/{category}"))
        for text, ids in sentences.items():
            result |= dict.fromkeys(ids, placed[text])
    return result


def _apportion(items: Sequence[str], weights: Sequence[int], random: Random) -> dict[str, Split]:
    """Each item's split: shuffled, then cut by largest remainder, ties broken at random."""
    total = sum(weights)
    shares = [len(items) * weight / total for weight in weights]
    counts = [int(share) for share in shares]
    order = sorted(range(len(weights)), key=lambda i: (counts[i] - shares[i], random.random()))
    for i in order[: len(items) - sum(counts)]:
        counts[i] += 1
    shuffled = random.sample(list(items), len(items))
    labels = [split for split, count in zip(SPLITS, counts, strict=True) for _ in range(count)]
    return dict(zip(shuffled, labels, strict=True))
