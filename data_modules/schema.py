"""The records that every reader yields and everything downstream consumes.

All are frozen; text offsets are character offsets into the untouched context, end-exclusive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

AdviceClass = Literal["ethical", "adversarial", "irrelevant", "none"]
"""The papers' classes of intervention; `none` is a group that carries no advice."""

ADVICE_CLASSES: tuple[AdviceClass, ...] = get_args(AdviceClass)


class DataError(ValueError):
    """Bad input, told in one line: which file or record, which field, and what to do about it."""


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
        if context[self.start : self.end] != self.text:
            raise DataError(
                f"{where}: offset {self.start} cuts {context[self.start : self.end]!r}, not {self.text!r}"
            )


@dataclass(frozen=True, slots=True)
class QAExample:
    """One extractive question. No answers means that the question cannot be answered from the context."""

    id: str
    context: str
    question: str
    answers: tuple[Span, ...] = ()
    advice: str = ""
    """The intervention sentence as it stands before the question (with any lead-in), or empty."""


@dataclass(frozen=True, slots=True)
class UnderspecifiedQuestion:
    """A question whose context does not decide between two subjects.

    `candidates` are in the order of the group's `subjects`, not of the context.
    """

    context: str
    question: str
    candidates: tuple[Span, Span]
    advice: str = ""


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
    variants: tuple[
        UnderspecifiedQuestion, UnderspecifiedQuestion, UnderspecifiedQuestion, UnderspecifiedQuestion
    ]

    @property
    def key(self) -> str:
        """`x1|x2|template|category|attribute|attribute|advice_id`, as in LEI's files (spec 3.3)."""
        parts = (*self.subjects, self.template, self.category, self.attribute, self.attribute, self.advice_id)
        return "|".join(parts)

    @property
    def unadvised_key(self) -> str:
        """The key of the same four variants without any advice."""
        return self.key.rsplit("|", 1)[0]
