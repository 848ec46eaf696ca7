"""Multiple choice to tokens: every choice is a row of its own, paired with the prompt; of a decoder all stand
behind their prompt in one row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from data_modules.encoding.prompts import CHOOSE, Prompt, encode_prompts
from data_modules.encoding.windows import EncodedRow, Encoding, Prompts
from data_modules.schema import DECODERS, ChoiceQuestion


@dataclass(kw_only=True)
class ChoiceEncoding:
    """How a prompt and one of its choices become a row of tokens (probes spec B1).

    Args:
        max_length: Tokens in a row, special tokens included; of a longer pair the longer text is cut at its
            end, token by token. A decoder's row holds all choices, and is never cut.
        padding: `dynamic` pads the rows of a batch to their longest, `parity` every row to `max_length`, as
            the authors' code does.
        chat: Whether a decoder's prompt is the user's message in the tokenizer's chat template: `auto` where
            it has one, or `never`.
    """

    max_length: int = 128
    padding: Literal["dynamic", "parity"] = "dynamic"
    chat: Literal["auto", "never"] = "auto"

    def of_decoder(self, architecture: str) -> Encoding:
        """The same, as all checkpoints of decoders have it."""
        return Encoding(max_length=self.max_length, prompts=Prompts(chat=self.chat)).resolved(architecture)


def encode_choices(
    questions: Sequence[ChoiceQuestion], tokenizer: Any, encoding: ChoiceEncoding, architecture: str
) -> Iterator[list[EncodedRow]]:
    """The rows of every question: one for each choice; of a decoder a single one, with the `spans` of all.

    An empty prompt stays an empty first segment: `<s></s></s> choice </s>`. RoBERTa gets a space before each
    text that is not empty and does not begin with one, as in the middle of a sentence.

    Raises:
        DataError: a decoder's row is too long.
    """
    if architecture in DECODERS:
        prompts = map(_prompt, questions)
        for row in encode_prompts(prompts, tokenizer, encoding.of_decoder(architecture)):
            yield [row]
        return

    def written(text: str) -> str:
        spaced = architecture == "roberta" and text and not text[0].isspace()
        return f" {text}" if spaced else text

    for example, question in enumerate(questions):
        pairs = [(written(question.prompt), written(choice)) for choice in question.choices]
        rows = tokenizer(pairs, truncation="longest_first", max_length=encoding.max_length).encodings
        tokens = ((np.array(row.ids, np.int32), np.array(row.type_ids, np.uint8)) for row in rows)
        yield [EncodedRow(*both, np.full((len(both[0]), 2), -1), 0, example) for both in tokens]


def _prompt(question: ChoiceQuestion) -> Prompt:
    text = CHOOSE.format(prompt=question.prompt.strip()).strip()
    choices = [choice.strip() for choice in question.choices]
    return Prompt([{"role": "user", "content": text}], text, 0, choices, f"question {question.id}")
