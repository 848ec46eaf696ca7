"""LEI's interventions: ethical, adversarial, irrelevant advice and the groups it goes to (LEI spec 3.1, 3.2).

A file is one JSON object `{class: {category: [sentence, ...]}}`. Advice goes to the groups of its category;
the sentence's place in its list names it: `adversarial_poverty-1`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from random import Random
from typing import cast

from data_modules.schema import LEAD_IN, AdviceClass, Group
from storage.errors import DataError
from storage.json_files import load_json

CLASSES: tuple[AdviceClass, ...] = ("ethical", "adversarial", "irrelevant")
"""The papers' own, which a file of interventions may hold."""


MISMATCHED: tuple[AdviceClass, ...] = ("mismatched_ethical", "mismatched_adversarial")
"""Advice that speaks of another domain than the group's."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One intervention sentence; `number` is its index in the file's list, skipped entries counted."""

    advice_class: AdviceClass
    category: str
    number: int
    sentence: str
    domain: str = ""
    """What it speaks of, where that is known; `advice_domain` of its groups."""
    everywhere: bool = False
    """Whether it goes to the groups of every category; `category` is then only what its id names."""

    @property
    def id(self) -> str:
        """`{class}_{category}-{number}`, as in LEI's keys."""
        return f"{self.advice_class}_{self.category}-{self.number}"

    def text(self, lead_in: str = LEAD_IN) -> str:
        """The sentence as it stands before a question; after a lead-in its first letter is small."""
        if not lead_in.strip():
            return self.sentence
        return f"{lead_in.rstrip()} {self.sentence[0].lower()}{self.sentence[1:]}"


def read_advice(path: str | Path, classes: Sequence[AdviceClass] = CLASSES) -> tuple[Advice, ...]:
    """The advice of `classes` in the file's order; NaN (an empty cell of the authors' tables), null and
    empty sentences are left out.

    Raises DataError naming the file and the key for a class that is missing or unknown, and a wrong shape.
    """
    document = load_json(path, dict[str, dict[str, list[str | float | None]]])
    unknown = [name for name in document if name not in CLASSES]
    if unknown:
        raise DataError(f"{path}: unknown class {unknown[0]!r}; the classes are {', '.join(CLASSES)}")
    advice: list[Advice] = []
    for name, categories in document.items():
        seen: dict[str, str] = {}
        for given, sentences in categories.items() if name in classes else ():
            category = category_name(given)
            where = f"{path}: {name!r}, {given!r}"
            if seen.setdefault(category, given) != given:
                raise DataError(f"{where}: the same category as {seen[category]!r}; merge their lists")
            if not category or "|" in category:
                raise DataError(
                    f"{where}: a category must be a name without '|', since it becomes part of keys"
                )
            for number, sentence in enumerate(sentences):
                if isinstance(sentence, str) and sentence.strip():
                    advice.append(Advice(cast(AdviceClass, name), category, number, sentence.strip()))
                elif isinstance(sentence, float) and not math.isnan(sentence):
                    raise DataError(f"{where}[{number}]: must be a sentence, found {sentence!r}")
    for name in classes:
        if not any(item.advice_class == name for item in advice):
            lacks = "has no sentence" if name in document else "is missing"
            raise DataError(f"{path}: the class {name!r} {lacks}")
    return tuple(advice)


def mismatched_advice(name: str, path: str | Path, classes: Sequence[AdviceClass]) -> tuple[Advice, ...]:
    """The sentences of another domain's file, of all its categories, for groups of any category.

    Args:
        name: the domain that they speak of; ids are `mismatched_ethical_NAME-NUMBER`.
        path: as in `read_advice`, which says what is wrong with it.
        classes: `mismatched_ethical`, `mismatched_adversarial` or both.
    """
    found: list[Advice] = []
    for made in classes:
        taken: AdviceClass = "ethical" if made == "mismatched_ethical" else "adversarial"
        sentences = (item.sentence for item in read_advice(path, (taken,)))
        found += (Advice(made, name, i, text, name, everywhere=True) for i, text in enumerate(sentences))
    return tuple(found)


def category_name(name: str) -> str:
    """The name as keys have it. UnQover writes `None` for the category of gender's attributes and LEI's
    interventions file `none`; keys are lower-case throughout."""
    return name.strip().lower()


def with_advice(
    group: Group, text: str, advice_class: AdviceClass, advice_id: str, advice_domain: str = ""
) -> Group:
    """The group with the same advice, or none (""), before each of its four questions."""
    one, two, three, four = (replace(question, advice=text) for question in group.variants)
    variants = (one, two, three, four)
    return replace(
        group,
        advice_class=advice_class,
        advice_id=advice_id,
        variants=variants,
        advice_domain=advice_domain,
    )


