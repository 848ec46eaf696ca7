"""Variants that use another question of the same file, and the material that a file provides
(`Pool`).

- `swap`: another answer of the same shape replaces the answer everywhere in the story. A model that
  reads gives the new answer; a model that remembers gives the old one.
- `misplaced`: the question is combined with the paragraph of its article that shares most words
  with it and does not contain an answer. A faithful model says unknown.
- `near_miss`: one name, number or word of the question is changed, by English rules, so that the
  story does not answer it. A faithful model says unknown.

Everything is deterministic: draws depend on the question's id.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import permutations
from random import Random
from typing import Literal, NamedTuple

from interventune.data_modules.interventions.reformatting import edited
from interventune.data_modules.questions.answer_spans import NUMBER_WORDS, normalised, occurs
from interventune.data_modules.schema.questions import AnswerType, QAExample, Rejected, Variant
from interventune.data_modules.schema.spans import Span

Shape = Literal["number", "date", "name", "other"]

DRAWS = 50
"""Number of candidate answers drawn for a story; a pool of all of SQuAD has tens of thousands."""

_MONTH = re.compile(
    r"\b(?:January|February|March|April|May|June|July|August|September|October|November|December)\b"
)
_YEAR = re.compile(r"(?:\w+ )?(?:1\d|20)\d\ds?")
_QUANTITY = re.compile(r"[-−+~$£€]?\s?\d[\d.,]*(?:\W|$)")
_ASKING = r"(?!(?:Who|Whom|Whose|What|Which|When|Where|Why|How)\b)"
_MENTION = re.compile(
    rf"(?<!^)\b{_ASKING}[A-Z][\w'’-]*(?: (?:of |the |de |la |von )?[A-Z][\w'’-]*)*|\b\d[\d,.]*\b"
)
_NEGATED = re.compile(r"\b(?:did|does|do|is|are|was|were|has|have|had|could|would)\b")
_PAIRS = """first last, most least, more less, more fewer, before after, early late, earliest
latest, earlier later, largest smallest, larger smaller, large small, highest lowest,
higher lower, high low, best worst, better worse, longest shortest, oldest youngest,
older younger, old new, north south, northern southern, east west, eastern western, top
bottom, inside outside, internal external, upper lower, above below, won lost, win lose,
increase decrease, increased decreased, rise fall, rose fell, began ended, begin end,
start end, started ended, beginning end, support oppose, supported opposed, include
exclude, included excluded, built destroyed, created destroyed, bought sold, buy sell,
accepted rejected, allowed forbidden, cause prevent, caused prevented, always never,
with without, public private, major minor, maximum minimum, positive negative, male
female, men women, father mother, son daughter, king queen, day night, summer winter,
war peace, rich poor, strong weak, possible impossible, legal illegal, modern ancient,
common rare, same different"""
OPPOSITES = {a: b for pair in re.split(r",\s", _PAIRS) for a, b in permutations(pair.split())}
_SMALL = frozenset(
    {"a", "an", "and", "at", "de", "for", "in", "la", "of", "on", "the", "to", "von"}
)


class Pool(NamedTuple):
    """The material that a file's questions provide for each other."""

    answers: Mapping[tuple[AnswerType, Shape], Sequence[str]]
    """The distinct first answers, as written in the stories."""
    paragraphs: Mapping[str, Iterable[str]]
    """The distinct contexts of each article, in file order."""
    mentions: Mapping[tuple[str, Shape], Mapping[str, str]]
    """The first answers of each article, by their shape, with their normal form."""


def pool_of(examples: Iterable[QAExample]) -> Pool:
    """Collect the pool of the originals of a file."""
    answers = defaultdict[tuple[AnswerType, Shape], dict[str, None]](dict)
    paragraphs = defaultdict[str, dict[str, None]](dict)
    mentions = defaultdict[tuple[str, Shape], dict[str, str]](dict)
    for example in examples:
        for text in [span.text.strip() for span in example.answers[:1] if normalised(span.text)]:
            answers[example.answer_type, shape(text)][text] = None
            mentions[example.article, shape(text)][text] = normalised(text)
        if example.article:
            paragraphs[example.article][example.context] = None
    return Pool({key: list(texts) for key, texts in answers.items()}, paragraphs, mentions)


def shape(answer: str) -> Shape:
    """Classify an answer by its letters and digits alone.

    >>> [shape(text) for text in ("24", "two million", "$1.2 billion")]
    ['number', 'number', 'number']
    >>> [shape(text) for text in ("February 7, 2016", "in 1998", "May", "Theresa May")]
    ['date', 'date', 'date', 'name']
    >>> [shape(text) for text in ("the University of Rome", "a red ball", "It was late")]
    ['name', 'other', 'other']
    """
    words = answer.split()
    month = _MONTH.search(answer)
    if _YEAR.fullmatch(answer) or (month and (month[0] == answer or re.search(r"\d", answer))):
        return "date"
    if _QUANTITY.match(answer) or (words[:1] and words[0] in NUMBER_WORDS):
        return "number"
    begins = [re.sub(r"\W", "", word)[:1] for word in words if word.lower() not in _SMALL]
    return (
        "name" if any(map(str.isupper, begins)) and not any(map(str.islower, begins)) else "other"
    )


