"""LEI sets from UnQover's expansion and advice: lazy pools, restriction to parts, balanced samples, leak
checks (LEI spec 3.2 to 3.4).

A pool is the cross product of groups and the advice of their category, addressed by index: the 672,000 groups
of LEI's gender domain are never built to draw 400 of each class.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice
from random import Random

from data_modules.groups.advice import CLASSES, LEAD_IN, Advice, attach, by_category, category_name
from data_modules.groups.unqover import Expansion
from data_modules.schema import AdviceClass, Group
from storage.errors import DataError


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

    smaller = expansion.restricted(partial(kept, "subjects"), partial(kept, "attributes"))
    allowed = (item for item in advice if kept("advice_ids", item.id))
    return smaller, tuple(item for item in allowed if item.text() not in known_sentences)


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
        table = by_category(advice)
        self._advice = [table.get(category_name(cell.attribute.category), []) for cell in expansion.cells]
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
    known = by_category(advice)
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


def everything(pools: Mapping[AdviceClass, Sequence[Group]], exclude: HeldOut) -> Iterator[Group]:
    """Every group of every pool that is not held out, class after class."""
    for pool in pools.values():
        yield from (group for group in pool if group not in exclude)


def sample(
    pools: Mapping[AdviceClass, Sequence[Group]], per_class: int, *, seed: int, exclude: HeldOut
) -> Iterator[Group]:
    """`per_class` groups of each pool, drawn without replacement and evenly over the pool, in random order.

    A class's draw depends on its own pool and the seed only. DataError when a pool is too small.
    """
    for name, pool in pools.items():
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
