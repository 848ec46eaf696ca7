"""Multiple choice to tokens: every choice is a row of its own, paired with the prompt; of a decoder all stand
behind their prompt in one row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from data_modules.encoding.prompts import CHOOSE, Prompt, encode_prompts
from data_modules.encoding.tables import BYTES, INTS
from data_modules.encoding.windows import Encoding, Prompts
from data_modules.schema import DECODERS, ChoiceQuestion

COLUMNS = {"input_ids": INTS, "token_type_ids": BYTES, "length": INTS}
COLUMNS |= {"id": pa.string(), "label": pa.int64(), "unknown": pa.bool_()}


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


def encode_choices(
    questions: Sequence[ChoiceQuestion], tokenizer: Any, encoding: ChoiceEncoding, architecture: str
) -> pa.Table:
    """A row for every question: the tokens of its choices one after the other, and `length` of each; of a
    decoder those of the prompt and all choices, and `candidate`, the first and last token of each choice.

    An empty prompt stays an empty first segment: `<s></s></s> choice </s>`. RoBERTa gets a space before each
    text that is not empty and does not begin with one, as in the middle of a sentence.

    Raises:
        DataError: a decoder's row is too long.
    """
    columns = COLUMNS
    if architecture in DECODERS:
        columns = COLUMNS | {"candidate": INTS}
        how = Encoding(max_length=encoding.max_length, prompts=Prompts(chat=encoding.chat))
        rows = _behind_prompts(questions, tokenizer, how.resolved(architecture))
    else:
        rows = _pairs(questions, tokenizer, encoding.max_length, spaced=architecture == "roberta")
    found = [
        {**row, "id": question.id, "label": question.label, "unknown": question.target == "unknown"}
        for question, row in zip(questions, rows, strict=True)
    ]
    return pa.Table.from_pylist(found, pa.schema(columns))


def _behind_prompts(
    questions: Iterable[ChoiceQuestion], tokenizer: Any, encoding: Encoding
) -> Iterator[dict[str, Any]]:
    prompts = []
    for question in questions:
        text = CHOOSE.format(prompt=question.prompt.strip()).strip()
        choices = [choice.strip() for choice in question.choices]
        prompts.append(
            Prompt([{"role": "user", "content": text}], text, 0, choices, f"question {question.id}")
        )
    for row in encode_prompts(prompts, tokenizer, encoding):
        tokens = {"input_ids": row.input_ids_T, "token_type_ids": row.token_type_ids_T}
        yield tokens | {"length": [len(row.input_ids_T)], "candidate": np.ravel(row.spans)}


def _pairs(
    questions: Iterable[ChoiceQuestion], tokenizer: Any, max_length: int, *, spaced: bool
) -> Iterator[dict[str, Any]]:
    def written(text: str) -> str:
        return f" {text}" if spaced and text and not text[0].isspace() else text

    options = {"truncation": "longest_first", "max_length": max_length, "return_token_type_ids": True}
    for question in questions:
        pairs = [(written(question.prompt), written(choice)) for choice in question.choices]
        rows = tokenizer(pairs, **options)
        tokens = {name: list(chain(*rows[name])) for name in ("input_ids", "token_type_ids")}
        yield tokens | {"length": [len(row) for row in rows["input_ids"]]}
