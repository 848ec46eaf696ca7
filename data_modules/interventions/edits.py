"""Variants that edit the story or the question.

Edits that keep the meaning; a faithful model answers as before (Chaturvedi et al. 2023, Figure 5):

- `spaced`: doubled spaces between the sentences of the story, and after the first word of the
  question.
- `quoted`: typographic quotation marks and apostrophes instead of straight ones, or the reverse.
- `reworded`: another question word, from this project's list (edits.yaml).

Exchanges, which use another question of the same file, and the material that it provides (`Pool`):

- `swap`: another answer of the same shape replaces the answer everywhere in the story. A model that
  reads gives the new answer; a model that remembers gives the old one.
- `near_miss`: one name, number or word of the question is changed, by English rules, so that the
  story does not answer it. A faithful model says unknown.

Everything is deterministic: draws depend on the question's id. Answers and rationales move with the
text.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import permutations
from random import Random
from typing import Any, Literal, NamedTuple

from interventune.data_modules.questions.answer_spans import NUMBER_WORDS, normalised, occurs
from interventune.data_modules.schema.questions import (
    AnswerType,
    Outcome,
    Place,
    QAExample,
    Rejected,
    Span,
)
from interventune.data_modules.sources import ENGLISH
from interventune.storage.documents import Values, own_yaml

Shape = Literal["number", "date", "name", "other"]


_WORDS = own_yaml(__file__, Values)
OPPOSITES = {word: other for pair in _WORDS["opposites"] for word, other in permutations(pair)}
FRAMES: list[str] = _WORDS["frames"]
_BETWEEN_SENTENCES = re.compile(r"(?<=[.!?] )(?=\S)")
_CURLY = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'"})
DRAWS = 50
"""Number of candidate answers drawn for a story; a pool of all of SQuAD has tens of thousands."""

_MONTH = re.compile(
    r"\b(?:January|February|March|April|May|June|July|August|September|October|November|December)\b"
)
_YEAR = re.compile(r"(?:\w+ )?(?:1\d|20)\d\ds?")
_QUANTITY = re.compile(r"[-−+~$£€]?\s?\d[\d.,]*(?:\W|$)")
_ASKING = r"(?!(?:Who|Whom|Whose|What|Which|When|Where|Why|How)\b)"
_NAME = r"[A-Z](?:(?!['’]s\b)[\w'’-])*"
_MENTION = re.compile(
    rf"(?<!^)\b{_ASKING}{_NAME}(?: (?:of |the |de |la |von )?{_NAME})*|\b\d[\d,.]*\b"
)
_NEGATED = re.compile(r"\b(?:did|does|do|is|are|was|were|has|have|had|could|would)\b")
_OPEN = re.compile(r"\b(?:who|whom|whose|what|which|how (?:much|many))\b", re.IGNORECASE)
_ALONE = r"(?:(?<!\w)(?<!\w[-–.,])|(?![^\W_])){}(?:(?!\w|[-–.,]\w)|(?<![^\W_]))"
"""The text in braces, unless it is part of a longer word or of a compound."""
_SMALL = re.compile("(?:a|an|and|at|de|for|in|la|of|on|the|to|von)", re.IGNORECASE)


def spaced(example: QAExample) -> Outcome:
    """Double the spaces."""
    places = [match.span() for match in _BETWEEN_SENTENCES.finditer(example.context)]
    question = re.sub(r"(?<=\S) (?=\S)", "  ", example.question, count=1)
    if not places and question == example.question:
        return Rejected("no space between two sentences, nor in the question")
    context = _BETWEEN_SENTENCES.sub(" ", example.context)
    return edited(example, context, places, longer=1, question=question)


def quoted(example: QAExample) -> Outcome:
    """Change the form of quotation marks and apostrophes; to curly if any is straight."""
    text = example.context + example.question
    change = curly_quotes if re.search("[\"']", text) else straight_quotes
    if change(text) == text:
        return Rejected("no quotation mark or apostrophe")
    return edited(example, change(example.context), question=change(example.question))


def straight_quotes(text: str) -> str:
    """Make typographic quotation marks and apostrophes straight, so that `quoted` costs no exact
    match.

    >>> straight_quotes("Ana’s “red” bike")
    'Ana\\'s "red" bike'
    """
    return text.translate(_CURLY)


def curly_quotes(text: str) -> str:
    """Make straight marks typographic: an opening one if no letter or mark precedes it.

    >>> curly_quotes('Ana\\'s "red" bike')
    'Ana’s “red” bike'
    """
    text = re.sub(
        r"""(?<![^ \t\n(\[{\-—])["']""", lambda mark: "“" if mark[0] == '"' else "‘", text
    )
    return text.replace('"', "”").replace("'", "’")


def reworded(example: QAExample) -> Outcome:
    """Replace the question word."""
    question = example.question.lstrip()
    for pattern, words in _WORDS["beginnings"].items():
        match = re.match(pattern.replace("VERBS", _WORDS["verbs"]), question, re.I)
        if match:
            rest = question[match.end() :]
            if not match[0]:  # only preceded
                rest = rest[:1].lower() + rest[1:]
            first = words if question[:1].isupper() else words[:1].lower() + words[1:]
            return edited(example, example.context, question=first + rest)
    return Rejected("begins with no question word of the list")


def edited(
    example: QAExample, context: str, pieces: Sequence[Place] = (), longer: int = 0, **changes: Any
) -> QAExample:
    """Return the example with another context, in which each of these pieces of the old one has
    become so much `longer`. Answers and rationales move; one that begins or ends inside such a
    piece includes all of the new one.
    """

    def moved(span: Span) -> Span:
        starts = [start for start, end in pieces if end > span.start]
        ends = [end for start, end in pieces if start < span.end]
        start = min([span.start, *starts]) + longer * (len(pieces) - len(starts))
        end = max([span.end, *ends]) + longer * len(ends)
        return Span(start, end, context[start:end])

    return replace(
        example,
        context=context,
        answers=tuple(map(moved, example.answers)),
        rationale=tuple(map(moved, example.rationale)),
        kept=((0, len(context)),) if context == example.context else (),
        **changes,
    )


class Pool(NamedTuple):
    """The material that a file's questions provide for each other."""

    answers: dict[tuple[AnswerType, Shape], list[str]]
    """The distinct first answers, as written in the stories."""
    mentions: dict[tuple[str, Shape], dict[str, None]]
    """The first answers of each article, by their shape."""


def pool_of(examples: Iterable[QAExample]) -> Pool:
    """Collect the pool of the originals of a file."""
    answers, mentions = (defaultdict[Any, dict[str, None]](dict) for _ in range(2))
    for example in examples:
        answer = _first_answer(example)
        if normalised(answer):
            answers[example.answer_type, shape(answer)][answer] = None
            mentions[example.article, shape(answer)][answer] = None
    return Pool({key: list(texts) for key, texts in answers.items()}, mentions)


def shape(answer: str) -> Shape:
    """Classify an answer, which is not blank, by its letters and digits alone.

    >>> [shape(text) for text in ("24", "two million", "$1.2 billion")]
    ['number', 'number', 'number']
    >>> [shape(text) for text in ("February 7, 2016", "in 1998", "In May", "Theresa May")]
    ['date', 'date', 'date', 'name']
    >>> [shape(text) for text in ("the University of Rome", "a red ball", "It was late")]
    ['name', 'other', 'other']
    """
    words = answer.split()
    month = _MONTH.search(answer)
    bare = [word for word in words if not _SMALL.fullmatch(word)]
    if _YEAR.fullmatch(answer) or (month and (bare == [month[0]] or re.search(r"\d", answer))):
        return "date"
    if _QUANTITY.match(answer) or words[0] in NUMBER_WORDS:
        return "number"
    initials = [re.sub(r"\W", "", word)[:1] for word in bare]
    capitals = any(map(str.isupper, initials)) and not any(map(str.islower, initials))
    return "name" if capitals else "other"


def swap(example: QAExample, pool: Pool) -> Outcome:
    """Replace the first answer everywhere in the story by another of the same shape: the first that
    fits, in order of similarity in number of words, of those drawn.

    The new answer becomes the reference and `answers`; the old ones become `remembered`. No old
    answer remains in the story, and the new one was neither in the story nor in the question, both
    in SQuAD's normal form.
    """
    answer = _first_answer(example)
    story = example.context
    if not normalised(answer):
        return Rejected("no answer span")
    old = {text: words for text in (*example.gold, answer) if (words := normalised(text))}

    def names_old(text: str) -> bool:
        return any(occurs(words, text) for words in old.values())

    turns = (text for turn in example.history for text in (turn.question, turn.answer))
    question = normalised("\n".join([example.question, *turns]))
    if names_old(question):
        return Rejected("answer occurs in the question")
    pattern = re.compile(_ALONE.format(re.escape(answer)))
    pieces = [match.span() for match in pattern.finditer(story)]
    first = example.answers[0].start + example.answers[0].text.index(answer)
    place = (first, first + len(answer))
    if place not in pieces or story.count(answer) != len(pieces):
        return Rejected("answer stands inside a longer word")
    if names_old(normalised("\n".join(pattern.split(story)))):
        return Rejected("answer is left in the story in other words")
    others = pool.answers.get((example.answer_type, shape(answer)), [])
    everything = "\n".join([normalised(story), question, *old.values()])
    drawn = Random(f"swap/0/{example.id}").sample(others, min(len(others), DRAWS))
    for new in sorted(drawn, key=lambda text: abs(len(text.split()) - len(answer.split()))):
        words = normalised(new)
        if words not in everything and not names_old(words):
            return edited(
                replace(example, answers=(Span(*place, answer),)),
                new.join(pattern.split(story)),
                pieces,
                len(new) - len(answer),
                references=(new,),
                remembered=tuple(old),
            )
    return Rejected("no other answer of its shape that the story lacks")


def near_miss(example: QAExample, pool: Pool) -> Outcome:
    """Change the question: replace a name, number or date of the evidence by another of the same
    shape that the evidence lacks (one of the story, else an answer of its article), which no
    sentence has with a content word of the question; use an opposite that the story lacks; or
    negate, unless it asks who or how many; drawn 3 : 2 : 1 where possible. The kinds are SQuAD 2's
    (Rajpurkar et al. 2018, Table 1: entity swap, antonym, negation).
    """
    if not example.answers:
        return Rejected("no answer span")
    question = example.question
    random = Random(f"near_miss/0/{example.id}")
    evidence = " ".join(span.text for span in example.rationale)
    known = [*filter(None, map(normalised, (question, evidence, *example.gold)))]
    sentences = _BETWEEN_SENTENCES.split(example.context)
    mentions = [name for sentence in sentences for name in _MENTION.findall(sentence)]
    exchanged = []
    negated = []
    body = re.sub(r"^\W+", "", question)  # its first word is no name
    for match in _MENTION.finditer(body):
        if not _stems(match[0]) & _stems(evidence):
            continue
        kind = shape(match[0])
        fits = [
            [
                name
                for name in names
                if shape(name) == kind
                and (words := normalised(name))
                and not any(words in text or text in words for text in known)
                and not _stems(name) & _stems(evidence)
                and not _stated(name, _with_instead(body, match, ""), sentences)
                and len(name.split()) <= len(match[0].split()) + 2
            ]
            for names in (mentions, pool.mentions.get((example.article, kind), ()))
        ]
        if any(fits):
            changed = _with_instead(body, match, random.choice(fits[0] or fits[1]))
            exchanged.append(question.removesuffix(body) + changed)
    opposite = [
        _with_instead(question, match, OPPOSITES[match[0]])
        for match in re.finditer(r"\w+", question)
        if match[0] in OPPOSITES and OPPOSITES[match[0]] not in words_of(example.context)
    ]
    if (verb := _NEGATED.search(question)) and not _OPEN.search(question):
        negated.append(_with_instead(question, verb, verb[0] + random.choice(["n't", " not"])))
    kinds = [edits for edits in (*[exchanged] * 3, *[opposite] * 2, negated) if edits]
    if not kinds:
        return Rejected("nothing in the question to change")
    question = random.choice(random.choice(kinds))
    return example.unanswered(question=question, kept=((0, len(example.context)),))


def _stated(name: str, question: str, sentences: Sequence[str]) -> bool:
    """Whether a sentence has the name with a content word of the question, if this has any."""
    asked = _stems(question)
    return any(name in text and (not asked or asked & _stems(text)) for text in sentences)


@lru_cache(maxsize=4096)
def _stems(text: str) -> frozenset[str]:
    """The first four letters of content words, and numbers."""
    words = words_of(ENGLISH.sub("", text)) - {"have"}
    return frozenset(word[:4] for word in words if len(word) > 3 or word.isdigit())


def _first_answer(example: QAExample) -> str:
    return example.answers[0].text.strip() if example.answers else ""


def _with_instead(text: str, match: re.Match[str], new: str) -> str:
    return text[: match.start()] + new + text[match.end() :]


@lru_cache(maxsize=4096)  # questions about one article are consecutive
def words_of(text: str) -> frozenset[str]:
    """Return the distinct words of a text, in lower case."""
    return frozenset(re.findall(r"\w+", text.lower()))
