"""Records of underspecified questions: groups, which readers yield and all other code uses, and
advice before their questions, as LEI's interventions (Zhao et al. 2021, section 2.2).

A file of advice is one JSON object `{class: {category: [sentence, ...]}}`; advice applies to groups
of its category.
"""

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, get_args

from interventune.storage.documents import DataError, Rows, StrPath, check, load_json, text_digest

from .questions import Span, TextPair, asked, distinct

logger = logging.getLogger(__name__)

AdviceClass = Literal[
    "ethical", "adversarial", "irrelevant", "none", "mismatched_adversarial", "facts"
]
"""LEI's classes of intervention, of which `irrelevant` is ethical advice about something else than
the question (Zhao et al. 2021, section 2.2); `none` is a group without advice. This project's:
adversarial advice about something else, and plain facts.
"""

ADVICE_CLASSES: tuple[AdviceClass, ...] = get_args(AdviceClass)

LEAD_IN = "Note that, "
"""The papers' words before a sentence of advice (Zhao et al. 2021, appendix C)."""

NO_CLUSTER = "None"
"""UnQover's entry for the cluster of a row without one."""

T = TypeVar("T")

Four = tuple[T, T, T, T]
"""One value for each of the four variants of a question."""


@dataclass(frozen=True, slots=True)
class UnderspecifiedQuestion:
    """A question whose context does not decide between two subjects.

    `candidates` are in the order of the group's `subjects`, not of the context.
    """

    context: str
    question: str
    candidates: tuple[Span, Span]
    advice: str = ""

    def __post_init__(self) -> None:
        for span in self.candidates:
            span.check(self.context, self.question)
        if len(distinct(span.text for span in self.candidates)) < 2:
            raise DataError(f"question {self.question!r}: its subjects are equal; name two")

    query = property(asked)


@dataclass(frozen=True, slots=True)
class Group:
    """The four variants of one underspecified question.

    They are the unit that UnQover's metrics and LEI's losses compare, and therefore never split
    (Zhao et al. 2021, appendix B.2).

    `variants` contains, in this order: (subjects in order x1 x2, question), (x1 x2, negated
    question), (x2 x1, question), (x2 x1, negated question).
    """

    subjects: TextPair
    """Lower-cased and sorted: x1 < x2."""
    template: str
    category: str
    attribute: str
    advice_class: AdviceClass
    advice_id: str
    """For example `adversarial_poverty-1`; empty without advice. A group of class `none` with
    advice (random advice for planting) has an id that distinguishes its copies.
    """
    variants: Four[UnderspecifiedQuestion]
    domain: str = ""
    """The domain of the subjects (such as instrument); empty if the source does not state it."""
    advice_domain: str = ""
    """The domain of the advice: the group's, or another; empty for plain facts."""

    @property
    def key(self) -> str:
        """`x1|x2|template|category|attribute|attribute|advice_id`, as in LEI's files."""
        return f"{self.unadvised_key}|{self.advice_id}"

    @property
    def unadvised_key(self) -> str:
        """The key of the same four variants without any advice."""
        about = f"{self.template}|{self.category}|{self.attribute}|{self.attribute}"
        return f"{'|'.join(self.subjects)}|{about}"

    @property
    def gold(self) -> int | None:
        """Index of the subject whom the contexts in both orders name more often; None without one.

        Templates name both subjects equally often, so the added sentence makes the difference, as
        in LEI's own specified set; it needs no field.
        """
        golds = set()
        for variant in self.variants[::2]:
            names = [span.text for span in variant.candidates]
            # The longer name first: African is in African-American.
            either = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
            mentions = Counter(re.findall(rf"(?<!\w)(?:{either})(?!\w)", variant.context))
            first, second = (mentions[name] for name in names)
            golds.add(None if first == second else int(second > first))
        return golds.pop() if len(golds) == 1 else None


Boundaries = tuple[float, float]
"""(start, end) boundary probability of one candidate."""

BaseScores = Four[tuple[Boundaries, Boundaries]]
"""[4 variants][2 subjects in the group's order][start, end]: a model's probabilities."""


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """A group with what its file says about a model and its subjects; each field may be absent."""

    group: Group
    base_scores: BaseScores | None = None
    clusters: TextPair | None = None
    """Clusters of the group's subjects, if UnQover's ids name them (female, male)."""
    answers: TextPair = ("", "")
    """Answers to the question in both orders (`pred`); empty if there was none or the file has no
    answers.
    """


