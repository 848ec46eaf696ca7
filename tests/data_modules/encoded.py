"""Tables, taken apart: windows of questions and rows of groups as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from data_modules.encoding.groups import encode_groups
from data_modules.encoding.questions import encode_questions
from data_modules.encoding.windows import EncodedRow, Encoding
from data_modules.schema import Group, QAExample


class Window(NamedTuple):
    """A window with its targets."""

    row: EncodedRow
    start: int
    end: int
    answer_type: int
    number: int
    option: int
    rationale_T: np.ndarray
    max_context_T: np.ndarray


def windows_of(examples: Sequence[QAExample], tokenizer: Any, encoding: Encoding) -> list[Window]:
    """Every window of some questions."""
    rows = encode_questions(examples, tokenizer, encoding).to_pylist()
    found = []
    for row, number in zip(rows, accumulate(row["window"] == 0 for row in rows), strict=True):
        ids, types = np.array(row["input_ids"]), np.array(row["token_type_ids"])
        tokens = EncodedRow(ids, types, np.reshape(row["offsets"], (-1, 2)), row["cls"], number - 1)
        targets = (row[name] for name in ("start", "end", "answer_type", "number", "option"))
        masks = (np.array(row[name], dtype=bool) for name in ("rationale", "max_context"))
        found.append(Window(tokens, *targets, *masks))
    return found


def rows_of_groups(
    groups: Sequence[Group], tokenizer: Any, encoding: Encoding
) -> list[tuple[list[np.ndarray], list[np.ndarray], np.ndarray]]:
    """The token ids and types of each group's variants, and the tokens of its subjects (V, S, E)."""
    found = []
    for row in encode_groups(groups, tokenizer, encoding).to_pylist():
        ends = np.cumsum(row["length"])[:-1]
        ids_V, types_V = (np.split(np.array(row[name]), ends) for name in ("input_ids", "token_type_ids"))
        found.append((ids_V, types_V, np.reshape(row["candidate"], (4, 2, 2))))
    return found
