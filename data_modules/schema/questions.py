"""Records of questions, with answers in a text or with choices: what every reader yields and everything
downstream takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

from data_modules.schema.spans import Span
from storage.errors import DataError
from storage.json_files import check

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

Exchange = Literal["swap", "misplaced", "near_miss"]
"""Changes that take something from another question (data_modules/interventions/exchanges.py)."""

Variant = Literal[Deletion, Reformatting, Exchange]

VARIANTS: tuple[Variant, ...] = get_args(Variant)

DELETED: frozenset[Variant] = frozenset({"ts_r", "os_r", "ts_r_aug", "os_r_aug", "misplaced", "near_miss"})
"""The variants without a rationale: a faithful model says unknown."""

REFORMATTED: frozenset[Variant] = frozenset(get_args(Reformatting))
"""The variants that mean the same: a faithful model answers as to the original."""

EXCHANGED: frozenset[Variant] = frozenset(get_args(Exchange))
"""The variants that need all questions of a file."""

ChoiceTarget = Literal["label", "unknown"]
"""What training wants of a question: the labelled choice; or that choice, which says that the text does not
tell, and all others alike (BBQ's ambiguous questions)."""


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
    the original story in every variant but `swap`. Empty: the texts of `answers`."""
    remembered: tuple[str, ...] = ()
    """Answers that a model may remember although the context says another thing: of `swap` those of the
    original, of CoConflictQA the one that a model gave without the context."""
    dataset: str = ""
    """Which kind of data this is (squad, coqa, hotpotqa, stories): it decides how answers are scored."""
    domain: str = ""
    """A part of the data set to report on its own, such as CoQA's sources."""
    article: str = ""
    """Which text the context is a paragraph of, where the source says it."""
    variant: Variant = "os"
    appended: str = ""
    """What an intervention appended to the story: the answer, or a sentence that contains it."""
    kept: tuple[tuple[int, int], ...] = ()
    """Of a variant: the pieces of the original story that its context begins with, as character offsets into
    the original, end-exclusive. `context` = these pieces joined by nothing, then what was appended."""

    def __post_init__(self) -> None:
        for span in (*self.answers, *self.rationale):
            if self.context[span.start : span.end] != span.text or span.start < 0:
                raise DataError(f"question {self.id!r}: offset {span.start} cuts no {span.text!r}")
        if self.answer_type in ("span", "number", "option") and not self.answers:
            object.__setattr__(self, "answer_type", "unknown")

    @property
    def query(self) -> str:
        """The question with its advice right before it."""
        return f"{self.advice} {self.question}" if self.advice else self.question

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


def read_questions(rows: Iterable[tuple[str, Any]], source: str) -> Iterator[QAExample]:
    """(place, row) of a file of questions -> questions; DataError names the place and the field."""
    yield from (check(row, QAExample, where) for where, row in rows)
