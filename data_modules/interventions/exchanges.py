"""Changes that take something from another question of the same file, and what a file has to offer (`Pool`).

- `swap`: another answer of the same shape takes the place of the answer, everywhere in the story. A model
  that reads gives the new answer, one that remembers the old one.
- `misplaced`: the question is put to another paragraph of its article, which shares most words with it and
  holds no answer. A faithful model says unknown.

Everything is deterministic: answers are drawn by the question's id.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from random import Random
from typing import Literal, NamedTuple

from data_modules.questions.answer_spans import NUMBER_WORDS, normalised, occurs
from data_modules.schema.questions import AnswerType, QAExample, Rejected
from data_modules.schema.spans import Span

Shape = Literal["number", "date", "name", "other"]

DRAWS = 50
"""Answers that are drawn for a story; a pool of full SQuAD has tens of thousands."""

_MONTH = re.compile(
    r"\b(?:January|February|March|April|May|June|July|August|September|October|November|December)\b"
)
_YEAR = re.compile(r"(?:\w+ )?(?:1\d|20)\d\ds?")
_QUANTITY = re.compile(r"[-−+~$£€]?\s?\d[\d.,]*(?:\W|$)")
_SMALL = frozenset({"a", "an", "and", "at", "de", "for", "in", "la", "of", "on", "the", "to", "von"})


class Pool(NamedTuple):
    """What the questions of a file offer to each other."""

    answers: Mapping[tuple[AnswerType, Shape], Sequence[str]]
    """The first answers, as the stories have them, each once."""
    paragraphs: Mapping[str, Iterable[str]]
    """The contexts of each article, each once, in the order of the file."""


def pool_of(examples: Iterable[QAExample]) -> Pool:
    """The pool of the originals of a file."""
    answers = defaultdict[tuple[AnswerType, Shape], dict[str, None]](dict)
    paragraphs = defaultdict[str, dict[str, None]](dict)
    for example in examples:
        for text in [span.text.strip() for span in example.answers[:1] if normalised(span.text)]:
            answers[example.answer_type, shape(text)][text] = None
        if example.article:
            paragraphs[example.article][example.context] = None
    return Pool({key: list(texts) for key, texts in answers.items()}, paragraphs)


def shape(answer: str) -> Shape:
    """What kind of phrase an answer is, by its letters and digits alone.

    >>> [shape(text) for text in ("24", "two million", "$1.2 billion")]
    ['number', 'number', 'number']
    >>> [shape(text) for text in ("February 7, 2016", "in 1998", "May", "Theresa May")]
    ['date', 'date', 'date', 'name']
    >>> [shape(text) for text in ("the University of Rome", "Super Bowl 50", "a red ball", "It was late")]
    ['name', 'name', 'other', 'other']
    """
    words = answer.split()
    month = _MONTH.search(answer)
    if _YEAR.fullmatch(answer) or (month and (month[0] == answer or re.search(r"\d", answer))):
        return "date"
    if _QUANTITY.match(answer) or (words[:1] and words[0] in NUMBER_WORDS):
        return "number"
    begins = [re.sub(r"\W", "", word)[:1] for word in words if word.lower() not in _SMALL]
    return "name" if any(map(str.isupper, begins)) and not any(map(str.islower, begins)) else "other"


def swap(example: QAExample, pool: Pool) -> QAExample | Rejected:
    """The story with another answer of the same shape in all places of the first answer; of those that are
    drawn the one nearest in number of words that fits.

    The new answer is the reference and `answers`; what the old ones were is `remembered`. No old answer is
    left in the story, and the new one stood neither there nor in what is asked, both in SQuAD's normal form.
    """
    answer = example.answers[0].text.strip() if example.answers else ""
    if not normalised(answer):
        return Rejected(example.id, "no answer span")
    story, old = example.context, tuple(dict.fromkeys((*filter(normalised, example.gold), answer)))
    old_words = [*map(normalised, old)]
    turns = (text for turn in example.history for text in (turn.question, turn.answer))
    asked = normalised("\n".join([example.question, *turns]))
    if any(occurs(words, asked) for words in old_words):
        return Rejected(example.id, "answer occurs in the question")
    before, after = r"(?<!\w)(?<!\w[-–.,])" * answer[0].isalnum(), r"(?!\w|[-–.,]\w)" * answer[-1].isalnum()
    pattern = re.compile(before + re.escape(answer) + after)
    starts, ends = ([match.span()[side] for match in pattern.finditer(story)] for side in (0, 1))
    first = example.answers[0].start + example.answers[0].text.index(answer)
    if first not in starts or story.count(answer) != len(starts):
        return Rejected(example.id, "answer stands inside a longer word")
    rest = normalised("\n".join(pattern.split(story)))
    if any(occurs(words, rest) for words in old_words):
        return Rejected(example.id, "answer is left in the story in other words")
    others = pool.answers.get((example.answer_type, shape(answer)), [])
    everything = "\n".join([normalised(story), asked, *old_words])
    drawn = Random(f"swap/0/{example.id}").sample(others, min(len(others), DRAWS))
    for new in sorted(drawn, key=lambda text: abs(len(text.split()) - len(answer.split()))):
        new_words = normalised(new)
        if new_words not in everything and not any(occurs(words, new_words) for words in old_words):
            break
    else:
        return Rejected(example.id, "no other answer of its shape that the story lacks")
    context, longer = pattern.sub(lambda _: new, story), len(new) - len(answer)

    def moved(start: int, end: int) -> Span:
        """The same piece; one that begins or ends inside an answer has all of the new one."""
        past, begun = bisect_right(ends, start), bisect_left(starts, end)
        start = min([start, *starts[past : past + 1]]) + longer * past
        end = max([end, *ends[:begun][-1:]]) + longer * begun
        return Span(start, end, context[start:end])

    return replace(
        example,
        context=context,
        answers=(moved(first, first + len(answer)),),
        rationale=tuple(moved(span.start, span.end) for span in example.rationale),
        references=(new,),
        remembered=old,
        kept=(),
    )


def misplace(example: QAExample, pool: Pool) -> QAExample | Rejected:
    """The question with that paragraph of its article which shares most different words with it, of those
    without an answer, even inside longer words; of equals the first in the file."""
    if not example.answers or not example.article:
        return Rejected(example.id, "article is not known" if example.answers else "no answer span")
    asked, old = words_of(example.question), [*filter(None, map(normalised, example.gold))]
    others = [text for text in pool.paragraphs.get(example.article, ()) if text != example.context]
    for context in sorted(others, key=lambda text: -len(asked & words_of(text))):
        if not any(words in normalised(context) for words in old):
            gone = replace(example, answers=(), answer_type="unknown", rationale=(), kept=())
            return replace(gone, context=context)
    return Rejected(example.id, "no other paragraph of its article without the answer")


@lru_cache(maxsize=4096)  # the questions about one article follow each other
def words_of(text: str) -> frozenset[str]:
    """The different words of a text, in lower case."""
    return frozenset(re.findall(r"\w+", text.lower()))
