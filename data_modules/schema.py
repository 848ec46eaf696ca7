"""The records that every reader yields and everything downstream consumes; and files of them, JSON Lines of
what `dataclasses.asdict` gives.

All are frozen; text offsets are character offsets into the untouched context, end-exclusive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from storage.errors import DataError
from storage.files import atomic_text
from storage.json_files import check

AdviceClass = Literal[
    "ethical", "adversarial", "irrelevant", "none", "mismatched_ethical", "mismatched_adversarial"
]
"""The papers' classes of intervention; `none` is a group that carries no advice. The mismatched classes are
ours: their advice speaks of another domain than the group's subjects (LEI files such advice, where it is
ethical, under irrelevant)."""

ADVICE_CLASSES: tuple[AdviceClass, ...] = get_args(AdviceClass)

LEAD_IN = "Note that, "
"""The papers' words before the sentence of an advice (LEI spec 3.2)."""

NO_CLUSTER = "None"
"""What UnQover writes for the cluster of a row that has none."""

AnswerType = Literal["yes", "no", "unknown", "span", "number", "option"]
"""What kind of answer a question has. A number (none, one ... ten) and an option (a word before or after "or"
in the question) are spans too; only XLNet's heads tell them apart (faithfulness spec 1.4, 2.3)."""

ANSWER_TYPES: tuple[AnswerType, ...] = get_args(AnswerType)

Deletion = Literal["os", "ts", "ts_r", "os_r", "ts_r_aug", "os_r_aug"]
"""The papers' variants of a story: original; truncated after the rationale; truncated before it; rationale
deleted; the last two with a generated sentence in place of the bare answer (faithfulness spec 1.2, 1.5,
1.6)."""

Reformatting = Literal["reworded", "quoted", "spaced"]
"""Edits that keep the meaning (data_modules/interventions/reformatting.py)."""

Variant = Literal[Deletion, Reformatting]

VARIANTS: tuple[Variant, ...] = get_args(Variant)

DELETED: frozenset[Variant] = frozenset({"ts_r", "os_r", "ts_r_aug", "os_r_aug"})
"""The variants without a rationale: a faithful model says unknown."""

REFORMATTED: frozenset[Variant] = frozenset(get_args(Reformatting))
"""The variants that mean the same: a faithful model answers as to the original."""

T = TypeVar("T")
Four = tuple[T, T, T, T]
"""Of the four variants of a question."""

ChoiceTarget = Literal["label", "unknown"]
"""What training wants of a question: the labelled choice; or that choice, which says that the text does not
tell, and all others alike (BBQ's ambiguous questions)."""


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a context: `context[start:end] == text`."""

    start: int
    end: int
    text: str

    @classmethod
    def locate(cls, text: str, context: str, where: str) -> Span:
        """The first occurrence of `text` in `context`; `where` names the record in the error."""
        start = context.find(text)
        if start < 0 or not text:
            raise DataError(f"{where}: {text!r} does not occur in the context {context!r}")
        return cls(start, start + len(text), text)

    def check(self, context: str, where: str) -> None:
        """Raise DataError unless the offsets cut the text that the span claims."""
        found = context[self.start : self.end]
        if self.start < 0 or found != self.text:
            raise DataError(f"{where}: offset {self.start} cuts {found!r}, not {self.text!r}")


@dataclass(frozen=True, slots=True)
class Turn:
    """An earlier question of the same conversation, with its answer."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class QAExample:
    """One question about a context.

    `answers` are spans of this context, the first one the target of training; none for yes, no and unknown.
    """

    id: str
    context: str
    question: str
    answers: tuple[Span, ...] = ()
    advice: str = ""
    """The intervention sentence as it stands before the question (with any lead-in), or empty."""
    answer_type: AnswerType = "span"
    """A span question without a span cannot be answered: its type becomes unknown by itself."""
    history: tuple[Turn, ...] = ()
    """All earlier turns of the conversation, oldest first; the encoding takes the last few."""
    rationale: tuple[Span, ...] = ()
    """What the answer is justified by, in the order of the context; empty where nothing does, or is known."""
    references: tuple[str, ...] = ()
    """The human answers as written, in order and with repeats, which predictions are compared with; those of
    the original story in every variant. Empty: the texts of `answers`."""
    dataset: str = ""
    """Which kind of data this is (squad, coqa, hotpotqa, stories): it decides how answers are scored."""
    domain: str = ""
    """A part of the data set to report on its own, such as CoQA's sources."""
    variant: Variant = "os"
    appended: str = ""
    """What an intervention put behind the story: the answer, or a sentence that contains it."""
    kept: tuple[tuple[int, int], ...] = ()
    """Of a variant: the pieces of the original story that its context begins with, as character offsets into
    the original, end-exclusive. `context` = these pieces joined by nothing, then what was appended."""

    def __post_init__(self) -> None:
        for span in (*self.answers, *self.rationale):
            span.check(self.context, f"question {self.id!r}")
        if self.answer_type in ("span", "number", "option") and not self.answers:
            object.__setattr__(self, "answer_type", "unknown")

    @property
    def gold(self) -> tuple[str, ...]:
        """The texts that predictions are compared with; empty for a question without an answer."""
        return self.references or tuple(span.text for span in self.answers)


