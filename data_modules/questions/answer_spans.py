"""Find a free-form answer in a text, and classify it (faithfulness spec 1.1, 1.4).

    from interventune.data_modules.questions.answer_spans import answer_span, answer_type
    kind, _ = answer_type("A red car", question)
    (span,) = answer_span("A red car", kind, context, rationale)

People's answers need not occur in the text word for word. An answer's span is its verbatim position
in the rationale, else the piece of the text that shares most words with it.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

from interventune.data_modules.schema.questions import AnswerType, QAExample
from interventune.data_modules.schema.spans import Span

NUMBER_WORDS = (
    "none",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
)
"""The answers of type number; `number_class` is the index in this list plus one."""

_SPOKEN: tuple[AnswerType, ...] = ("yes", "no", "unknown")
_ARTICLES = frozenset({"a", "an", "the"})
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)

# A number with its separators, a possessive ending, a word with its apostrophes, one other sign.
_WORD = re.compile(r"\d+(?:[.,]\d+)+|['’]s\b|\w+(?:['’](?!s\b)\w+)*|[^\w\s]", re.IGNORECASE)
_SIGNS = re.compile(r"[\W_]+")


def answer_type(answer: str, question: str) -> tuple[AnswerType, int]:
    """Return the type of an answer, and its class within the type: yes, no and unknown, with or
    without a full stop, in any case; a number in letters, none to ten (1 to 11); the word before
    (1) or after (2) "or" in the question; else a span. The class is 0 for types without classes.

    Spec 1.1.5 for the first three ("Yes, it is" is a span) and, after normalisation, 1.4 for the
    others.
    """
    for kind in _SPOKEN:
        if answer.strip().lower() in (kind, f"{kind}."):
            return kind, 0
    normal, words = normalised(answer), option_words(question)
    if normal in NUMBER_WORDS:
        return "number", NUMBER_WORDS.index(normal) + 1
    return ("option", words.index(normal) + 1) if words and normal in words else ("span", 0)


def answered(
    name: str, context: str, question: str, answer: str, rationale: tuple[Span, ...], **more: Any
) -> QAExample:
    """Return the question with its free-form answer classified and located."""
    kind, _ = answer_type(answer, question)
    spans = answer_span(answer, kind, context, rationale)
    return QAExample(name, context, question, spans, answer_type=kind, rationale=rationale, **more)


def option_words(question: str) -> tuple[str, str] | None:
    """Return the normalised words before and after the first "or" of a question; None unless both
    exist.
    """
    words = normalised(question).split()
    at = words.index("or") if "or" in words else 0
    return (words[at - 1], words[at + 1]) if 0 < at < len(words) - 1 else None


def normalised(text: str) -> str:
    """SQuAD's normal form: lower case, no ASCII punctuation, no articles, single spaces."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def answer_span(
    answer: str,
    kind: AnswerType,
    context: str,
    rationale: Sequence[Span],
    *,
    scope_end: int | None = None,
) -> tuple[Span, ...]:
    """Return the one piece of `context` that represents an answer (spec 1.1.6); none for yes, no
    and unknown.

    First choice: the position of the stripped answer in the rationale, in any case; the first
    between word boundaries, or else the first inside a longer word. Otherwise the piece of
    `context[:scope_end]`, from one word of the answer to another, with the highest F1 to it as a
    bag of words; on ties the earliest, then the shortest. Bags ignore case, punctuation, articles
    and possessive endings.

    An answer that shares no word with its text is represented by the last word of its rationale
    (its last character if it has no word), as the authors take the last word of the text that they
    search; without a rationale, by none.
    """
    if kind in _SPOKEN:
        return ()
    limit = len(context) if scope_end is None else scope_end
    wanted, lowered = _indexed(answer.strip()).lowered, _indexed(context).lowered
    before, after = (r"(?<![^\W_])" * wanted[:1].isalnum(), r"(?![^\W_])" * wanted[-1:].isalnum())
    for pattern in (before + re.escape(wanted) + after, re.escape(wanted)) if wanted else ():
        for piece in rationale:
            found = re.compile(pattern).search(lowered, piece.start)
            if found and found.end() <= min(piece.end, limit):
                return (Span(*found.span(), context[slice(*found.span())]),)
    if place := _best_overlap(answer, context, limit):
        return (Span(*place, context[slice(*place)]),)
    signs = [*_WORD.finditer(rationale[-1].text)] if rationale else []
    last = ([match for match in signs if match[0][0].isalnum()] or signs)[-1:]
    start = rationale[-1].start if rationale else 0
    return tuple(Span(start + match.start(), start + match.end(), match[0]) for match in last)


def occurs(text: str, context: str) -> bool:
    """Whether `text` occurs in `context`, case-sensitively and as whole words; white space is one
    space.
    """
    text, context = " ".join(text.split()), " ".join(context.split())
    if text not in context:
        return False
    before, after = (
        r"(?<!\w)" * bool(re.match(r"\w", text)),
        r"(?!\w)" * bool(re.match(r"\w", text[-1:])),
    )
    return re.search(before + re.escape(text) + after, context) is not None


class _Indexed(NamedTuple):
    """A text, prepared for both searches; word i is text[starts[i]:ends[i]]."""

    lowered: str
    """Lower case, character by character: as long as the text, so that offsets hold ("İ" alone
    stays).
    """
    starts: list[int]
    ends: list[int]
    keys: list[str]
    """What counts of each word in a bag; empty for signs, articles and possessive endings."""
    counted: list[int]
    """Words before word i that count."""


@lru_cache(maxsize=128)  # questions about one text are consecutive
def _indexed(text: str) -> _Indexed:
    lowered = "".join(low if len(low := char.lower()) == 1 else char for char in text)
    found = list(_WORD.finditer(lowered))
    bare = (_SIGNS.sub("", match[0]) for match in found)
    keys = [
        "" if word in _ARTICLES or match[0][0] in "'’" else word
        for word, match in zip(bare, found, strict=True)
    ]
    counted = [0, *accumulate(bool(key) for key in keys)]
    return _Indexed(lowered, [m.start() for m in found], [m.end() for m in found], keys, counted)


def _best_overlap(answer: str, context: str, limit: int) -> tuple[int, int] | None:
    words, wanted = _indexed(context), Counter(filter(None, _indexed(answer.strip()).keys))
    size = wanted.total()
    candidates = [i for i, key in enumerate(words.keys) if key in wanted and words.ends[i] <= limit]
    best, found = 0.0, None
    for rank, first in enumerate(candidates):
        missing, shared = dict(wanted), 0
        for last in candidates[rank:]:
            total = size + words.counted[last + 1] - words.counted[first]
            if (
                2 * size / total <= best
            ):  # even all words of the answer would not suffice, here or later
                break
            if missing[words.keys[last]]:
                missing[words.keys[last]] -= 1
                shared += 1
            if 2 * shared / total > best:
                best, found = 2 * shared / total, (words.starts[first], words.ends[last])
    return found
