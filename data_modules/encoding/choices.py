"""Multiple choice to tokens: every choice is a row of its own, paired with the prompt; of a decoder all stand
behind their prompt in one row.

Shape letters: Q questions, B questions of a batch, R all their rows, N all rows of a set, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from data_modules.encoding.prompts import CHOOSE, Prompt, encode_prompts
from data_modules.encoding.tables import list_column
from data_modules.schema import DECODERS, ChoiceQuestion
from storage.errors import DataError


@dataclass(kw_only=True)
class ChoiceEncoding:
    """How a prompt and one of its choices become a row of tokens (probes spec B1).

    Args:
        max_length: Tokens in a row, special tokens included; of a longer pair the longer text is cut at its
            end, token by token. A decoder's row holds all choices, and is never cut.
        padding: `dynamic` pads the rows of a batch to their longest, `parity` every row to `max_length`, as
            the authors' code does.
        pad_to_multiple_of: With `dynamic`: lengths of batches are multiples of this.
    """

    max_length: int = 128
    padding: Literal["dynamic", "parity"] = "dynamic"
    pad_to_multiple_of: int = 8

    def __post_init__(self) -> None:
        if self.max_length < 8:
            raise DataError(f"choices.encoding.max_length must be at least 8, got {self.max_length}")
        if self.padding not in ("dynamic", "parity"):
            raise DataError(f"choices.encoding.padding must be dynamic or parity, got {self.padding!r}")
        if self.pad_to_multiple_of < 1:
            raise DataError(
                f"choices.encoding.pad_to_multiple_of must be at least 1, got {self.pad_to_multiple_of}"
            )


def encode_choices(
    questions: Sequence[ChoiceQuestion], tokenizer: Any, encoding: ChoiceEncoding, architecture: str
) -> pa.Table:
    """A row for every question: `input_ids` and `token_type_ids` of its choices behind one another, `length`
    of each; `id`, `label`, and whether its target is `unknown`. Of a decoder `input_ids` of the
    prompt and all choices, and `candidate`, the first and last token of each choice.

    An empty prompt stays an empty first segment: `<s></s></s> choice </s>`. RoBERTa gets a space before each
    text that is not empty and does not begin with one, as in the middle of a sentence.

    Raises:
        DataError: a decoder's row is too long.
    """
    tokens = _behind_prompts if architecture in DECODERS else _pairs
    return pa.table(
        tokens(questions, tokenizer, encoding, architecture)
        | {
            "id": pa.array([question.id for question in questions], pa.string()),
            "label": pa.array([question.label for question in questions], pa.int64()),
            "unknown": pa.array([question.target == "unknown" for question in questions], pa.bool_()),
        }
    )


def _behind_prompts(
    questions: Sequence[ChoiceQuestion], tokenizer: Any, encoding: ChoiceEncoding, architecture: str
) -> dict[str, pa.Array]:
    prompts = (
        Prompt(
            CHOOSE.format(prompt=question.prompt.strip()).strip(),
            *(0, 0, tuple(map(str.strip, question.choices)), f"question {question.id}"),
        )
        for question in questions
    )
    chat = bool(getattr(tokenizer, "chat_template", None))
    rows = list(encode_prompts(prompts, tokenizer, encoding.max_length, chat=chat))
    return {
        "input_ids": list_column([row.input_ids_T for row in rows], np.int32),
        "token_type_ids": list_column([np.zeros_like(row.input_ids_T) for row in rows], np.uint8),
        "length": list_column([[len(row.input_ids_T)] for row in rows], np.int32),
        "candidate": list_column([list(chain.from_iterable(row.spans)) for row in rows], np.int32),
    }


def _pairs(
    questions: Sequence[ChoiceQuestion], tokenizer: Any, encoding: ChoiceEncoding, architecture: str
) -> dict[str, pa.Array]:
    pairs = [(question.prompt, choice) for question in questions for choice in question.choices]
    if architecture == "roberta":
        pairs = [(_spaced(prompt), _spaced(choice)) for prompt, choice in pairs]
    rows: dict[str, list[list[int]]] = {"input_ids": [], "token_type_ids": []}
    if pairs:
        rows = tokenizer(
            [prompt for prompt, _ in pairs],
            [choice for _, choice in pairs],
            truncation="longest_first",
            max_length=encoding.max_length,
            return_token_type_ids=True,
            return_attention_mask=False,
        )
    lengths = [len(ids) for ids in rows["input_ids"]]
    ends = np.cumsum([0, *(len(question.choices) for question in questions)]).tolist()

    def together(name: str, dtype: Any) -> pa.Array:
        return list_column([list(chain(*rows[name][at:end])) for at, end in pairwise(ends)], dtype)

    return {
        "input_ids": together("input_ids", np.int32),
        "token_type_ids": together("token_type_ids", np.uint8),
        "length": list_column([lengths[at:end] for at, end in pairwise(ends)], np.int32),
    }


def _spaced(text: str) -> str:
    return f" {text}" if text and not text[0].isspace() else text