def attach(group: Group, advice: Advice, lead_in: str = LEAD_IN) -> Group:
    """The group with a piece of advice. ValueError if it has advice already or the advice is for another
    category."""
    if group.advice_id:
        raise ValueError(f"group {group.key!r} already has the advice {group.advice_id!r}")
    if not advice.everywhere and category_name(group.category) != advice.category:
        raise ValueError(f"advice {advice.id!r} does not belong to the category of group {group.key!r}")
    return with_advice(group, advice.text(lead_in), advice.advice_class, advice.id, advice.domain)


def drop_advice(group: Group) -> Group:
    """The same four variants without any advice, as a group of class `none`."""
    return with_advice(group, "", "none", "")


def with_unadvised(groups: list[Group]) -> list[Group]:
    """The groups and, unless some come without advice already, the same without it, as class `none`."""
    if any(group.advice_class == "none" for group in groups):
        return groups
    return groups + unadvised(groups)


def unadvised(groups: Iterable[Group]) -> list[Group]:
    """Every distinct group without its advice, once, in order of first appearance."""
    first: dict[str, Group] = {}
    for group in groups:
        first.setdefault(group.unadvised_key, group)
    return [drop_advice(group) for group in first.values()]


def spread(groups: Sequence[Group], per_class: int) -> list[Group]:
    """At most `per_class` groups of each class of advice, evenly spread over the file, and of those without
    advice the ones that ask the same, or others up to as many."""
    kept: list[Group] = []
    members_of = by_class(groups)
    unadvised = members_of.pop("none", [])
    for members in members_of.values():
        kept += [groups[i] for i in evenly(members, per_class)]
    asked = {group.unadvised_key for group in kept}
    same = [i for i in unadvised if groups[i].unadvised_key in asked]
    others = evenly([i for i in unadvised if groups[i].unadvised_key not in asked], per_class - len(same))
    return kept + [groups[i] for i in (*same, *others)]


def evenly(members: Sequence[int], most: int) -> list[int]:
    """At most so many of them, from all over.

    >>> evenly(range(10), 4)
    [0, 2, 5, 7]
    """
    step = len(members) / most if most > 0 else 1.0
    return [members[int(i * max(1.0, step))] for i in range(min(max(most, 0), len(members)))]


def by_class(groups: Sequence[Group]) -> dict[AdviceClass, list[int]]:
    """Where the groups of each class stand."""
    members: dict[AdviceClass, list[int]] = {}
    for i, group in enumerate(groups):
        members.setdefault(group.advice_class, []).append(i)
    return members


def question_numbers(groups: Iterable[Group]) -> list[int]:
    """Which question (the group without its advice) each group asks, numbered by first appearance."""
    first: dict[str, int] = {}
    return [first.setdefault(group.unadvised_key, len(first)) for group in groups]


def contrasted(groups: Sequence[Group], seed: int) -> list[Group]:
    """The groups, and what each question is to be compared with.

    Every ethical and adversarial group comes once more with another sentence of its class and domain, and
    once with a sentence of its class about another domain (class mismatched_...), where there are such among
    the groups; every question comes once without advice.

    Args:
        groups: advised groups that name what their advice speaks of.
        seed: of the draws.

    Raises:
        DataError: all their ethical and adversarial advice speaks of one domain, or none.
    """
    said: dict[str, dict[str, dict[str, Group]]] = {"ethical": {}, "adversarial": {}}
    for group in groups:
        if group.advice_class in said:
            of_domain = said[group.advice_class].setdefault(group.advice_domain, {})
            of_domain.setdefault(group.variants[0].advice, group)
    if len(set(chain(*said.values()))) < 2:
        raise DataError(
            "data.train_advice=contrast: the training groups' ethical and adversarial advice speaks of one "
            "domain; name groups of two or more (field advice_domain)"
        )
    random = Random(seed)
    found = {group.key: group for group in groups}
    for group in groups:
        domains = said.get(group.advice_class, {})
        own, text = domains.get(group.advice_domain, {}), group.variants[0].advice
        pools = {"": [one for other, one in own.items() if other != text]}
        if others := [domain for domain in domains if domain != group.advice_domain]:
            foreign = domains[random.choice(others)]
            pools["mismatched_"] = [one for other, one in foreign.items() if other not in own]
        for prefix, pool in pools.items():
            if pool:
                one = random.choice(pool)
                name = cast(AdviceClass, prefix + one.advice_class)
                again = with_advice(
                    group, one.variants[0].advice, name, prefix + one.advice_id, one.advice_domain
                )
                found.setdefault(again.key, again)
    return list((found | {group.key: group for group in unadvised(groups)}).values())
