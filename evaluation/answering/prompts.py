"""Prompts for language models in other styles than the one of training, and prompts of choices.

The faithfulness paper's format, this project's wording, and UnifiedQA's encoding.
"""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase

from interventune.data_modules.encoding.prompts import CHOOSE
from interventune.data_modules.encoding.windows import Messages, Prompts
from interventune.data_modules.schema.questions import ChoiceQuestion
from interventune.evaluation.answering.interface import ChoicePrompt
from interventune.storage.errors import DataError


def _asked(content: str) -> Messages:
    return [{"role": "user", "content": content}]


# paper: the faithfulness paper's Tables 6 and 11, verbatim. offers-unknown: an instruction, which
# makes unknown more frequent. unifiedqa: as in UnifiedQA's training, with the two characters \n,
# because T5's vocabulary has no line break; LEI's appendix C for two subjects.
STYLES: dict[str, Prompts] = {
    "paper": Prompts(
        prompt=_asked("{context}\n\nQ: {advice} {question}\nA:"),
        turn="Q: {question}\nA: {answer}\n",
    ),
    "offers-unknown": Prompts(
        prompt=_asked(
            "Text: {context}\n\nQuestion: {advice} {question}\nReply with a few words of the text, "
            "or with "
            "yes or no, or with unknown if the text does not say.\nAnswer:"
        )
    ),
    "unifiedqa": Prompts(
        prompt=_asked("{question} \\n {context} {advice}"),
        choice_prompt=_asked("{question} \\n {options} \\n {context} {advice}"),
        turn="{question} {answer} ",
        options="(a) {} (b) {}",
    ),
}
"""Prompts by the name of their style."""

CHOICES: dict[ChoicePrompt, str] = {
    # Each choice is scored separately after the same prompt: other choices and their order do not
    # matter.
    "plain": CHOOSE,
    # lm-evaluation-harness's prompt for PIQA, and its score with --likelihood sum.
    "question": "Question: {prompt}\nAnswer:",
    "letters": "{prompt}\n{choices}\nAnswer:",
    "unifiedqa": "{prompt} \\n {choices}",
}
"""Templates of a multiple-choice question; {choices} are lettered."""


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
            raise DataError(
                f"question {example.id}: {len(example.choices)} choices are more than letters"
            )
        lines = [choice.strip() for choice in example.choices]
        if style == "letters":
            choices = "\n".join(map("{}. {}".format, ascii_uppercase, lines))
        else:
            choices = " ".join(map("({}) {}".format, ascii_lowercase, lines))
    return in_style(template.format(prompt=example.prompt.strip(), choices=choices).strip(), style)
