"""Prompts of questions for language models, and short answers from their text.

The faithfulness paper's format, this project's wording, and UnifiedQA's encoding.
"""

from __future__ import annotations

import re
from string import ascii_lowercase, ascii_uppercase

from data_modules.encoding.prompts import CHOOSE
from data_modules.schema.groups import UnderspecifiedQuestion
from data_modules.schema.questions import ChoiceQuestion, QAExample
from evaluation.answering.asking import PromptStyle
from evaluation.answering.interface import ChoicePrompt
from storage.errors import DataError

TURNS = 2
"""Number of earlier turns of a conversation in a prompt, as in the papers (faithfulness spec 6.18)."""

# paper: the faithfulness paper's Tables 6 and 11, verbatim. offers-unknown: an instruction, which makes
# unknown more frequent. unifiedqa: as in UnifiedQA's training, with the two characters \n, because T5's
# vocabulary has no line break.
QUESTIONS: dict[PromptStyle, str] = {
    "paper": "{story}\n\n{turns}Q: {query}\nA:",
    "offers-unknown": "Text: {story}\n\n{turns}Question: {query}\n"
    "Reply with a few words of the text, or with yes or no, or with unknown if the text does not say.\n"
    "Answer:",
    "unifiedqa": "{turns}{question} \\n {story} {advice}",
}
"""Templates of a question; {query} includes the advice."""
EARLIER: dict[PromptStyle, str] = {
    "paper": "Q: {question}\nA: {answer}\n",
    "offers-unknown": "Question: {question}\nAnswer: {answer}\n",
    "unifiedqa": "{question} {answer} ",
}
"""Templates of an earlier turn."""
_PLAIN = "Text: {story}\n\nQuestion: {query}\nReply with {first} or {second}.\nAnswer:"
SUBJECTS: dict[PromptStyle, str] = {
    "paper": _PLAIN,
    "offers-unknown": _PLAIN,
    "unifiedqa": "{question} \\n (a) {first} (b) {second} \\n {story} {advice}",
}
"""Templates of a question between two subjects."""

CHOICES: dict[ChoicePrompt, str] = {
    # Each choice is scored separately after the same prompt: other choices and their order do not matter.
    "plain": CHOOSE,
    # lm-evaluation-harness's prompt for PIQA, and its score with --likelihood sum.
    "question": "Question: {prompt}\nAnswer:",
    "letters": "{prompt}\n{choices}\nAnswer:",
    "unifiedqa": "{prompt} \\n {choices}",
}
"""Templates of a multiple-choice question; {choices} are lettered."""


def question_prompt(example: QAExample, style: PromptStyle) -> str:
    """Return the prompt of a question, with its story and its last turns."""
    turns = example.history[max(0, len(example.history) - TURNS) :]
    earlier = "".join(EARLIER[style].format(question=turn.question, answer=turn.answer) for turn in turns)
    return _filled(QUESTIONS[style], example, style, turns=earlier)


def subject_prompt(question: UnderspecifiedQuestion, style: PromptStyle) -> str:
    """Return the prompt of a question between two subjects, in the order of the context."""
    first, second = (span.text for span in sorted(question.candidates, key=lambda span: span.start))
    return _filled(SUBJECTS[style], question, style, first=first, second=second)


def _filled(template: str, asked: QAExample | UnderspecifiedQuestion, style: str, **more: str) -> str:
    parts = {"story": asked.context, "question": asked.question, "advice": asked.advice}
    text = template.format(query=asked.query, **parts, **more)
    return in_style(text.strip(), style)


def in_style(text: str, style: str) -> str:
    """Return the text in a style's form: UnifiedQA uses lower case."""
    return text.lower() if style == "unifiedqa" else text


def choice_prompt(example: ChoiceQuestion, style: ChoicePrompt) -> str:
    """Return a language model's prompt for a choice.

    Raises:
        DataError: there are more choices than letters.

    >>> example = ChoiceQuestion("1", "Why?", ("This", "That"), 0)
    >>> choice_prompt(example, "unifiedqa")
    'why? \\\\n (a) this (b) that'
    """
    template, choices = CHOICES[style], ""
    if "{choices}" in template:
        if len(example.choices) > len(ascii_lowercase):
            raise DataError(f"question {example.id}: {len(example.choices)} choices are more than letters")
        lines = [choice.strip() for choice in example.choices]
        if style == "letters":
            choices = "\n".join(map("{}. {}".format, ascii_uppercase, lines))
        else:
            choices = " ".join(map("({}) {}".format, ascii_lowercase, lines))
    return in_style(template.format(prompt=example.prompt.strip(), choices=choices).strip(), style)


_PREFIX = re.compile(r"\s*(?:(?:(?:the|final|short)\s+)*answer(?:\s+is)?|A)\s*:", re.I)
_QUOTES = dict(zip("\"'`*“‘«", "\"'`*”’»", strict=True))
"""Marks around an answer, and those that end it."""
_YES_NO = re.compile(
    r"[\"'`*“‘]*(yes|no|unknown)(?!\.\s*\d)[\"'`*”’]*"
    r"(?:[.,;:!?…]+[\"'`*”’]*(?:\s|$)|\s*[–—]|\s+-\s|\s*\(|$)",
    re.I,
)
_NO_ANSWER = re.compile(r"<?no answer>?", re.I)


def short_answer(text: str) -> str:
    """Extract the answer from a model's text: the first line, without "Answer:" or "A:", quotes and full
    stop.

    A leading yes, no or unknown is the answer if punctuation or nothing follows it; so is UnifiedQA's
    phrase for no answer.

    >>> [short_answer(text) for text in ("Answer: The red bike.\\nQuestion: Who", "Yes, he did.", "No one.")]
    ['The red bike', 'yes', 'No one']
    """
    while match := _PREFIX.match(text):
        text = text[match.end() :]
    line = _unwrapped(next(iter(text.strip().splitlines()), ""))
    if found := _YES_NO.match(line):
        return found.group(1).lower()
    if _NO_ANSWER.fullmatch(line):
        return "unknown"
    return line if line.endswith("..") else _unwrapped(line.removesuffix("."))


def _unwrapped(text: str) -> str:
    """The text without the quotation marks or asterisks around the whole of it."""
    text = text.strip()
    while len(text) > 1 and _QUOTES.get(text[0]) == text[-1]:
        text = text[1:-1].strip()
    return text
