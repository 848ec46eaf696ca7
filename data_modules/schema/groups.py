"""Records of underspecified questions: groups, which readers yield and all other code uses."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from interventune.storage.documents import Rows, check

from .questions import Span

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

    @property
    def query(self) -> str:
        """The question, preceded by its advice."""
        return f"{self.advice} {self.question}" if self.advice else self.question


@dataclass(frozen=True, slots=True)
class Group:
    """The four variants of one underspecified question.

    They are the unit that UnQover's metrics and LEI's losses compare, and therefore never split
    (Zhao et al. 2021, appendix B.2).

    `variants` contains, in this order: (subjects in order x1 x2, question), (x1 x2, negated
    question), (x2 x1, question), (x2 x1, negated question).
    """

    subjects: tuple[str, str]
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
        what = (self.template, self.category, self.attribute, self.attribute, self.advice_id)
        return "|".join(self.subjects + what)

    @property
    def unadvised_key(self) -> str:
        """The key of the same four variants without any advice."""
        return self.key.rsplit("|", 1)[0]

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

Targets = Four[int]
"""Per variant, the index into `group.subjects` of the subject that an adversarial loss should
raise.
"""


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """A group with what its file says about a model and its subjects; each field may be absent."""

    group: Group
    base_scores: BaseScores | None = None
    targets: Targets | None = None
    clusters: tuple[str, str] | None = None
    """Clusters of the group's subjects, if UnQover's ids name them (female, male)."""
    answers: tuple[str, str] = ("", "")
    """Answers to the question in both orders (`pred`); empty if there was none or the file has no
    answers.
    """


def read_groups(rows: Rows, source: str) -> Iterator[Group | ScoredGroup]:
    """Read the groups of a file of groups, or of groups with scores."""
    for where, row in rows:
        kind: Any = ScoredGroup if "group" in row else Group
        yield check(row, kind, where)
