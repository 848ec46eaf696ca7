"""LEI sets from UnQover's expansion and advice: lazy pools, restriction to parts, disjoint splits, balanced
samples, leak checks (LEI spec 3.2 to 3.4).

A pool is the cross product of groups and the advice of their category, addressed by index: the 672,000 groups
of LEI's gender domain are never built to draw 400 of each class. No subject, attribute or advice is in two
splits; groups whose three parts do not fall into one split belong to none. Templates are shared, as in LEI's
files.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from random import Random
from typing import Literal, get_args

from data_modules.groups.advice import CLASSES, LEAD_IN, Advice, attach, category_name
from data_modules.groups.unqover import Expansion
from data_modules.schema import AdviceClass, Group
from storage.errors import DataError

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
    """Everything that occurs in `groups`. Without any advice, `advice_ids` is empty."""
    subjects, attributes, advice_ids, sentences = set[str](), set[str](), set[str](), set[str]()
    for group in groups:
        subjects.update(group.subjects)
        attributes.add(group.attribute)
        if group.advice_id:
            advice_ids.add(group.advice_id)
            sentences.update(question.advice for question in group.variants)
    return Parts(*map(frozenset, (subjects, attributes, advice_ids, sentences)))


def restrict(
    expansion: Expansion, advice: Sequence[Advice], *, to: Parts | None = None, without: Sequence[Parts] = ()
) -> tuple[Expansion, tuple[Advice, ...]]:
    """Only the subjects, attributes and advice in `to`, and none of those in `without` (advice with the same
    words under another id counts as the same)."""
    to = to or Parts()
    known_sentences = {sentence for parts in without for sentence in parts.sentences}

    def kept(kind: str, name: str) -> bool:
        wanted, unwanted = getattr(to, kind), [getattr(parts, kind) or () for parts in without]
        return (wanted is None or name in wanted) and not any(name in names for names in unwanted)

    pairs = [pair for pair in expansion.pairs if all(kept("subjects", one.name.lower()) for one in pair)]
    cells = [cell for cell in expansion.cells if kept("attributes", cell.attribute.name.lower())]
    allowed = (item for item in advice if kept("advice_ids", item.id))
    rest = tuple(item for item in allowed if item.text() not in known_sentences)
    return Expansion(pairs, cells, expansion.filler), rest


def check_known(parts: Parts, expansion: Expansion, advice: Iterable[Advice] | None, where: str) -> None:
    """DataError when `parts` names something that the lists do not have; `advice` None is not looked at."""
    known = {
        "subjects": {subject.name.lower() for pair in expansion.pairs for subject in pair},
        "attributes": {cell.attribute.name.lower() for cell in expansion.cells},
        "advice_ids": None if advice is None else {item.id for item in advice},
    }
    for kind, names in known.items():
        missing = set() if names is None else (getattr(parts, kind) or set()) - names
        if missing:
            shown = ", ".join(repr(name) for name in sorted(missing)[:3])
            raise DataError(
                f"{where}: {len(missing)} of its {kind.replace('_', ' ')} are not in the given lists, such "
                f"as {shown}; give the lists that it was made from"
            )


class AdvisedGroups(Sequence[Group]):
    """Every group of an expansion with every advice of its category, in that order. Advice of another
    category is not used, and groups whose category has none do not occur."""

    def __init__(self, expansion: Expansion, advice: Iterable[Advice], lead_in: str = LEAD_IN) -> None:
        self.groups = expansion
        self.lead_in = lead_in
        table: dict[str, list[Advice]] = {category_name(c.attribute.category): [] for c in expansion.cells}
        for item in advice:
            table.setdefault(item.category, []).append(item)
        self._advice = [table[category_name(cell.attribute.category)] for cell in expansion.cells]
        self._ends = list(accumulate(len(items) for items in self._advice))

    def __len__(self) -> int:
        return len(self.groups.pairs) * (self._ends[-1] if self._ends else 0)

    def __getitem__(self, index: int) -> Group:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(f"{index} of {len(self)}")
        pair, rest = divmod(index, self._ends[-1])
        cell = bisect_right(self._ends, rest)
        advice = self._advice[cell][rest - (self._ends[cell] - len(self._advice[cell]))]
        return attach(self.groups[pair * len(self._ends) + cell], advice, self.lead_in)


Pools = dict[AdviceClass, Sequence[Group]]


def advised_pools(expansion: Expansion, advice: Sequence[Advice], lead_in: str = LEAD_IN) -> Pools:
    """Class -> its pool, for the classes that `advice` has, in the papers' order."""
    return {
        name: AdvisedGroups(expansion, [item for item in advice if item.advice_class == name], lead_in)
        for name in CLASSES
        if any(item.advice_class == name for item in advice)
    }


