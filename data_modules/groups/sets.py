"""LEI sets from UnQover's expansion and advice: lazy pools, restriction to parts, disjoint splits, balanced
samples, and contexts that decide (LEI spec 3.2 to 3.6).

A pool is the cross product of groups and the advice of their category, addressed by index: the 672,000 groups
of LEI's gender domain are never built to draw 400 of each class. No subject, attribute or advice is in two
splits; groups whose three parts do not fall into one split belong to none. Templates are shared, as in LEI's
files.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Literal, get_args

from data_modules.groups.advice import Advice, category_name, with_advice
from data_modules.groups.unqover import Expansion, repair_articles
from data_modules.schema import ADVICE_CLASSES, AdviceClass, Group
from storage.errors import DataError
from storage.files import read_text

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
WEIGHTS = (4, 3, 4)
"""LEI's religion subjects: 4 train, 3 dev, 4 test."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What groups are made of; names are lower-case as in keys. `None` restricts nothing."""

    subjects: frozenset[str] | None = None
    attributes: frozenset[str] | None = None
    advice_ids: frozenset[str] | None = None
    sentences: frozenset[str] = frozenset()
    """Advice as it stands before the question; empty where parts come from lists, not from groups."""


def parts_of(groups: Iterable[Group]) -> Parts:
    """Everything that occurs in `groups`; `advice_ids` is None where none has advice."""
    subjects, attributes, advice_ids, sentences = set[str](), set[str](), set[str](), set[str]()
    for group in groups:
        subjects.update(group.subjects)
        attributes.add(group.attribute)
        if group.advice_id:
            advice_ids.add(group.advice_id)
            sentences.update(variant.advice for variant in group.variants)
    ids = frozenset(advice_ids) or None
    return Parts(frozenset(subjects), frozenset(attributes), ids, frozenset(sentences))


def restrict(
    expansion: Expansion, advice: Sequence[Advice], *, to: Parts | None = None, without: Sequence[Parts] = ()
) -> tuple[Expansion, tuple[Advice, ...]]:
    """Only the subjects, attributes and advice in `to`, and none of those in `without` (advice with the same
    words under another id counts as the same)."""
    to, barred = to or Parts(), {text for parts in without for text in parts.sentences}

    def kept(kind: str, name: str) -> bool:
        wanted, unwanted = getattr(to, kind), [getattr(parts, kind) or () for parts in without]
        return (wanted is None or name in wanted) and not any(name in names for names in unwanted)

    pairs = [pair for pair in expansion.pairs if all(kept("subjects", one.name.lower()) for one in pair)]
    cells = [cell for cell in expansion.cells if kept("attributes", cell.attribute.name.lower())]
    rest = (item for item in advice if kept("advice_ids", item.id) and item.text not in barred)
    return Expansion(pairs, cells), tuple(rest)


class AdvisedGroups(Sequence[Group]):
    """Every group of an expansion with every advice of its category, in that order. Advice of another
    category is not used, and groups whose category has none do not occur."""

    def __init__(self, expansion: Expansion, advice: Iterable[Advice]) -> None:
        self.groups = expansion
        table: dict[str, list[Advice]] = {}
        for item in advice:
            table.setdefault(item.category, []).append(item)
        categories = (category_name(cell.attribute.category) for cell in expansion.cells)
        self._advised = [(i, item) for i, name in enumerate(categories) for item in table.get(name, ())]

    def __len__(self) -> int:
        return len(self.groups.pairs) * len(self._advised)

    def __getitem__(self, index: int) -> Group:  # type: ignore[override]  # no slices
        pair, rest = divmod(range(len(self))[index], len(self._advised))
        cell, advice = self._advised[rest]
        group = self.groups[pair * len(self.groups.cells) + cell]
        return with_advice(group, advice.text, advice.advice_class, advice.id)


Pools = dict[AdviceClass, Sequence[Group]]


def advised_pools(expansion: Expansion, advice: Sequence[Advice]) -> Pools:
    """Class -> its pool, for the classes that `advice` has, in the papers' order; `none` without advice."""
    of_class = {name: [item for item in advice if item.advice_class == name] for name in ADVICE_CLASSES}
    pools: Pools = {name: AdvisedGroups(expansion, items) for name, items in of_class.items() if items}
    return pools or {"none": expansion}


