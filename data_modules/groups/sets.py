"""LEI sets from UnQover's expansion and advice: lazy pools, restriction to parts, disjoint splits, balanced
samples, leak checks, and a set's questions in all templates (LEI spec 3.2 to 3.5).

A pool is the cross product of groups and the advice of their category, addressed by index: the 672,000 groups
of LEI's gender domain are never built to draw 400 of each class. No subject, attribute or advice is in two
splits; groups whose three parts do not fall into one split belong to none. Templates are shared, as in LEI's
files.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from random import Random
from typing import Any, Literal, get_args

from data_modules.groups.advice import Advice, attach, category_name, drop_advice
from data_modules.groups.unqover import Expansion, repair_articles
from data_modules.schema import ADVICE_CLASSES, LEAD_IN, AdviceClass, Group, Span, UnderspecifiedQuestion
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
            for category in table if item.everywhere else (item.category,):
                table.setdefault(category, []).append(item)
        self._advice = [table[category_name(cell.attribute.category)] for cell in expansion.cells]
        self._ends = list(accumulate(len(items) for items in self._advice))

    def __len__(self) -> int:
        return len(self.groups.pairs) * (self._ends[-1] if self._ends else 0)

    def __getitem__(self, index: int) -> Group:  # type: ignore[override]  # no slices
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
        for name in ADVICE_CLASSES
        if any(item.advice_class == name for item in advice)
    }


def check_categories(expansion: Expansion, advice: Iterable[Advice]) -> None:
    """DataError unless every attribute's category has advice: such groups would be missing without a word."""
    known = {item.category for item in advice if not item.everywhere}
    for cell in expansion.cells if known else ():
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
        subjects |= apportion(names, weights, Random(f"{seed}/subjects/{number}"))
    category_of: dict[str, str] = {}
    for cell in expansion.cells:
        category_of.setdefault(cell.attribute.name.lower(), category_name(cell.attribute.category))
    attributes: dict[str, Split] = {}
    for category in dict.fromkeys(category_of.values()):
        names = [name for name, of in category_of.items() if of == category]
        attributes |= apportion(names, weights, Random(f"{seed}/attributes/{category}"))
    sentence_of = {item: " ".join(item.sentence.lower().split()) for item in advice}
    placed: dict[str, Split] = {}
    for stratum in dict.fromkeys((item.advice_class, item.category) for item in advice):
        of_stratum = (
            text for item, text in sentence_of.items() if (item.advice_class, item.category) == stratum
        )
        fresh = [text for text in dict.fromkeys(of_stratum) if text not in placed]
        placed |= apportion(fresh, weights, Random(f"{seed}/advice/{'/'.join(stratum)}"))
    tables = (subjects, attributes, {item.id: placed[text] for item, text in sentence_of.items()})
    parts: dict[Split, Parts] = {}
    for split, weight in zip(SPLITS, weights, strict=True):
        share = [frozenset(name for name, part in table.items() if part == split) for table in tables]
        parts[split] = Parts(*share)
        if weight and not len(restrict(expansion, (), to=parts[split])[0]):
            sizes = f"{len(share[0])} subject(s) and {len(share[1])} attribute(s)"
            raise DataError(f"split {split!r}: {sizes} fall to it, which make no group; give longer lists")
    return parts


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


