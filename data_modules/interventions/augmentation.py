"""Sentences that contain an answer and say nothing else: the +Aug variants append them instead of
the answer.

In a story without its rationale, a bare phrase at the end may still reveal that the answer was
appended. The +Aug variants (Chaturvedi et al. 2023, section 5) hide it in a sentence: one of the
frames below, or one of the user's.
"""

import re
from random import Random

from interventune.data_modules.questions.answer_spans import occurs
from interventune.data_modules.schema.questions import QAExample, Rejected

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
"""True of any phrase, such as a name, a number or a clause, because they mention it without using
it.
"""

_CLOSED = re.compile(r"[.!?][\"'”’)]*$")
_STRAY = re.compile(r"^(?:[,;]\s*|[-–—:]+\s+)+|(?:\s*[,;:]|\s+[-–—])+(?=\s*[.!?]*$)|\s+(?=[.!?]*$)")
"""Punctuation at the ends that belongs to no answer: commas and similar marks, a separate dash."""
_PAIRS = (('"', '"'), ("“", "”"), ("«", "»"), ("(", ")"), ("[", "]"))


def answer_sentence(example: QAExample, sentences: dict[str, str] | None = None) -> str | Rejected:
    """Return the sentence for the example's id, if it contains the first gold answer; without
    sentences, a frame around that answer, drawn by the id. There the answer keeps its case and
    loses stray punctuation at its ends, as in `mustard,`; its own full stop ends the sentence.
    """
    answer = bare_answer(example.gold[0])
    if sentences is None:
        stops = re.search(r"[.!?]", answer)
        frames = [frame for frame in FRAMES if frame.endswith("{answer}.") or not stops]
        frame = Random(f"augment/0/{example.id}").choice(frames)
        if _CLOSED.search(answer):
            frame = frame.removesuffix(".")
        return frame.replace("{answer}", answer)
    sentence = sentences.get(example.id, "").strip()
    plain, phrase, *rationale = (
        " ".join(text.lower().split())
        for text in (sentence, answer, *(s.text for s in example.rationale))
    )
    if not sentence:
        return Rejected("no sentence")
    if not occurs(phrase.rstrip(".!?") or phrase, plain):  # the sentence has its own full stop
        return Rejected("the sentence lacks the answer")
    if not _CLOSED.search(sentence):
        return Rejected("the sentence has no end")
    if any(plain.count(text) > phrase.count(text) for text in rationale):
        return Rejected("the sentence repeats the rationale")
    return sentence


def bare_answer(answer: str) -> str:
    """Remove stray punctuation from an answer's ends, and reduce its white space to single spaces.

    Commas, colons, dashes and unpaired quotes and brackets are removed; an answer of nothing else
    stays.

    >>> [bare_answer(text) for text in ("mustard,", '"I won!"', "(red", "-5", "a b,.", ",")]
    ['mustard', '"I won!"', 'red', '-5', 'a b.', ',']
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
    return text if any(map(str.isalnum, text)) else whole
