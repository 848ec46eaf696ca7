"""Find a free-form answer in a text, and classify it (Chaturvedi et al. 2023, sections 4.1, 4.2).

    from interventune.data_modules.questions.answer_spans import answer_span, answer_type
    kind, _ = answer_type("A red car", question)
    (span,) = answer_span("A red car", context, rationale)

People's answers need not occur in the text word for word. An answer's span is its verbatim position
in the rationale, else the piece of the text that shares most words with it, as in the authors'
code.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import inf
from typing import Any, NamedTuple

from interventune.data_modules.schema.questions import (
    AnswerType,
    Place,
    QAExample,
    Span,
    Spans,
    Texts,
    single_spaced,
)

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

_WHOLE_WORDS = r"(?!\B\w){}(?<!\w\B)"
"""The text in braces, unless it begins or ends inside a word."""
APART = r"(?:(?<![^\W_])|(?![^\W_])){}(?:(?![^\W_])|(?<![^\W_]))"
"""The same, but underscores separate words."""
# A number with its separators, a possessive ending, a word with its apostrophes, one other sign.
_WORD = re.compile(r"\d+(?:[.,]\d+)+|['’]s\b|\w+(?:['’](?!s\b)\w+)*|[^\w\s]", re.IGNORECASE)
_SIGNS = re.compile(r"[\W_]+")


def answer_type(answer: str, question: str) -> tuple[AnswerType, int]:
    """Return the type of an answer, and its class within the type: yes, no and unknown, with or
    without a full stop, in any case; a number in letters, none to ten (1 to 11); the word before
    (1) or after (2) "or" in the question; else a span. The class is 0 for types without classes.

    As in the authors' code, "Yes, it is" is a span, and numbers and options are compared in SQuAD's
    normal form.
    """
    spoken = answer.strip().lower().removesuffix(".")
    for kind in _SPOKEN:
        if spoken == kind:
            return kind, 0
    normal = normalised(answer)
    words = option_words(question)
    if normal in NUMBER_WORDS:
        return "number", NUMBER_WORDS.index(normal) + 1
    return ("option", words.index(normal) + 1) if normal in words else ("span", 0)


def answered(
    name: str, context: str, question: str, answer: str, rationale: Spans, **more: Any
) -> QAExample:
    """Return the question with its free-form answer classified and located."""
    kind, _ = answer_type(answer, question)
    spans = () if kind in _SPOKEN else answer_span(answer, context, rationale)
    return QAExample(name, context, question, spans, answer_type=kind, rationale=rationale, **more)


def option_words(question: str) -> Texts:
    """Return the normalised words before and after the first "or" of a question; empty unless both
    exist.
    """
    words = normalised(question).split()
    at = words.index("or") if "or" in words else 0
    return (words[at - 1], words[at + 1]) if 0 < at < len(words) - 1 else ()


def normalised(text: str) -> str:
    """SQuAD's normal form: lower case, no ASCII punctuation, no articles, single spaces."""
    return single_spaced(_ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)))


def answer_span(
    answer: str, context: str, rationale: Sequence[Span], *, scope_end: float = inf
) -> Spans:
    """Return the one piece of `context` that represents an answer that the text should contain.

    First choice: the position of the stripped answer in the rationale, in any case; the first
    between word boundaries, or else the first inside a longer word. Otherwise the piece of
    `context[:scope_end]`, from one word of the answer to another, with the highest F1 to it as a
    bag of words; on ties the earliest, then the shortest. Bags ignore case, punctuation, articles
    and possessive endings.

    An answer that shares no word with its text is represented by the last word of its rationale
    (its last character if it has no word), as the authors take the last word of the text that they
    search; without a rationale, by none.
    """
    place = (
        _verbatim(answer, context, rationale, scope_end)
        or _best_overlap(answer, context, scope_end)
        or _last_word(context, rationale)
    )
    return (Span(*place, context[slice(*place)]),) if place else ()


def _verbatim(answer: str, context: str, rationale: Sequence[Span], limit: float) -> Place | None:
    """The answer's place in the rationale, in any case; before `limit`."""
    text = _indexed(answer.strip()).lowered
    lowered = _indexed(context).lowered
    for pattern in (APART, "{}") if text else ():
        search = re.compile(pattern.format(re.escape(text))).search
        for piece in rationale:
            match = search(lowered, piece.start)
            if match and match.end() <= min(piece.end, limit):
                return match.span()
    return None


def _last_word(context: str, rationale: Sequence[Span]) -> Place | None:
    """The last word of the last rationale, or its last sign."""
    if not rationale:
        return None
    tokens = list(_WORD.finditer(context, rationale[-1].start, rationale[-1].end))
    words = [token for token in tokens if token[0][0].isalnum()] or tokens
    return words[-1].span() if words else None


def occurs(text: str, context: str) -> bool:
    """Whether `text` occurs in `context`, case-sensitively and as whole words; white space is one
    space.
    """
    text = single_spaced(text)
    context = single_spaced(context)
    return text in context and bool(re.search(_WHOLE_WORDS.format(re.escape(text)), context))


class _Indexed(NamedTuple):
    """A text, prepared for both searches."""

    lowered: str
    """Lower case, character by character: as long as the text, so that offsets hold ("İ" alone
    stays).
    """
    places: list[Place]
    keys: list[str]
    """What counts of each word in a bag; empty for signs, articles and possessive endings."""
    counted: list[int]
    """Number of words that count before each word."""


@lru_cache(maxsize=128)  # questions about one text are consecutive
def _indexed(text: str) -> _Indexed:
    lowered = "".join(char.lower() if len(char.lower()) == 1 else char for char in text)
    places = []
    keys = []
    for match in _WORD.finditer(lowered):
        word = _SIGNS.sub("", match[0])
        places.append(match.span())
        keys.append("" if word in _ARTICLES or match[0][0] in "'’" else word)
    return _Indexed(lowered, places, keys, [0, *accumulate(map(bool, keys))])


def _best_overlap(answer: str, context: str, limit: float) -> Place | None:
    """The place before `limit` that has the highest F1 to the answer."""
    words = _indexed(context)
    bag = Counter(filter(None, _indexed(answer.strip()).keys))
    size = bag.total()
    candidates = [
        i for i, key in enumerate(words.keys) if key in bag and words.places[i][1] <= limit
    ]
    best_f1 = 0.0
    best = None
    for rank, first in enumerate(candidates):
        missing = dict(bag)
        shared = 0
        for last in candidates[rank:]:
            total = size + words.counted[last + 1] - words.counted[first]
            # Even all words of the answer would not suffice, here or later.
            if 2 * size / total <= best_f1:
                break
            if missing[words.keys[last]]:
                missing[words.keys[last]] -= 1
                shared += 1
            if 2 * shared / total > best_f1:
                best_f1 = 2 * shared / total
                best = (words.places[first][0], words.places[last][1])
    return best
