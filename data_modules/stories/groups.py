"""Embedded underspecified questions about invented groups, with and without advice.

    from interventune.data_modules.stories.groups import groups
    for group in groups("heldout"): ...

`planting` has any two rivals, half of them without advice. For the other splits, `group_splits` in
words.yaml lists the subjects, attributes, contexts and wordings of advice. Each (pair, attribute)
has its own held-out contexts, so `heldout` shares no key with `train`, even without the advice.
`scope` tests whether a model follows advice only where it applies: besides ethical and adversarial
advice it has the same sentences about another trait (age, height), as mismatched advice; the other
splits call such advice irrelevant.

All splits but `planting` have classes of equal size, each with the same number of groups per (pair,
attribute): mu takes a maximum over attributes, and an unbalanced design would inflate it (LEI spec
2.4).
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from interventune.data_modules.groups.advice import latent_strength, with_advice
from interventune.data_modules.groups.expansion import Cell, Expansion, Subject
from interventune.data_modules.schema.groups import LEAD_IN, NO_CLUSTER, AdviceClass, Group
from interventune.data_modules.stories.words import WORDS, advice_sentences, negated
from interventune.storage.errors import DataError


def groups(split: str, seed: int = 0) -> Iterator[Group]:
    """Yield the groups of a split, shuffled. DataError for a split that does not exist."""
    if split not in ("planting", *WORDS.group_splits):
        raise DataError(
            f"stories have no groups {split!r}; choose from planting, "
            f"{', '.join(WORDS.group_splits)}"
        )
    yield from _planting(seed) if split == "planting" else _advised(split, seed)


def rivals(subjects: tuple[str, ...], seed: int) -> list[tuple[str, str]]:
    """Return the pairs that occur: each subject of the stronger half with each of the weaker half.

    Strengths are those that `lei_planted` plants from the same seed (scope `subject`). As in
    UnQover's gender set, pairs always cross the two sides: every subject always wins or always
    loses, and the adversarial mu of a model that follows advice can approach 1 (otherwise, average
    subjects would win half of their pairs).
    """
    ranked = sorted(subjects, key=lambda subject: -latent_strength(subject, "", seed))
    half = len(ranked) // 2
    return [(strong, weak) for strong in ranked[:half] for weak in ranked[half:]]


def _advised(split: str, seed: int) -> Iterator[Group]:
    row, rng, built = WORDS.group_splits[split], Random(f"groups/{split}/{seed}"), []
    everything = list(range(len(WORDS.contexts)))
    for category, kind in WORDS.categories.items():
        for pair in rivals(row.subjects, seed):
            for attribute in kind.unseen_attributes if row.unseen_attributes else kind.attributes:
                # The two held-out contexts of a (pair, attribute) do not depend on the seed.
                name = "/".join((*sorted(pair), attribute))
                held_out = Random(f"held out/{name}").sample(everything, 2)
                known = [template for template in everything if template not in held_out]
                templates = {"held_out": held_out, "known": known, "all": everything}[row.contexts]
                for advice_class in row.classes:
                    for template in rng.sample(templates, row.rounds):
                        advice = _random_advice(advice_class, category, row.unseen_advice, rng)
                        built.append(
                            with_advice(_group(pair, template, category, attribute), *advice)
                        )
    rng.shuffle(built)
    yield from built


def _planting(seed: int) -> Iterator[Group]:
    """Any two rivals; every second group without advice, the others with a random piece of it."""
    rng, built = Random(f"groups/planting/{seed}"), dict[str, Group]()
    pairs = rivals(WORDS.subjects, seed) + rivals(WORDS.unseen_subjects, seed)
    classes = WORDS.group_splits["train"].classes
    while len(built) < 4_000:
        category, kind = rng.choice(tuple(WORDS.categories.items()))
        attribute = rng.choice(kind.attributes + kind.unseen_attributes)
        advised = len(built) % 2 == 0
        advice = (
            _random_advice(rng.choice(classes), category, False, rng)
            if advised
            else ("", "none", "")
        )
        template = rng.randrange(len(WORDS.contexts))
        group = with_advice(_group(rng.choice(pairs), template, category, attribute), *advice)
        built[group.key] = group
    yield from built.values()


def _random_advice(
    kind: AdviceClass, category: str, unseen: bool, rng: Random
) -> tuple[str, AdviceClass, str]:
    sentences = advice_sentences(kind, category, unseen=unseen)
    index = rng.randrange(len(sentences))
    return (
        LEAD_IN + sentences[index],
        kind,
        f"{kind}_{category}{'-unseen' if unseen else ''}-{index}",
    )


def _group(pair: tuple[str, str], template: int, category: str, attribute: str) -> Group:
    context = WORDS.contexts[template].format("[subj1]", "[subj2]")
    cell = Cell(
        template, category, attribute, f"{context}\tWho {attribute}?\tWho {negated(attribute)}?"
    )
    one, two = (Subject(NO_CLUSTER, {"": name}) for name in pair)
    return Expansion([(one, two)], [cell])[0]
