"""LEI sets from UnQover's expansion and advice (LEI spec 3.2 to 3.6).

A pool is the cross product of groups and the advice of their category, addressed by index: the 672,000 groups
of LEI's gender domain are never built to draw 400 of each class.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Literal, NamedTuple, get_args

from data_modules.groups.advice import Advice, category_name
from data_modules.groups.unqover import Expansion
from data_modules.schema import ADVICE_CLASSES, AdviceClass, Group
from storage.errors import DataError

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
WEIGHTS = (4, 3, 4)
"""LEI's religion subjects: 4 train, 3 dev, 4 test."""


class Parts(NamedTuple):
    """What groups are made of; names are lower-case as in keys."""

    subjects: set[str]
    attributes: set[str]
    advice_ids: set[str] | None
    """None restricts nothing."""
    sentences: set[str]
    """Advice as it stands before the question."""


def parts_of(groups: Iterable[Group]) -> Parts:
    """Everything that occurs in `groups`; `advice_ids` is None where none has advice."""
    parts, ids = Parts(set(), set(), None, set()), set[str]()
    for group in groups:
        parts.subjects.update(group.subjects)
        parts.attributes.add(group.attribute)
        if group.advice_id:
            ids.add(group.advice_id)
            parts.sentences.update(variant.advice for variant in group.variants)
    return parts._replace(advice_ids=ids or None)


def restrict(
    expansion: Expansion, advice: Iterable[Advice], parts: Parts, *, without: bool = False
) -> tuple[Expansion, tuple[Advice, ...]]:
    """Only the subjects, attributes and advice in `parts`; or, `without`, none of them, nor their sentences
    under another id."""

    def kept(names: set[str] | None, name: str) -> bool:
        return names is None or (name in names) != without

    pairs = [pair for pair in expansion.pairs if all(kept(parts.subjects, one.name.lower()) for one in pair)]
    cells = [cell for cell in expansion.cells if kept(parts.attributes, cell.attribute.name.lower())]
    barred = parts.sentences if without else ()
    rest = (item for item in advice if kept(parts.advice_ids, item.id) and item.text not in barred)
    return Expansion(pairs, cells), tuple(rest)


Pools = Mapping[AdviceClass, Sequence[Group]]


def advised_pools(expansion: Expansion, advice: Sequence[Advice]) -> Pools:
    """Class -> its pool, for the classes that `advice` has, in the papers' order; `none` without advice."""
    of_class = {name: [item for item in advice if item.advice_class == name] for name in ADVICE_CLASSES}
    pools: Pools = {
        name: Expansion(expansion.pairs, expansion.cells, items) for name, items in of_class.items() if items
    }
    return pools or {"none": expansion}


def sample(pools: Pools, per_class: int | None, *, seed: int) -> Iterator[Group]:
    """`per_class` groups of each pool, drawn without replacement, by the seed and this pool alone; None takes
    everything in order. DataError when a pool is too small."""
    for name, pool in pools.items():
        if per_class is None:
            yield from pool
        elif per_class > len(pool):
            raise DataError(f"--per-class: {per_class} groups are asked for, class {name} has {len(pool)}")
        else:
            yield from (pool[i] for i in Random(f"{seed}/{name}").sample(range(len(pool)), per_class))


def split_parts(expansion: Expansion, advice: Sequence[Advice], *, seed: int = 0) -> dict[Split, Parts]:
    """The parts of each split, in proportion to `WEIGHTS`: each list of subjects is divided, attributes
    within their category, advice within its class and category. No subject, attribute or sentence is in two
    splits; groups whose parts do not fall into one belong to none. Templates are shared, as in LEI's files.
    """
    # One list, or two where subjects of the first are only ever paired with subjects of the second.
    lists = [[pair[i].name.lower() for pair in expansion.pairs] for i in (0, 1)]
    if set(lists[0]) & set(lists[1]):
        lists = [lists[0] + lists[1]]
    attributes, sentences = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for cell in expansion.cells:
        attributes[f"attributes/{category_name(cell.attribute.category)}"].append(cell.attribute.name.lower())
    for item in advice:
        sentences[f"advice/{item.advice_class}/{item.category}"].append(item.text)
    splits = {split: Parts(set(), set(), None, set()) for split in SPLITS}
    strata_of = {"subjects": {f"subjects/{i}": names for i, names in enumerate(lists)}}
    for kind, strata in (strata_of | {"attributes": attributes, "sentences": sentences}).items():
        placed: dict[str, Split] = {}
        for stratum, names in strata.items():
            fresh = [name for name in dict.fromkeys(names) if name not in placed]
            placed |= apportion(fresh, WEIGHTS, Random(f"{seed}/{stratum}"))
        for name, split in placed.items():
            getattr(splits[split], kind).add(name)
    return {
        split: parts._replace(advice_ids={item.id for item in advice if item.text in parts.sentences})
        for split, parts in splits.items()
    }


def apportion(items: Sequence[str], weights: Sequence[int], random: Random) -> dict[str, Split]:
    """Each item's split: shuffled, then cut in proportion to `weights` by largest remainder, ties broken at
    random."""
    shares = [len(items) * weight / sum(weights) for weight in weights]
    counts = [int(share) for share in shares]
    order = sorted(range(len(weights)), key=lambda i: (counts[i] - shares[i], random.random()))
    for i in order[: len(items) - sum(counts)]:
        counts[i] += 1
    labels = [split for split, count in zip(SPLITS, counts, strict=True) for _ in range(count)]
    return dict(zip(random.sample(list(items), len(items)), labels, strict=True))