def check_categories(expansion: Expansion, advice: Iterable[Advice]) -> None:
    """DataError unless every attribute's category has advice: such groups would be missing without a word."""
    known = {item.category for item in advice}
    for cell in expansion.cells:
        if category_name(cell.attribute.category) not in known:
            raise DataError(
                f"attribute {cell.attribute.name!r}: its category {cell.attribute.category!r} has no advice; "
                f"the interventions file has {', '.join(sorted(known))}. Add the category there, or leave "
                "its attributes out of the list"
            )


class HeldOut:
    """Keys to leave out. A group without advice is left out if its four variants occur with any advice."""

    def __init__(self, groups: Iterable[Group] = ()) -> None:
        self._keys: set[str] = set()
        self._unadvised: set[str] = set()
        for group in groups:
            self._keys.add(group.key)
            self._unadvised.add(group.unadvised_key)

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, group: Group) -> bool:
        return group.key in self._keys or (not group.advice_id and group.unadvised_key in self._unadvised)


def sample(
    pools: Mapping[AdviceClass, Sequence[Group]], per_class: int | None, *, seed: int, exclude: HeldOut
) -> Iterator[Group]:
    """`per_class` groups of each pool, drawn without replacement and evenly over the pool, in random order;
    None takes everything in order.

    A class's draw depends on its own pool and the seed only. DataError when a pool is too small.
    """
    for name, pool in pools.items():
        if per_class is None:
            yield from (group for group in pool if group not in exclude)
            continue
        draws = min(len(pool), per_class + len(exclude))
        drawn = (pool[index] for index in Random(f"{seed}/{name}").sample(range(len(pool)), draws))
        count = 0
        for group in islice((group for group in drawn if group not in exclude), per_class):
            count += 1
            yield group
        if count < per_class:
            raise DataError(
                f"class {name!r}: {per_class} groups asked for, but its pool has {count} "
                f"({len(pool)} before exclusion); lower --per-class or restrict less"
            )


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
    # One list, or two where subjects of the first are only ever paired with subjects of the second.
    lists = [list(dict.fromkeys(pair[i].name.lower() for pair in expansion.pairs)) for i in (0, 1)]
    if set(lists[0]) & set(lists[1]):
        lists = [list(dict.fromkeys(lists[0] + lists[1]))]
    subjects: dict[str, Split] = {}
    for number, names in enumerate(lists):
        subjects |= _apportion(names, weights, Random(f"{seed}/subjects/{number}"))
    category_of: dict[str, str] = {}
    for cell in expansion.cells:
        category_of.setdefault(cell.attribute.name.lower(), category_name(cell.attribute.category))
    attributes: dict[str, Split] = {}
    for category in dict.fromkeys(category_of.values()):
        names = [name for name, of in category_of.items() if of == category]
        attributes |= _apportion(names, weights, Random(f"{seed}/attributes/{category}"))
    sentence_of = {item: " ".join(item.sentence.lower().split()) for item in advice}
    placed: dict[str, Split] = {}
    for stratum in dict.fromkeys((item.advice_class, item.category) for item in advice):
        of_stratum = (
            text for item, text in sentence_of.items() if (item.advice_class, item.category) == stratum
        )
        fresh = [text for text in dict.fromkeys(of_stratum) if text not in placed]
        placed |= _apportion(fresh, weights, Random(f"{seed}/advice/{'/'.join(stratum)}"))
    tables = (subjects, attributes, {item.id: placed[text] for item, text in sentence_of.items()})
    parts: dict[Split, Parts] = {}
    for split, weight in zip(SPLITS, weights, strict=True):
        share = [frozenset(name for name, part in table.items() if part == split) for table in tables]
        parts[split] = Parts(*share)
        if weight and not len(restrict(expansion, (), to=parts[split])[0]):
            sizes = f"{len(share[0])} subject(s) and {len(share[1])} attribute(s)"
            raise DataError(f"split {split!r}: {sizes} fall to it, which make no group; give longer lists")
    return parts


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
