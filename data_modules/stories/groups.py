"""Embedded underspecified questions about invented groups, with and without advice.

    from interventune.data_modules.stories.groups import groups
    for group in groups("heldout"): ...

`planting` has any two rivals, half of them without advice. For the other splits, `group_splits` in
words.yaml lists the subjects, attributes, contexts and wordings of advice. Each (pair, attribute)
has its own held-out contexts, so `heldout` shares no key with `train`, even without the advice.
`scope` tests whether a model follows advice only where it applies: besides ethical and adversarial
advice it has the same sentences about another trait (age, height). Irrelevant advice of the other
splits is also about another topic, and half of it is adversarial.

All splits but `planting` have classes of equal size, each with the same number of groups per (pair,
attribute): mu takes a maximum over attributes (Li et al. 2020, section 4.3), and an unbalanced
design would inflate it.
"""

from functools import cache
from itertools import product
from random import Random

from interventune.data_modules.groups.unqover import Cell, Subject
from interventune.data_modules.schema.groups import Advice, AdviceClass, Group, latent_strength
from interventune.data_modules.schema.questions import TextPair, Texts
from interventune.storage.documents import DataError

from .words import WORDS, GroupSplit, negated


def groups(split: str, seed: int = 0) -> list[Group]:
    """Return the groups of a split, shuffled. DataError for a split that does not exist."""
    rng = Random(f"groups/{split}/{seed}")
    if split == "planting":
        return _planting(seed, rng)
    if split in WORDS.group_splits:
        return _advised(WORDS.group_splits[split], seed, rng)
    raise DataError(
        f"stories have no groups {split!r}; choose from planting, {', '.join(WORDS.group_splits)}"
    )


def rivals(subjects: Texts, seed: int) -> list[TextPair]:
    """Return the pairs that occur: each subject of the stronger half with each of the weaker half.

    Strengths are those that `lei_planted` plants from the same seed (scope `subject`). As in
    UnQover's gender set, pairs always cross the two sides: every subject always wins or always
    loses, and the adversarial mu of a model that follows advice can approach 1 (otherwise, average
    subjects would win half of their pairs).
    """
    ranked = sorted(subjects, key=lambda subject: -latent_strength(subject, "", seed))
    half = len(ranked) // 2
    return [(strong, weak) for strong in ranked[:half] for weak in ranked[half:]]


def _advised(split: GroupSplit, seed: int, rng: Random) -> list[Group]:
    result = list[Group]()
    all_templates = range(len(WORDS.contexts))
    mixed = "mismatched_adversarial" not in split.classes
    for category, kind in WORDS.categories.items():
        attributes = kind.unseen_attributes if split.unseen_attributes else kind.attributes
        for pair, attribute in product(rivals(split.subjects, seed), attributes):
            # The two held-out contexts of a (pair, attribute) do not depend on the seed.
            cell = f"{'/'.join(sorted(pair))}/{attribute}"
            held_out = Random(f"held out/{cell}").sample(all_templates, 2)
            templates = {
                "held_out": held_out,
                "known": [template for template in all_templates if template not in held_out],
                "all": all_templates,
            }[split.contexts]
            for advice_class in split.classes:
                of_class = advice_on(category, advice_class, split.unseen_advice, mixed)
                for template in rng.sample(templates, split.rounds):
                    advice = rng.choice(of_class)
                    result.append(_group(pair, template, category, attribute, advice))
    rng.shuffle(result)
    return result


def _planting(seed: int, rng: Random) -> list[Group]:
    """Any two rivals; every second group without advice, the others with a random piece of it."""
    group_of = dict[str, Group]()
    pairs = rivals(WORDS.subjects, seed) + rivals(WORDS.unseen_subjects, seed)
    classes = WORDS.group_splits["train"].classes
    while len(group_of) < 4_000:
        category, kind = rng.choice(tuple(WORDS.categories.items()))
        attribute = rng.choice(kind.attributes + kind.unseen_attributes)
        advised = len(group_of) % 2 == 0
        advice = rng.choice(advice_on(category, rng.choice(classes), False)) if advised else None
        template = rng.randrange(len(WORDS.contexts))
        group = _group(rng.choice(pairs), template, category, attribute, advice)
        group_of[group.key] = group
    return list(group_of.values())


@cache
def advice_on(
    category: str, advice_class: AdviceClass, unseen: bool, mixed: bool = True
) -> tuple[Advice, ...]:
    """Return all advice of one class for one category, in a fixed order; `unseen`: the held-out
    wordings.

    Ethical advice denies a link between a person's group and the topic, adversarial advice claims
    one. Irrelevant advice denies with the same sentence frames, but about another trait. If it is
    `mixed`, it denies or claims, about another trait, another topic or both, so that neither the
    frame nor the mention of a group or topic reveals the class. Sentences start in lower case, end
    in their only full stop, and lack the lead-in.
    """
    denials, claims = zip(*(WORDS.unseen_frames if unseen else WORDS.frames), strict=True)
    topics = WORDS.categories[category].topics
    if advice_class == "irrelevant" and mixed:
        frames = denials + claims
        links = [
            *product(WORDS.other_phrases, topics + WORDS.other_topics),
            *product(WORDS.group_phrases, WORDS.other_topics),
        ]
    else:
        frames = claims if advice_class.endswith("adversarial") else denials
        own = advice_class in ("ethical", "adversarial")
        links = [*product(WORDS.group_phrases if own else WORDS.other_phrases, topics)]
    sentences = (frame.format(x=x, y=y) for frame in frames for x, y in links)
    name = f"{category}-unseen" if unseen else category
    return tuple(Advice(advice_class, name, i, text) for i, text in enumerate(sentences))


def _group(
    pair: TextPair, template: int, category: str, attribute: str, advice: Advice | None
) -> Group:
    context = WORDS.contexts[template].format("[subj1]", "[subj2]")
    line = f"{context}\tWho {attribute}?\tWho {negated(attribute)}?"
    subjects = (Subject({"": name}) for name in pair)
    return Cell(template, category, attribute, line, advice).group(*subjects)
