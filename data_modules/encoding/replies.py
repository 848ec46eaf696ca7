"""Short answers from what language models write."""

import re

_PREFIX = re.compile(r"\s*(?:(?:(?:the|final|short)\s+)*answer(?:\s+is)?|A)\s*:", re.I)
_QUOTES = dict(zip("\"'`*“‘«", "\"'`*”’»", strict=True))
"""Marks around an answer, and those that end it."""
_YES_NO = re.compile(
    r"[\"'`*“‘]*(yes|no)(?!\.\s*\d)[\"'`*”’]*"
    r"(?:[.,;:!?…]+[\"'`*”’]*(?:\s|$)|\s*[–—]|\s+-\s|\s*\(|$)",
    re.I,
)


def answer_in(text: str, failure: str = "") -> tuple[str, str]:
    """Return the short answer in a model's text, and the reason why there is none.

    The reason is `failure`, or that the text has no answer.

    >>> answer_in("The bike.\\nQuestion:"), answer_in("Answer:"), answer_in("", "too long")
    (('The bike', ''), ('', 'empty answer'), ('', 'too long'))
    """
    answer = "" if failure else short_answer(text)
    return answer, failure or ("" if answer else "empty answer")


def short_answer(text: str) -> str:
    """Extract the first line of a model's text, without "Answer:" or "A:", quotes and full stop.

    A leading yes or no is the answer if punctuation or nothing follows it. What says unknown is
    left as written: metrics/unknown.py decides.

    >>> [short_answer(text) for text in ("Answer: The bike.\\nQuestion:", "Yes, he did.")]
    ['The bike', 'yes']
    """
    while match := _PREFIX.match(text):
        text = text[match.end() :]
    line = _unwrapped(next(iter(text.strip().splitlines()), ""))
    if match := _YES_NO.match(line):
        return match[1].lower()
    return line if line.endswith("..") else _unwrapped(line.removesuffix("."))


def _unwrapped(text: str) -> str:
    """The text without the quotation marks or asterisks around the whole of it."""
    text = text.strip()
    while len(text) > 1 and _QUOTES.get(text[0]) == text[-1]:
        text = text[1:-1].strip()
    return text
