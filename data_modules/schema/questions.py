"""Records of questions, with answers in a text or with choices, and files of records: JSON Lines in
the form of `dataclasses.asdict`.

All records are frozen; text offsets are character offsets into the unmodified context,
end-exclusive.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

from interventune.storage.documents import DataError, Rows, StrPath, atomic_text, check, own_yaml

Texts = tuple[str, ...]
"""Texts in order."""
TextPair = tuple[str, str]
Place = tuple[int, int]
"""Character offsets of a piece of a text, end-exclusive."""
Places = tuple[Place, ...]

AnswerType = Literal["yes", "no", "unknown", "span", "number", "option"]
"""Types of answers. A number (none, one ... ten) and an option (a word before or after "or" in the
question) are spans too; only XLNet's heads distinguish them (Chaturvedi et al. 2023, section 4.2).
"""

ANSWER_TYPES = get_args(AnswerType)

Deletion = Literal["os", "ts", "ts_r", "os_r", "ts_r_aug", "os_r_aug"]
"""The papers' variants of a story: original; truncated after the rationale; truncated before it;
rationale deleted; the last two with a generated sentence instead of the bare answer (Chaturvedi et
al. 2023, section 5).
"""

Reformatting = Literal["reworded", "quoted", "spaced"]
"""Edits that keep the meaning (data_modules/interventions/edits.py)."""

Exchange = Literal["swap", "near_miss"]
"""Changes that use material of another question (data_modules/interventions/edits.py)."""

Variant = Literal[Deletion, Reformatting, Exchange]

VARIANTS = get_args(Variant)

DELETED = frozenset({"ts_r", "os_r", "ts_r_aug", "os_r_aug", "near_miss"})
"""The variants without a rationale, for which a faithful model says unknown."""

REFORMATTED = frozenset(get_args(Reformatting))
"""The variants with the same meaning, for which a faithful model keeps its answer."""

EXCHANGED = frozenset(get_args(Exchange))
"""The variants that need all questions of a file."""

ChoiceTarget = Literal["label", "unknown"]
"""Training target of a question: the labelled choice; or that choice, which says that the answer is
unknown, with all others equally likely (BBQ's ambiguous questions).
"""


@dataclass(frozen=True)
class Traits:
    """What is particular to a data set (a row of datasets.yaml); the defaults are those of a name
    without a row.

    Args:
        scoring: how a question's references give one score
            (interventune.metrics.answers.score_answer).
        conversation: whether a question is marked as a turn, even the first one, as in the code of
            Chaturvedi et al. 2023.
        rationales: whether people marked the rationales. Then a question may have none, and the
            place of its answer was searched for.
        variants: those in the paper's Tables 4 and 5.
    """

    scoring: Literal["max", "leave_one_out", "hotpotqa"] = "max"
    conversation: bool = False
    rationales: bool = False
    variants: tuple[Variant, ...] = ("os", "ts", "ts_r")


DATASETS = own_yaml(__file__, dict[str, Traits], "datasets.yaml")


def traits(dataset: str) -> Traits:
    """Return the traits of a data set (`QAExample.dataset`).

    >>> traits("coqa").scoring, traits("mine").scoring
    ('leave_one_out', 'max')
    """
    return DATASETS.get(dataset, Traits())


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a context: `context[start:end] == text`."""

    start: int
    end: int
    text: str

    def check(self, context: str, question: str) -> None:
        """DataError, naming the question, unless the text is at this place in its context."""
        if context[self.start : self.end] != self.text or self.start < 0:
            raise DataError(f"question {question!r}: offset {self.start} cuts no {self.text!r}")

    @classmethod
    def locate(cls, text: str, context: str, where: str) -> Span:
        """Return the first occurrence of `text` in `context`; errors begin with `where`."""
        start = context.find(text)
        if start < 0 or not text:
            raise DataError(f"{where}: {text!r} does not occur in the context {context!r}")
        return cls(start, start + len(text), text)


Spans = tuple[Span, ...]


def single_spaced(text: str) -> str:
    """Return a text whose white space is single spaces, none of them at its ends."""
    return " ".join(text.split())


def distinct(texts: Iterable[str]) -> set[str]:
    """Return the texts without differences of case and white space."""
    return {single_spaced(text).casefold() for text in texts}


def asked(record: Any) -> str:
    """The question of a record, preceded by its advice."""
    return f"{record.advice} {record.question}" if record.advice else record.question


@dataclass(frozen=True, slots=True)
class Turn:
    """An earlier question of the same conversation, with its answer."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class QAExample:
    """One question about a context.

    `answers` are spans of this context, the first one the target of training; none for yes, no and
    unknown.
    """

    id: str
    context: str
    question: str
    answers: Spans = ()
    advice: str = ""
    """The sentence of advice as written before the question (with any lead-in), or empty."""
    answer_type: AnswerType = "span"
    """A span question without an answer is unanswerable: its type automatically becomes unknown.
    One with references alone has an answer that is not in the text.
    """
    history: tuple[Turn, ...] = ()
    """All earlier turns of the conversation, oldest first; the encoding uses the last few."""
    rationale: Spans = ()
    """Evidence for the answer, in the order of the context; empty if there is none or it is not
    known.
    """
    references: Texts = ()
    """The human answers as written, in order and with repeats, to which predictions are compared;
    those of the original story in every variant except `swap`. Empty: the texts of `answers`.
    """
    remembered: Texts = ()
    """Answers that a model may remember although the context contradicts them: for `swap`, those of
    the original; for CoConflictQA, the one that a model gave without the context.
    """
    dataset: str = ""
    """The kind of data set (squad, coqa, hotpotqa, stories), which decides how answers
    are scored.
    """
    domain: str = ""
    """A part of the data set to report separately, such as CoQA's sources."""
    article: str = ""
    """The article that the context is a paragraph of, if the source states it."""
    variant: Variant = "os"
    appended: str = ""
    """What an intervention appended to the story: the answer, or a sentence that contains it."""
    kept: Places = ()
    """For a variant: the pieces of the original story that its context begins with. `context` =
    these pieces concatenated, then the appended text.
    """

    def __post_init__(self) -> None:
        for span in (*self.answers, *self.rationale):
            span.check(self.context, self.id)
        if self.answer_type in ("span", "number", "option") and not self.gold:
            object.__setattr__(self, "answer_type", "unknown")

    query = property(asked)

    @property
    def gold(self) -> Texts:
        """The texts to which predictions are compared; empty for a question without an answer."""
        return self.references or tuple(span.text for span in self.answers)

    def unanswered(self, **changes: Any) -> QAExample:
        """Return the changed question, with unknown as its answer."""
        return replace(self, answers=(), answer_type="unknown", rationale=(), **changes)


class Answer(NamedTuple):
    """The answer to one question."""

    example: int
    """Index of the question in its set or call."""
    text: str
    """As the model writes it; metrics/unknown.py decides whether it says unknown, as "" of a span
    model.
    """
    score: float = math.nan
    """Sum of start and end logit in the best window; -inf if no window allowed an answer. For an
    answer type (yes, no, ...): its score. NaN for written text.
    """
    start: int = -1
    """Start of the text in the context; -1 for an answer that is not from there."""
    unknown_score: float = math.nan
    """Score of unknown minus that of the best other answer; with XLNet's heads, the probability of
    unknown; NaN for written text. Comparable between the questions of one model.
    """
    guess: str = ""
    """The text of the best answer other than unknown, if there is an `unknown_score`."""
    failure: str = ""
    """Reason why there is no answer: such a question is counted separately and never scored."""


class Rejected(NamedTuple):
    """The reason why an intervention cannot be applied to an example; they are counted."""

    reason: str


Outcome = QAExample | Rejected
"""Of an intervention: the variant, or the reason why there is none."""


@dataclass(frozen=True)
class ChoiceQuestion:
    """One question with its choices, one of which is right."""

    id: str
    prompt: str
    """The fields before the choices, joined by single spaces; "" if the question is left out."""
    choices: Texts
    label: int
    """Index of the right choice; for a perturbed question, of the pseudo-correct one (Shen and
    Kejriwal 2022, section 1).
    """
    benchmark: str = ""
    probe: str = ""
    """Name of the probe that made it, or empty for an original."""
    donors: tuple[int, ...] = ()
    """Indices, among the originals, of the questions that texts were taken from."""
    target: ChoiceTarget = "label"

    def __post_init__(self) -> None:
        if len(self.choices) < 2:
            raise DataError(
                f"question {self.id}: {len(self.choices)} choice(s), at least 2 are needed"
            )
        if not 0 <= self.label < len(self.choices):
            raise DataError(
                f"question {self.id}: has {len(self.choices)} choices, its label is {self.label}"
            )


def read_questions(rows: Rows, source: str) -> Iterator[QAExample]:
    """(place, row) of a file of questions -> questions; DataError names the place and the field."""
    for where, row in rows:
        example = check(row, QAExample, where)
        if example.answers and example.answer_type in ("yes", "no", "unknown"):
            raise DataError(
                f"{where}: answer_type is {example.answer_type}, so there can be no 'answers'"
            )
        yield example


def write_records(records: Iterable[Any], path: StrPath) -> int:
    """Write a whole file or nothing; return the number of records."""
    number = 0
    with atomic_text(path) as file:
        for record in records:
            number += 1
            file.write(json.dumps(asdict(record), ensure_ascii=False) + "\n")
    return number
