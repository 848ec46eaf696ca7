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
    """A row for every question: `input_ids` and `token_type_ids` of its choices behind one another, `length`
    of each; `id`, `label`, and whether its target is `unknown`. Of a decoder `input_ids` of the
    prompt and all choices, and `candidate`, the first and last token of each choice.

    An empty prompt stays an empty first segment: `<s></s></s> choice </s>`. RoBERTa gets a space before each
    text that is not empty and does not begin with one, as in the middle of a sentence.

    Raises:
        DataError: a decoder's row is too long.
    """
    if architecture in DECODERS:
        columns = _behind_prompts(questions, tokenizer, encoding)
    else:
        columns = _pairs(questions, tokenizer, encoding, spaced=architecture == "roberta")
    return pa.table(
        columns
        | {
            "id": pa.array([question.id for question in questions], pa.string()),
            "label": pa.array([question.label for question in questions], pa.int64()),
            "unknown": pa.array([question.target == "unknown" for question in questions], pa.bool_()),
        }
    )


def _behind_prompts(
    questions: Sequence[ChoiceQuestion], tokenizer: Any, encoding: ChoiceEncoding
) -> dict[str, pa.Array]:
    prompts = []
    for question in questions:
        text = CHOOSE.format(prompt=question.prompt.strip()).strip()
        choices = [choice.strip() for choice in question.choices]
        message = {"role": "user", "content": text}
        prompts.append(Prompt([message], text, 0, choices, f"question {question.id}"))
    chat = encoding.chat == "auto" and bool(getattr(tokenizer, "chat_template", None))
    rows = list(encode_prompts(prompts, tokenizer, encoding.max_length, chat=chat))
    return {
        "input_ids": list_column([row.input_ids_T for row in rows], np.int32),
        "token_type_ids": list_column([row.token_type_ids_T for row in rows], np.uint8),
        "length": list_column([[len(row.input_ids_T)] for row in rows], np.int32),
        "candidate": list_column([list(chain(*row.spans)) for row in rows], np.int32),
    }


def _pairs(
    questions: Sequence[ChoiceQuestion], tokenizer: Any, encoding: ChoiceEncoding, *, spaced: bool
) -> dict[str, pa.Array]:
    pairs = [(question.prompt, choice) for question in questions for choice in question.choices]
    if spaced:
        pairs = [(_spaced(prompt), _spaced(choice)) for prompt, choice in pairs]
    how = {"truncation": "longest_first", "max_length": encoding.max_length, "return_token_type_ids": True}
    rows = tokenizer(pairs, **how) if pairs else {"input_ids": [], "token_type_ids": []}
    lengths = [len(ids) for ids in rows["input_ids"]]
    ends = np.cumsum([0, *(len(question.choices) for question in questions)]).tolist()
    of_question = [slice(start, end) for start, end in pairwise(ends)]
    return {
        "input_ids": list_column([list(chain(*rows["input_ids"][at])) for at in of_question], np.int32),
        "token_type_ids": list_column(
            [list(chain(*rows["token_type_ids"][at])) for at in of_question], np.uint8
        ),
        "length": list_column([lengths[at] for at in of_question], np.int32),
    }


def _spaced(text: str) -> str:
    return f" {text}" if text and not text[0].isspace() else text
