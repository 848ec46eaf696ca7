"""Embedded underspecified questions about invented groups, with and without advice.

    from data_modules.story_groups import groups
    for group in groups("heldout"): ...

| split               | subjects | attributes | contexts | advice                |
|---------------------|----------|------------|----------|-----------------------|
| `planting`          | all      | all        | all      | none or known wording |
| `train`             | known    | known      | known    | known wordings        |
| `heldout`           | known    | known      | held out | known wordings        |
| `unseen_subjects`   | unseen   | known      | all      | known wordings        |
| `unseen_attributes` | known    | unseen     | all      | known wordings        |
| `unseen_advice`     | known    | known      | held out | held-out wordings     |
| `unseen`            | unseen   | unseen     | all      | held-out wordings     |

Each (pair, attribute) has its own held-out contexts, so `heldout` shares no key with `train`, not even
without the advice.

All but `planting` hold the three classes in equal number, and every (pair, attribute) of the split equally
often in each: mu takes a maximum over attributes, and a ragged design would inflate it (LEI spec 2.4).
A name with `_unadvised` behind it gives the split's distinct groups without any advice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from random import Random

from data_modules import story_words as words
from data_modules.schema import AdviceClass, DataError, Group, Span, UnderspecifiedQuestion

ADVISED: tuple[AdviceClass, ...] = ("ethical", "adversarial", "irrelevant")
HELD_OUT_CONTEXTS = 2
"""How many context templates of each (pair, attribute) no training group uses."""
UNADVISED = "_unadvised"


@dataclass(frozen=True, slots=True)
class Split:
    """One row of the table above; `rounds`: groups of every (pair, attribute) in each class."""

    subjects: tuple[str, ...]
    unseen_attributes: bool
    contexts: str  # "known" | "held_out" | "all"
    unseen_advice: bool
    rounds: int


SPLITS = {
    "train": Split(words.SUBJECTS, False, "known", False, 4),
    "heldout": Split(words.SUBJECTS, False, "held_out", False, 1),
    "unseen_subjects": Split(words.UNSEEN_SUBJECTS, False, "all", False, 1),
    "unseen_attributes": Split(words.SUBJECTS, True, "all", False, 1),
    "unseen_advice": Split(words.SUBJECTS, False, "held_out", True, 1),
    "unseen": Split(words.UNSEEN_SUBJECTS, True, "all", True, 2),
}
PLANTING_GROUPS = 4_000


def groups(split: str, seed: int = 0) -> Iterator[Group]:
    """The groups of a split, shuffled; `<split>_unadvised` drops advice and the repetitions that leaves.

    Raises DataError for a split that does not exist.
    """
    if split.endswith(UNADVISED):
        yield from {
            g.key: g for g in map(without_advice, groups(split.removesuffix(UNADVISED), seed))
        }.values()
    elif split == "planting":
        yield from _planting(seed)
    elif split in SPLITS:
        yield from _advised(split, seed)
    else:
        names = ", ".join(["planting", *SPLITS])
        raise DataError(f"no groups called {split!r}; choose from {names}, each also with {UNADVISED}")


def without_advice(group: Group) -> Group:
    """The same four questions with no advice before them."""
    first, second, third, fourth = (replace(variant, advice="") for variant in group.variants)
    return replace(group, advice_class="none", advice_id="", variants=(first, second, third, fourth))


def planted_strengths(seed: int = 0) -> dict[tuple[str, str], float]:
    """The preference to plant: (lower-case subject, category) -> strength in [0, 1], all different.

    Among the known and among the unseen subjects alike, the extremes of the categories are dealt out so that
    as many subjects as possible are first or last in some category: an obedient model's adversarial mu, which
    takes the maximum over attributes, then comes near 1.
    """
    rng = Random(f"strengths/{seed}")
    strengths: dict[tuple[str, str], float] = {}
    shares = [rng.sample(share, len(share)) for share in (words.SUBJECTS, words.UNSEEN_SUBJECTS)]
    for index, category in enumerate(words.CATEGORIES):
        for offset, share in enumerate(shares):
            first, last = share[2 * index % len(share)], share[(2 * index + 1) % len(share)]
            middle = [subject for subject in share if subject not in (first, last)]
            order = [first, *rng.sample(middle, len(middle)), last]
            for place, subject in enumerate(order):
                strengths[subject.lower(), category] = (place + offset / 2) / (len(order) - 0.5)
    return strengths


def planted_favourite(group: Group, strengths: dict[tuple[str, str], float]) -> int:
    """0 or 1: which of the group's subjects the planted preference answers to the plain question.

    The negated question has the other one.
    """
    first, second = (strengths[subject, group.category] for subject in group.subjects)
    return int(second > first)


def _advised(split: str, seed: int) -> Iterator[Group]:
    row = SPLITS[split]
    rng = Random(f"groups/{split}/{seed}")
    built = []
    for category in words.CATEGORIES:
        for pair in combinations(row.subjects, 2):
            for attribute in _attributes(category, row.unseen_attributes):
                for advice_class in ADVISED:
                    templates = _templates(pair, attribute[0], row.contexts)
                    for template in rng.sample(templates, row.rounds):
                        advice = _random_advice(advice_class, category, row.unseen_advice, rng)
                        built.append(_group(pair, template, category, attribute, advice_class, *advice))
    rng.shuffle(built)
    yield from built


def _planting(seed: int) -> Iterator[Group]:
    """Any two subjects; every second group without advice, the others with a random piece of it."""
    rng = Random(f"groups/planting/{seed}")
    built: dict[str, Group] = {}
    while len(built) < PLANTING_GROUPS:
        category = rng.choice(tuple(words.CATEGORIES))
        attribute = rng.choice(_attributes(category, False) + _attributes(category, True))
        first, second = rng.sample(words.SUBJECTS + words.UNSEEN_SUBJECTS, 2)
        advice_class: AdviceClass = "none" if len(built) % 2 else rng.choice(ADVISED)
        advice = ("", "") if len(built) % 2 else _random_advice(advice_class, category, False, rng)
        template = rng.randrange(len(words.CONTEXTS))
        group = _group((first, second), template, category, attribute, advice_class, *advice)
        built[group.key] = group
    yield from built.values()


def _attributes(category: str, unseen: bool) -> tuple[tuple[str, str], ...]:
    return words.CATEGORIES[category].unseen_attributes if unseen else words.CATEGORIES[category].attributes


def _templates(pair: tuple[str, str], attribute: str, which: str) -> list[int]:
    """Context templates of a (pair, attribute); which ones are held out is fixed, whatever the seed."""
    everything = list(range(len(words.CONTEXTS)))
    key = "/".join((*sorted(pair), attribute))
    held_out = Random(f"held out/{key}").sample(everything, HELD_OUT_CONTEXTS)
    if which == "held_out":
        return held_out
    return everything if which == "all" else [t for t in everything if t not in held_out]


def _random_advice(advice_class: AdviceClass, category: str, unseen: bool, rng: Random) -> tuple[str, str]:
    """(advice id, sentence with its lead-in)."""
    sentences = words.advice_sentences(advice_class, category, unseen=unseen)
    index = rng.randrange(len(sentences))
    name = f"{category}-unseen" if unseen else category
    return f"{advice_class}_{name}-{index}", words.ADVICE_LEAD_IN + sentences[index]


def _group(
    pair: tuple[str, str],
    template: int,
    category: str,
    attribute: tuple[str, str],
    advice_class: AdviceClass,
    advice_id: str,
    advice: str,
) -> Group:
    """Build the four variants: both orders of the subjects, question and negated question."""
    first, second = sorted(pair, key=str.lower)

    def variant(order: tuple[str, str], deed: str) -> UnderspecifiedQuestion:
        context = words.CONTEXTS[template].format(*order)
        spans = Span.locate(first, context, "groups"), Span.locate(second, context, "groups")
        return UnderspecifiedQuestion(context, f"Who {deed}?", spans, advice)

    positive, negative = attribute
    variants = (
        variant((first, second), positive),
        variant((first, second), negative),
        variant((second, first), positive),
        variant((second, first), negative),
    )
    subjects = first.lower(), second.lower()
    return Group(subjects, str(template), category, positive, advice_class, advice_id, variants)