def swap(example: QAExample, pool: Pool) -> QAExample | Rejected:
    """Replace the first answer everywhere in the story by another of the same shape: the first that
    fits, in order of similarity in number of words, of those drawn.

    The new answer becomes the reference and `answers`; the old ones become `remembered`. No old
    answer remains in the story, and the new one was neither in the story nor in the question, both
    in SQuAD's normal form.
    """
    answer = example.answers[0].text.strip() if example.answers else ""
    if not normalised(answer):
        return Rejected("no answer span")
    story, old = example.context, tuple(dict.fromkeys((*filter(normalised, example.gold), answer)))
    old_words = [*map(normalised, old)]
    turns = (text for turn in example.history for text in (turn.question, turn.answer))
    asked = normalised("\n".join([example.question, *turns]))
    if any(occurs(words, asked) for words in old_words):
        return Rejected("answer occurs in the question")
    before, after = (
        r"(?<!\w)(?<!\w[-–.,])" * answer[0].isalnum(),
        r"(?!\w|[-–.,]\w)" * answer[-1].isalnum(),
    )
    pattern = re.compile(before + re.escape(answer) + after)
    starts, ends = ([match.span()[side] for match in pattern.finditer(story)] for side in (0, 1))
    first = example.answers[0].start + example.answers[0].text.index(answer)
    if first not in starts or story.count(answer) != len(starts):
        return Rejected("answer stands inside a longer word")
    rest = normalised("\n".join(pattern.split(story)))
    if any(occurs(words, rest) for words in old_words):
        return Rejected("answer is left in the story in other words")
    others = pool.answers.get((example.answer_type, shape(answer)), [])
    everything = "\n".join([normalised(story), asked, *old_words])
    drawn = Random(f"swap/0/{example.id}").sample(others, min(len(others), DRAWS))
    for new in sorted(drawn, key=lambda text: abs(len(text.split()) - len(answer.split()))):
        new_words = normalised(new)
        if new_words not in everything and not any(occurs(words, new_words) for words in old_words):
            break
    else:
        return Rejected("no other answer of its shape that the story lacks")
    example = replace(example, answers=(Span(first, first + len(answer), answer),))
    context, longer = pattern.sub(lambda _: new, story), len(new) - len(answer)
    return edited(example, context, starts, ends, longer, references=(new,), remembered=old)


def misplace(example: QAExample, pool: Pool) -> QAExample | Rejected:
    """Combine the question with the paragraph of its article that shares most distinct words with
    it, of those without an answer, even inside longer words; on ties the first in the file.
    """
    if not example.answers or not example.article:
        return Rejected("article is not known" if example.answers else "no answer span")
    asked, old = words_of(example.question), [*filter(None, map(normalised, example.gold))]
    others = [text for text in pool.paragraphs.get(example.article, ()) if text != example.context]
    for context in sorted(others, key=lambda text: -len(asked & words_of(text))):
        if not any(words in normalised(context) for words in old):
            return example.unanswered(context=context, kept=())
    return Rejected("no other paragraph of its article without the answer")


def near_miss(example: QAExample, pool: Pool) -> QAExample | Rejected:
    """Change the question: replace a name, number or date by another (an answer of the same shape
    from its article, preferably from its story), use an opposite, or negate; drawn 3 : 2 : 1 where
    possible. The kinds are SQuAD 2's (Rajpurkar et al. 2018, Table 1: entity swap, antonym,
    negation).
    """
    if not example.answers:
        return Rejected("no answer span")
    question, random = example.question, Random(f"near_miss/0/{example.id}")
    asked, old = normalised(question), [*filter(None, map(normalised, example.gold))]
    exchanged, opposite, negated = list[str](), list[str](), list[str]()
    body = re.sub(r"^\W+", "", question)  # its first word is no name
    for match in _MENTION.finditer(body):
        others = [
            text
            for text, words in pool.mentions.get((example.article, shape(match[0])), {}).items()
            if not any(words in known or known in words for known in (asked, *old))
            and len(text.split()) <= len(match[0].split()) + 2
        ]
        if others := [text for text in others if text in example.context] or others:
            exchanged.append(
                question.removesuffix(body) + _instead(body, match, random.choice(others))
            )
    for match in re.finditer(r"\w+", question):
        if other := OPPOSITES.get(match[0]):
            opposite.append(_instead(question, match, other))
    for match in [*_NEGATED.finditer(question)][:1]:
        negated.append(_instead(question, match, match[0] + random.choice(["n't", " not"])))
    kinds = [
        edits
        for edits, weight in ((exchanged, 3), (opposite, 2), (negated, 1))
        if edits
        for _ in range(weight)
    ]
    if not kinds:
        return Rejected("nothing in the question to change")
    changed = random.choice(random.choice(kinds))
    return example.unanswered(question=changed, kept=((0, len(example.context)),))


def _instead(text: str, match: re.Match[str], new: str) -> str:
    return text[: match.start()] + new + text[match.end() :]


@lru_cache(maxsize=4096)  # questions about one article are consecutive
def words_of(text: str) -> frozenset[str]:
    """Return the distinct words of a text, in lower case."""
    return frozenset(re.findall(r"\w+", text.lower()))


EXCHANGES: Mapping[Variant, Callable[[QAExample, Pool], QAExample | Rejected]] = {
    "swap": swap,
    "misplaced": misplace,
    "near_miss": near_miss,
}