def shares(total: int, parts: int) -> list[int]:
    """`total` as `parts` whole numbers that differ by at most 1, the larger ones first."""
    return [total // parts + (i < total % parts) for i in range(parts)] if parts else []


def over_templates(groups: Iterable[Group], of: Iterable[Group]) -> list[Group]:
    """Each (subject pair, attribute) of some groups in every template of their source, without advice.

    What the source does not hold is filled in: files of LEI are samples, in which a pair meets an attribute
    in one template or a few. A template is filled in only if its groups agree on its text but for the
    subjects and the articles before them: not where contexts depend on the attribute (LEI's specified set).
    The question is the attribute's in that template, or, where all questions of the source are an attribute's
    name in the words of their template, that of another template with the same words.

    Args:
        groups: everything that the source holds.
        of: the groups whose pairs and attributes are wanted; those of another source are passed over.
    """
    wanted = {(group.subjects, group.category, group.attribute) for group in of}
    cells: dict[tuple[tuple[str, str], str, str], None] = {}
    found: dict[str, Group] = {}
    outlines: dict[str, _Outline | None] = {}  # by template; None: its groups do not agree
    texts: dict[tuple[str, str], dict[str, set[tuple[str, str]]]] = {}  # by attribute, then by template
    named: dict[str, dict[str, set[str]]] = {}  # surface forms by subject, then by template
    words: dict[str, set[tuple[str, str, str]]] = {}  # around the attribute in a question, by template
    for group in groups:
        cell, template = (group.subjects, group.category, group.attribute), group.template
        if cell in wanted:
            cells[cell] = None
            found.setdefault(group.unadvised_key, drop_advice(group))
        first, negated, swapped, _ = group.variants
        texts.setdefault(cell[1:], {}).setdefault(template, set()).add((first.question, negated.question))
        words.setdefault(template, set()).add(_words(first.question, group.attribute))
        for subject, here, there in zip(group.subjects, first.candidates, swapped.candidates, strict=True):
            named.setdefault(subject, {}).setdefault(template, set()).update((here.text, there.text))
        for variant, order in ((first, first.candidates), (swapped, swapped.candidates[::-1])):
            outline = _outline(variant.context, *order)
            agrees = outlines.setdefault(template, outline) == outline
            if not agrees or _filled(outline, [span.text for span in order])[0] != variant.context:
                outlines[template] = None
    plain = all(name for around in words.values() for _, name, _ in around)
    for subjects, category, attribute in cells:
        for template, known in outlines.items():
            key = "|".join((*subjects, template, category, attribute, attribute))
            questions = _only(texts[category, attribute], template)
            if questions and template not in texts[category, attribute]:
                around = {(before, after) for before, _, after in words[template]}
                before, _, after = _words(questions[0], attribute)
                questions = questions if plain and around == {(before, after)} else None
            names = [_only(named[subject], template) for subject in subjects]
            if key in found or known is None or questions is None or None in names:
                continue
            variants = []
            for step in (1, -1):
                context, (left, right) = _filled(known, names[::step])
                candidates = (left, right) if step == 1 else (right, left)
                variants += [UnderspecifiedQuestion(context, question, candidates) for question in questions]
            one, two, three, four = variants
            found[key] = Group(subjects, template, category, attribute, "none", "", (one, two, three, four))
    return list(found.values())


def _only(by_template: Mapping[str, set[Any]], template: str) -> Any:
    """The one thing that is known for a template, or else for all of them; None where it is not one."""
    values = by_template.get(template) or set().union(*by_template.values())
    return next(iter(values)) if len(values) == 1 else None


def _words(question: str, attribute: str) -> tuple[str, str, str]:
    """A question before, at and after the attribute's name; "" at its place where it does not say it."""
    return question.lower().partition(attribute)


_Outline = tuple[str, str, str, bool]
"""The texts around the subjects, without the n of "an", and whether the second one named stands first."""


def _outline(context: str, one: Span, two: Span) -> _Outline:
    left, right = sorted((one, two), key=lambda span: span.start)
    before, between = (
        re.sub(r"(?<![^ ])([aA])n $", r"\1 ", piece)
        for piece in (context[: left.start], context[left.end : right.start])
    )
    return before, between, context[right.end :], left is two


def _filled(outline: _Outline, names: Sequence[str]) -> tuple[str, list[Span]]:
    """The context with two subjects in it, articles repaired, and where they stand, in the order given."""
    *pieces, after, flipped = outline
    step = -1 if flipped else 1
    context, spans = "", []
    for piece, name in zip(pieces, names[::step], strict=True):
        context += repair_articles(f"{piece}{name}")[: -len(name)]
        spans.append(Span(len(context), len(context) + len(name), name))
        context += name
    return context + after, spans[::step]