def sample(
    pools: Mapping[AdviceClass, Sequence[Group]], per_class: int | None, *, seed: int
) -> Iterator[Group]:
    """`per_class` groups of each pool, drawn without replacement and evenly over the pool, in random order;
    None takes everything in order.

    A class's draw depends on its own pool and the seed only. DataError when a pool is too small.
    """
    for name, pool in pools.items():
        if per_class is None:
            yield from pool
        elif per_class > len(pool):
            raise DataError(f"--per-class: {per_class} groups are asked for, class {name} has {len(pool)}")
        else:
            yield from (pool[i] for i in Random(f"{seed}/{name}").sample(range(len(pool)), per_class))


def split_parts(expansion: Expansion, advice: Sequence[Advice], *, seed: int = 0) -> dict[Split, Parts]:
    """The parts of each split, in proportion to `WEIGHTS`: each list of subjects is divided, attributes
    within their category, advice within its class and category; the same words go to one split."""
    # One list, or two where subjects of the first are only ever paired with subjects of the second.
    lists = [[pair[i].name.lower() for pair in expansion.pairs] for i in (0, 1)]
    if set(lists[0]) & set(lists[1]):
        lists = [lists[0] + lists[1]]
    attributes, sentences = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for cell in expansion.cells:
        attributes[f"attributes/{category_name(cell.attribute.category)}"].append(cell.attribute.name.lower())
    for item in advice:
        sentences[f"advice/{item.advice_class}/{item.category}"].append(item.text)
    placed = []
    for strata in ({f"subjects/{i}": names for i, names in enumerate(lists)}, attributes, sentences):
        split_of: dict[str, Split] = {}
        for stratum, names in strata.items():
            fresh = [name for name in dict.fromkeys(names) if name not in split_of]
            split_of |= apportion(fresh, WEIGHTS, Random(f"{seed}/{stratum}"))
        placed.append(split_of)
    placed[2] = {item.id: placed[2][item.text] for item in advice}
    return {
        split: Parts(
            *(frozenset(name for name, its in split_of.items() if its == split) for split_of in placed)
        )
        for split in SPLITS
    }


def apportion(items: Sequence[str], weights: Sequence[int], random: Random) -> dict[str, Split]:
    """Each item's split: shuffled, then cut in proportion to `weights` by largest remainder, ties broken at
    random."""
    total = sum(weights)
    shares = [len(items) * weight / total for weight in weights]
    counts = [int(share) for share in shares]
    order = sorted(range(len(weights)), key=lambda i: (counts[i] - shares[i], random.random()))
    for i in order[: len(items) - sum(counts)]:
        counts[i] += 1
    shuffled = random.sample(list(items), len(items))
    labels = [split for split, count in zip(SPLITS, counts, strict=True) for _ in range(count)]
    return dict(zip(shuffled, labels, strict=True))


def read_sentences(path: str | Path) -> dict[str, str]:
    """Attribute (lower-case) -> the sentence that decides it, of lines `attribute TAB sentence`; `[subj]` is
    the one who did it: `was a baker<TAB>[subj] got up at four to light the oven.`"""
    sentences: dict[str, str] = {}
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            attribute, _, sentence = (part.strip() for part in line.partition("\t"))
            if not attribute or "[subj]" not in sentence:
                raise DataError(f"{path}, line {number}: expected ATTRIBUTE, a tab, a sentence with [subj]")
            sentences[attribute.lower()] = sentence
    return sentences


def specify(group: Group, sentence: str, gold: int | None = None) -> Group:
    """LEI's control (LEI spec 3.6): the group with `sentence` at the end of each context, its slot [subj]
    filled with a subject as that context calls it; `gold` is its index, by default either, by a hash of the
    group without its advice. A model that ignores subjects satisfies the ethical loss; here it fails."""
    if gold is None:
        gold = zlib.crc32(group.unadvised_key.encode()) % 2
    variants = []
    for variant in group.variants:
        decisive = repair_articles(sentence.replace("[subj]", variant.candidates[gold].text))
        variants.append(replace(variant, context=f"{variant.context} {decisive}"))
    one, two, three, four = variants
    return replace(group, variants=(one, two, three, four))
