"""Questions as prompts for language models, and what they write as short answers.

The faithfulness paper's format, our own wording, and UnifiedQA's encoding.
"""

from __future__ import annotations

import re
import string
from typing import NamedTuple

from data_modules.encoding.prompts import CHOOSE
from data_modules.schema import ChoiceQuestion, QAExample, UnderspecifiedQuestion, query_text
from evaluation.answering.interface import PromptStyle
from storage.errors import DataError

TURNS = 2
"""Earlier turns of a conversation in a prompt, as the papers' models get (faithfulness spec 6.18)."""


class Wording(NamedTuple):
    """The templates of a style."""

    question: str
    """With {story}, {turns}, and the question: {query} with its advice, or {advice} and {question} apart."""
    turn: str
    """An earlier {question} with its {answer}."""
    subjects: str
    """The same as `question`, with the two subjects as {first} and {second}."""
    lower: bool = False


_SUBJECTS = "Text: {story}\n\nQuestion: {query}\nReply with {first} or {second}.\nAnswer:"

WORDINGS: dict[PromptStyle, Wording] = {
    # The faithfulness paper's Tables 6 and 11, without a word of ours.
    "paper": Wording("{story}\n\n{turns}Q: {query}\nA:", "Q: {question}\nA: {answer}\n", _SUBJECTS),
    # Says how to reply: a model that is offered unknown says it more often.
    "offers-unknown": Wording(
        "Text: {story}\n\n{turns}Question: {query}\n"
        "Reply with a few words of the text, or with yes or no, or with unknown if the text does not say.\n"
        "Answer:",
        "Question: {question}\nAnswer: {answer}\n",
        _SUBJECTS,
    ),
    # As UnifiedQA was trained, with two characters, \n: T5's vocabulary has no line break.
    "unifiedqa": Wording(
        "{turns}{question} \\n {story} {advice}",
        "{question} {answer} ",
        "{question} \\n (a) {first} (b) {second} \\n {story} {advice}",
        lower=True,
    ),
}


def question_prompt(example: QAExample, style: PromptStyle) -> str:
    """The prompt of a question, with its story and its last turns."""
    turns = example.history[max(0, len(example.history) - TURNS) :]
    earlier = "".join(WORDINGS[style].turn.format(question=t.question, answer=t.answer) for t in turns)
    return _filled(WORDINGS[style].question, example, style, turns=earlier)


def subject_prompt(question: UnderspecifiedQuestion, style: PromptStyle) -> str:
    """The prompt of a question between two subjects, in the order of the context."""
    first, second = (span.text for span in sorted(question.candidates, key=lambda span: span.start))
    return _filled(WORDINGS[style].subjects, question, style, first=first, second=second)


def _filled(template: str, asked: QAExample | UnderspecifiedQuestion, style: PromptStyle, **more: str) -> str:
    query = query_text(asked.question, asked.advice)
    text = template.format(
        story=asked.context, question=asked.question, advice=asked.advice, query=query, **more
    ).strip()
    return text.lower() if WORDINGS[style].lower else text


_PREFIX = re.compile(r"\s*(?:(?:(?:the|final|short)\s+)*answer(?:\s+is)?|A)\s*:", re.I)
_QUOTES = dict(zip("\"'`*“‘«", "\"'`*”’»", strict=True))
"""Marks that stand around an answer, and those that end it."""
_YES_NO = re.compile(
    r"[\"'`*“‘]*(yes|no|unknown)(?!\.\s*\d)[\"'`*”’]*"
    r"(?:[.,;:!?…]+[\"'`*”’]*(?:\s|$)|\s*[–—]|\s+-\s|\s*\(|$)",
    re.I,
)
_NO_ANSWER = re.compile(r"<?no answer>?", re.I)


def short_answer(text: str) -> str:
    """What a model means, without its wrapping: the first line, without "Answer:" or "A:", quotes and full
    stop.

    A leading yes, no or unknown is the answer if punctuation or nothing follows it; so is UnifiedQA's way to
    say that there is none.

    >>> [short_answer(text) for text in ("Answer: The red bike.\\nQuestion: Who", "Yes, he did.", "No one.")]
    ['The red bike', 'yes', 'No one']
    """
    while match := _PREFIX.match(text):
        text = text[match.end() :]
    line = unwrapped(next(iter(text.strip().splitlines()), ""))
    if found := _YES_NO.match(line):
        return found.group(1).lower()
    if _NO_ANSWER.fullmatch(line):
        return "unknown"
    return line if line.endswith("..") else unwrapped(line.removesuffix("."))


def unwrapped(text: str) -> str:
    """The text without the quotation marks or asterisks around the whole of it.

    >>> unwrapped('"**Tom**"'), unwrapped('the "Red Lion"')
    ('Tom', 'the "Red Lion"')
    """
    text = text.strip()
    while len(text) > 1 and _QUOTES.get(text[0]) == text[-1]:
        text = text[1:-1].strip()
    return text


class ChoiceWording(NamedTuple):
    """How a question of multiple choice is put to a language model."""

    prompt: str
    """With {prompt} and {choices}, the latter lettered."""
    lower: bool = False
    bare: bool = False
    """Whether a model's chat template is left out."""
    by_letter: bool = False
    """Whether the letter of a choice is the answer, not its text."""


CHOICE_WORDINGS = {
    # Each choice is scored behind the same prompt: choices do not see each other, nor their order.
    "plain": ChoiceWording(CHOOSE),
    # As lm-evaluation-harness asks PIQA, and as it scores with --likelihood sum.
    "question": ChoiceWording("Question: {prompt}\nAnswer:", bare=True),
    "letters": ChoiceWording("{prompt}\n{choices}\nAnswer:", by_letter=True),
    "unifiedqa": ChoiceWording("{prompt} \\n {choices}", lower=True),
}


def choice_prompt(example: ChoiceQuestion, wording: ChoiceWording) -> str:
    """What a language model reads before a choice.

    Raises:
        DataError: there are not enough letters.

    >>> example = ChoiceQuestion("1", "Why?", ("This", "That"), 0)
    >>> choice_prompt(example, CHOICE_WORDINGS["unifiedqa"])
    'why? \\\\n (a) this (b) that'
    """
    lines = [text.strip() for text in example.choices]
    if "{choices}" in wording.prompt and len(lines) > len(string.ascii_lowercase):
        raise DataError(f"question {example.id}: {len(lines)} choices are more than there are letters")
    if wording.by_letter:
        choices = "\n".join(f"{a}. {text}" for a, text in zip(string.ascii_uppercase, lines, strict=False))
    else:
        choices = " ".join(f"({a}) {text}" for a, text in zip(string.ascii_lowercase, lines, strict=False))
    text = wording.prompt.format(prompt=example.prompt.strip(), choices=choices).strip()
    return text.lower() if wording.lower else text
