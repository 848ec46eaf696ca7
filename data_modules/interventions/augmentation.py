"""Sentences that contain an answer and say nothing else: what the +Aug variants append in its place.

A story without its rationale may still betray that the answer was appended to it as a bare phrase. The +Aug
variants hide it in a sentence (faithfulness spec 1.6): one of the frames below, or one of the user's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random

from data_modules.questions.answer_spans import occurs
from data_modules.schema.questions import QAExample, Rejected

FRAMES = (
    "The note on the wall said {answer}.",
    "A sign by the road said {answer}.",
    "The last line of the song was {answer}.",
    "The title of an old film was {answer}.",
    "On the back of the map it said {answer}.",
    "A voice on the radio said {answer}.",
    "Somebody wrote {answer} on a piece of paper.",
    "An old book had {answer} on its first page.",
    "There was a card with {answer} on it.",
    "Nobody knew why {answer} was in the letter.",
)
"""True of any phrase, be it a name, a number or a clause, because they mention it and do not use it."""

_CLOSED = re.compile(r"[.!?][\"'”’)]*$")
_STRAY = re.compile(r"^(?:[,;]\s*|[-–—:]+\s+)+|(?:\s*[,;:]|\s+[-–—])+(?=\s*[.!?]*$)|\s+(?=[.!?]*$)")
"""Punctuation at the ends that belongs to no answer: commas and their like, a dash that stands alone."""
_PAIRS = (('"', '"'), ("“", "”"), ("«", "»"), ("(", ")"), ("[", "]"))


def template_sentence(example: QAExample) -> str:
    """A frame around the first gold answer, drawn by the example's id; the answer keeps its case, and loses
    the stray punctuation at its ends, as `mustard,`. One with a full stop of its own ends the sentence."""
    answer = bare_answer(example.gold[0])
    frames = [frame for frame in FRAMES if frame.endswith("{answer}.") or not re.search(r"[.!?]", answer)]
    frame = Random(f"augment/0/{example.id}").choice(frames)
    return (frame.removesuffix(".") if _CLOSED.search(answer) else frame).replace("{answer}", answer)


def given_sentence(example: QAExample, sentences: Mapping[str, str]) -> str | Rejected:
    """The sentence that a mapping has for an example's id, if it can stand for the first gold answer."""
    sentence, answer = sentences.get(example.id, "").strip(), bare_answer(example.gold[0])
    plain, phrase, *rationale = (
        " ".join(text.lower().split()) for text in (sentence, answer, *(s.text for s in example.rationale))
    )
    reason = ""
    if not sentence:
        reason = "no sentence"
    elif not occurs(phrase.rstrip(".!?") or phrase, plain):  # the sentence brings its own full stop
        reason = "the sentence lacks the answer"
    elif not _CLOSED.search(sentence):
        reason = "the sentence has no end"
    elif any(plain.count(text) > phrase.count(text) for text in rationale):
        reason = "the sentence repeats the rationale"
    return Rejected(example.id, reason) if reason else sentence


def bare_answer(answer: str) -> str:
    """An answer without stray punctuation at its ends, its white space made single.

    Commas, colons and dashes go, and a quotation mark or bracket whose partner is missing; an answer of
    nothing else stays.

    >>> [bare_answer(text) for text in ("mustard,", "- Tom", '"I won!"', "(red", "-5", "U.S.", "a b,.", ",")]
    ['mustard', 'Tom', '"I won!"', 'red', '-5', 'U.S.', 'a b.', ',']
    """
    whole = text = " ".join(answer.split())
    before = ""
    while text != before:
        before = text
        text = _STRAY.sub("", text)
        for left, right in _PAIRS:
            lone = text.count(left) % 2 if left == right else text.count(left) - text.count(right)
            if lone > 0 and text.startswith(left):
                text = text.removeprefix(left)
            elif lone and (left == right or lone < 0):
                body = text.rstrip(".!?")
                text = body.removesuffix(right) + text[len(body) :]
    return text if any(character.isalnum() for character in text) else whole
