"""Prompts for language models in other styles than the one of training, and prompts of choices."""

from string import ascii_lowercase, ascii_uppercase

from interventune.data_modules.encoding.prompts import CHOOSE
from interventune.data_modules.encoding.windows import Prompts
from interventune.data_modules.schema.questions import ChoiceQuestion
from interventune.storage.documents import own_yaml
from interventune.storage.errors import DataError

from .interface import ChoicePrompt

STYLES = own_yaml(__file__, dict[str, Prompts])
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
        letters, line, join = ascii_lowercase, "({}) {}", " "
        if style == "letters":
            letters, line, join = ascii_uppercase, "{}. {}", "\n"
        choices = join.join(map(line.format, letters, map(str.strip, example.choices)))
    return in_style(template.format(prompt=example.prompt.strip(), choices=choices).strip(), style)