@dataclass(frozen=True, slots=True)
class Rejected:
    """An example that an intervention cannot be applied to, and why; reasons are counted and shown."""

    id: str
    reason: str


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
            span.check(self.context, f"question {self.question!r}")


@dataclass(frozen=True, slots=True)
class Group:
    """The four variants of one underspecified question: the unit that UnQover's metrics and LEI's losses
    compare, and therefore never split (LEI spec 1.2, 2.2).

    `variants` holds, in this order: (subjects in order x1 x2, question), (x1 x2, negated question),
    (x2 x1, question), (x2 x1, negated question).
    """

    subjects: tuple[str, str]
    """Lower-cased and sorted: x1 < x2."""
    template: str
    category: str
    attribute: str
    advice_class: AdviceClass
    advice_id: str
    """For example `adversarial_poverty-1`; empty without advice. A group of class `none` that does carry
    advice (planting: advice that means nothing) has an id that tells its copies apart."""
    variants: Four[UnderspecifiedQuestion]
    domain: str = ""
    """What the subjects are instances of (instrument); empty where the source does not say."""
    advice_domain: str = ""
    """What the advice speaks of: the group's domain, of a mismatched class another; empty for plain facts."""

    @property
    def key(self) -> str:
        """`x1|x2|template|category|attribute|attribute|advice_id`, as in LEI's files (spec 3.3)."""
        parts = (*self.subjects, self.template, self.category, self.attribute, self.attribute, self.advice_id)
        return "|".join(parts)

    @property
    def unadvised_key(self) -> str:
        """The key of the same four variants without any advice."""
        return self.key.rsplit("|", 1)[0]

    @property
    def gold(self) -> int | None:
        """Index of the subject whom the contexts of both orders name more often than the other; None where
        they do not decide. A template names both alike, so the added sentence makes the difference, without a
        field for it, as in LEI's own specified set."""
        golds = set()
        for variant in self.variants[::2]:
            names = [span.text for span in variant.candidates]
            counts = [variant.context.count(name) for name in names]
            if counts[0] != counts[1]:  # seldom; then mentions are told apart: African is in African-American
                either = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
                found = re.findall(rf"(?<!\w)(?:{either})(?!\w)", variant.context)
                counts = [found.count(name) for name in names]
            golds.add(None if counts[0] == counts[1] else int(counts[1] > counts[0]))
        return golds.pop() if len(golds) == 1 else None


Boundaries = tuple[float, float]
"""(start, end) boundary probability of one candidate."""
BaseScores = Four[tuple[Boundaries, Boundaries]]
"""[4 variants][2 subjects in the group's order][start, end]: a model's probabilities."""
Targets = Four[int]
"""Per variant, the index into `group.subjects` of the subject that an adversarial loss should raise."""


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """A group with what its file says about a model and its subjects; each may be absent."""

    group: Group
    base_scores: BaseScores | None = None
    targets: Targets | None = None
    clusters: tuple[str, str] | None = None
    """Of the group's subjects, where UnQover's ids name some (female, male)."""
    answers: tuple[str, str] = ("", "")
    """To the question in both orders (`pred`); empty where there was none, or where the file does not say."""


@dataclass(frozen=True, slots=True)
class ChoiceQuestion:
    """One question with its choices, of which one is right (probes spec B2)."""

    id: str
    prompt: str
    """The fields before the choices, joined by single spaces (spec B1); "" is a question left out."""
    choices: tuple[str, ...]
    label: int
    """Slot of the right choice; of a perturbed question, of the pseudo-correct one (spec B3)."""
    benchmark: str = ""
    probe: str = ""
    """The name of the probe that made it, or empty for an original."""
    donors: tuple[int, ...] = ()
    """Indices, among the originals, of the questions that texts were taken from."""
    target: ChoiceTarget = "label"

    def __post_init__(self) -> None:
        if len(self.choices) < 2:
            raise DataError(f"question {self.id}: {len(self.choices)} choice(s), at least 2 are needed")
        if not 0 <= self.label < len(self.choices):
            raise DataError(f"question {self.id}: has {len(self.choices)} choices, its label is {self.label}")


DECODERS = frozenset({"llama", "qwen2", "qwen3", "gpt2", "causal"})
"""Architectures that read prompts (data_modules/encoding/prompts.py, which encoders do without)."""


def query_text(question: str, advice: str) -> str:
    """The question with its advice right before it."""
    return f"{advice} {question}" if advice else question


def write_records(records: Iterable[Any], path: str | Path) -> int:
    """Write a file, whole or not at all; returns how many records it holds."""
    with atomic_text(path) as file:
        lines = (json.dumps(asdict(record), ensure_ascii=False) + "\n" for record in records)
        return sum(1 for line in lines if file.write(line))


def read_questions(rows: Iterable[tuple[str, Any]], source: str) -> Iterator[QAExample]:
    """(place, row) of a file of questions -> questions; DataError names the place and the field."""
    yield from (check(row, QAExample, where) for where, row in rows)


def read_groups(rows: Iterable[tuple[str, Any]], source: str) -> Iterator[Group | ScoredGroup]:
    """The groups of a file of groups, or of groups with scores."""
    for where, row in rows:
        scored = isinstance(row, dict) and "group" in row
        yield check(row, ScoredGroup, where) if scored else check(row, Group, where)