def read_groups(rows: Rows, source: str) -> Iterator[Group | ScoredGroup]:
    """Read the groups of a file of groups, or of groups with scores."""
    for where, row in rows:
        kind: Any = ScoredGroup if "group" in row else Group
        yield check(row, kind, where)


@dataclass(frozen=True)
class Advice:
    """One sentence of advice; `number` is its index in the file's list."""

    advice_class: AdviceClass
    category: str
    number: int
    sentence: str

    @property
    def id(self) -> str:
        """`{class}_{category}-{number}`, as in LEI's keys."""
        return f"{self.advice_class}_{self.category}-{self.number}"

    @property
    def text(self) -> str:
        """The text before a question: the lead-in, then the sentence with a lower-case first
        letter.
        """
        return f"{LEAD_IN}{self.sentence[0].lower()}{self.sentence[1:]}"


def read_advice(path: StrPath) -> tuple[Advice, ...]:
    """Read the advice in file order, without NaN (the authors' empty cells), null and empty text.

    Irrelevant sentences beyond a category's number of ethical ones are left out, with a warning, as
    in LEI's released files: the second eight of religion are about religion.
    """
    kind = dict[
        Literal["ethical", "adversarial", "irrelevant"], dict[str, list[str | float | None]]
    ]
    file = load_json(path, kind)
    surplus = list[Any]()
    for category, sentences in file.get("irrelevant", {}).items():
        most = len(file.get("ethical", {}).get(category, sentences))
        surplus += sentences[most:]
        del sentences[most:]
    if surplus:
        logger.warning(
            "%s: left out %d irrelevant sentences beyond the number of ethical ones",
            path,
            len(surplus),
        )
    return tuple(
        Advice(name, category.strip().lower(), number, sentence.strip())
        for name, categories in file.items()
        for category, sentences in categories.items()
        for number, sentence in enumerate(sentences)
        if isinstance(sentence, str) and sentence.strip()
    )


def with_advice(group: Group, text: str, advice_class: AdviceClass, advice_id: str) -> Group:
    """Put `text`, of no domain, before the questions of all four variants."""
    variants: Any = tuple(replace(variant, advice=text) for variant in group.variants)
    return replace(
        group, variants=variants, advice_class=advice_class, advice_id=advice_id, advice_domain=""
    )


def with_unadvised(groups: list[Group]) -> list[Group]:
    """Add a copy without advice, as class `none`, of every group, unless some groups already have
    none.
    """
    if any(group.advice_class == "none" for group in groups):
        return groups
    return groups + unadvised(groups)


def unadvised(groups: Iterable[Group]) -> list[Group]:
    """Return every distinct group without its advice, as class `none`, in order of first
    appearance.
    """
    first: dict[str, Group] = {}
    for group in groups:
        first.setdefault(group.unadvised_key, group)
    return [with_advice(group, "", "none", "") for group in first.values()]


def spread(groups: Sequence[Group], per_class: int) -> list[Group]:
    """Return at most `per_class` groups of each class of advice, evenly spread over the file;
    without advice, the groups with the same questions, or as many others.
    """
    members_of = by_class(groups)
    bare = members_of.pop("none", [])
    chosen = [i for members in members_of.values() for i in evenly(members, per_class)]
    questions = {groups[i].unadvised_key for i in chosen}
    same = [i for i in bare if groups[i].unadvised_key in questions]
    others = [i for i in bare if groups[i].unadvised_key not in questions]
    chosen += same + evenly(others, per_class - len(same))
    return [groups[i] for i in chosen]


def evenly(members: Sequence[int], most: int) -> list[int]:
    """Return at most that many members, evenly spaced: four of 0 to 9 are 0, 2, 5, 7."""
    step = max(1.0, len(members) / max(1, most))
    return [members[int(i * step)] for i in range(min(most, len(members)))]


def by_class(groups: Sequence[Group]) -> dict[AdviceClass, list[int]]:
    """Return the indices of the groups of each class."""
    members = defaultdict(list)
    for i, group in enumerate(groups):
        members[group.advice_class].append(i)
    return members


def latent_strength(subject: str, category: str, seed: int) -> float:
    """The planted strength of a subject in a category of attributes ("" for all), uniform in [0,
    1): a function of names and seed, so it is defined for any file of groups.
    """
    return int(text_digest(f"{seed}|{subject.lower()}|{category}")[:16], 16) / 2**64
