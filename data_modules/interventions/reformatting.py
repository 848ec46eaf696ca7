"""Edits that keep the meaning: a faithful model answers as before (Chaturvedi et al. 2023, Figure
5).

- `spaced`: doubled spaces between the sentences of the story, and after the first word of the
  question.
- `quoted`: typographic quotation marks and apostrophes instead of straight ones, or the reverse.
- `reworded`: another question word, from this project's list (reformatting.yaml).

Everything is deterministic; answers and rationales move with the text, references stay.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from typing_extensions import TypedDict

from interventune.data_modules.questions.answer_spans import Place
from interventune.data_modules.schema.questions import QAExample, Rejected
from interventune.data_modules.schema.spans import Span
from interventune.storage.documents import own_yaml


class _Rewording(TypedDict):
    verbs: str
    beginnings: dict[str, str]


_REWORDING = own_yaml(__file__, _Rewording)
_BETWEEN_SENTENCES = re.compile(r"(?<=[.!?] )(?=\S)")
_CURLY = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'"})


def spaced(example: QAExample) -> QAExample | Rejected:
    """Double the spaces."""
    places = [match.span() for match in _BETWEEN_SENTENCES.finditer(example.context)]
    question = re.sub(r"(?<=\S) (?=\S)", "  ", example.question, count=1)
    if not places and question == example.question:
        return Rejected("no space between two sentences, nor in the question")
    context = _BETWEEN_SENTENCES.sub(" ", example.context)
    return edited(example, context, places, longer=1, question=question)


def quoted(example: QAExample) -> QAExample | Rejected:
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


def reworded(example: QAExample) -> QAExample | Rejected:
    """Replace the question word."""
    question = example.question.lstrip()
    for pattern, words in _REWORDING["beginnings"].items():
        match = re.match(pattern.replace("VERBS", _REWORDING["verbs"]), question, re.I)
        if match:
            rest = question[match.end() :]
            if not match[0]:  # only preceded
                rest = rest[:1].lower() + rest[1:]
            first = words if question[:1].isupper() else words[:1].lower() + words[1:]
            return edited(example, example.context, question=first + rest)
    return Rejected("begins with no question word of the list")


def edited(
    example: QAExample,
    context: str,
    pieces: Sequence[Place] = (),
    longer: int = 0,
    **changes: Any,
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
