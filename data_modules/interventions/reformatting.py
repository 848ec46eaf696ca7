"""Edits that keep the meaning: a faithful model answers as before (faithfulness paper, Figure 5).

- `spaced`: doubled spaces between the sentences of the story, and after the first word of the
  question.
- `quoted`: typographic quotation marks and apostrophes instead of straight ones, or the reverse.
- `reworded`: another question word, from this project's list (`QUESTION_WORDS`).

Everything is deterministic; answers and rationales move with the text, references stay.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from interventune.data_modules.schema.questions import QAExample, Rejected, Variant
from interventune.data_modules.schema.spans import Span

_VERBS = "is|are|was|were|do|does|did|has|have|had|can|could|will|would|shall|should|may|might|must"
_MOTION = "go|goes|going|gone|come|comes|coming|move|moves|moved|moving|travel|head|run"
QUESTION_WORDS: tuple[tuple[str, str], ...] = (
    (r"why\b", "For what reason"),
    (r"how many\b(?= (?!" + _VERBS + r")\w)", "What number of"),
    (r"how come\b", "Why is it that"),
    (r"when\b(?!.* (?:from|since|until)\W*$)", "At what time"),
    (r"where\b(?!.* (?:from|to|at|in|off)\W*$)(?!.* (?:" + _MOTION + r")\b)", "In what place"),
    (r"whose\b", "Which person's"),
    (r"who\b(?! (?:are|were|is|was|else)\b|'|’)", "Which person"),
    (r"which (?=\w)(?!(?:of|ones?|" + _VERBS + r")\b)", "What "),
    (
        r"what (?=(?:kind|sort|type|colour|color|day|month|year|city|country|language|animal)s?\b)",
        "Which ",
    ),
    (r"what\b(?= (?:" + _VERBS + r")\b|\W*$)", "What exactly"),
    (r"(?=(?:is|are|was|were|do|does|did|has|have|had|can|could)\b)", "Tell me, "),
)
"""Beginnings of questions (any case) and their equivalents; the first match counts. After a
beginning whose replacement would be ungrammatical or change the question, nothing is replaced.
"""

_BETWEEN_SENTENCES = re.compile(r"(?<=[.!?]) (?=\S)")
_CURLY = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'"})
_STRAIGHT = re.compile(r"""["']""")


def straight_quotes(text: str) -> str:
    """Make typographic quotation marks and apostrophes straight, so that `quoted` costs no exact
    match.

    >>> straight_quotes("Ana’s “red” bike")
    'Ana\\'s "red" bike'
    """
    return text.translate(_CURLY)


def reformat(example: QAExample, variant: Variant) -> QAExample | Rejected:
    """Apply one of the edits above to an original, or return why it does not change it."""
    if variant == "spaced":
        return _spaced(example)
    return _quoted(example) if variant == "quoted" else _reworded(example)


def _spaced(example: QAExample) -> QAExample | Rejected:
    points = [match.end() for match in _BETWEEN_SENTENCES.finditer(example.context)]
    question = re.sub(r"(?<=\S) (?=\S)", "  ", example.question, count=1)
    if not points and question == example.question:
        return Rejected("no space between two sentences, nor in the question")
    context = _BETWEEN_SENTENCES.sub("  ", example.context)
    return edited(example, context, points, points, longer=1, question=question)


def _quoted(example: QAExample) -> QAExample | Rejected:
    both = example.context + example.question
    if both == straight_quotes(both) and not _STRAIGHT.search(both):
        return Rejected("no quotation mark or apostrophe")
    change = curly_quotes if _STRAIGHT.search(both) else straight_quotes
    return edited(example, change(example.context), question=change(example.question))


def curly_quotes(text: str) -> str:
    """Make straight marks typographic: an opening one if no letter or mark precedes it.

    >>> curly_quotes('Ana\\'s "red" bike')
    'Ana’s “red” bike'
    """
    text = re.sub(
        r"""(?<![^ \t\n(\[{\-—])["']""", lambda mark: "“" if mark[0] == '"' else "‘", text
    )
    return text.replace('"', "”").replace("'", "’")


def _reworded(example: QAExample) -> QAExample | Rejected:
    question = example.question.lstrip()
    for pattern, words in QUESTION_WORDS:
        if match := re.match(pattern, question, re.I):
            rest = question[match.end() :]
            if not match[0]:  # only preceded
                rest = rest[:1].lower() + rest[1:]
            first = words if question[:1].isupper() else words[:1].lower() + words[1:]
            return edited(example, example.context, question=first + rest)
    return Rejected("begins with no question word of the list")


def edited(
    example: QAExample,
    context: str,
    starts: Sequence[int] = (),
    ends: Sequence[int] = (),
    longer: int = 0,
    **changes: Any,
) -> QAExample:
    """Return the example with another context, in which each piece of the old one from `starts` to
    `ends` has become so much `longer`. Answers and rationales move; one that begins or ends inside
    such a piece includes all of the new one.
    """

    def moved(span: Span) -> Span:
        past, begun = bisect_right(ends, span.start), bisect_left(starts, span.end)
        start = min([span.start, *starts[past : past + 1]]) + longer * past
        end = max([span.end, *ends[:begun][-1:]]) + longer * begun
        return Span(start, end, context[start:end])

    return replace(
        example,
        context=context,
        answers=tuple(map(moved, example.answers)),
        rationale=tuple(map(moved, example.rationale)),
        kept=((0, len(context)),) if context == example.context else (),
        **changes,
    )
