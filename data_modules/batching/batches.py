"""The batches of all sets: tuples of tensors, which Lightning moves to the device; and how rows are padded.

Shape letters: R rows, T tokens, B batch (questions, groups or pairs), V variants (4), S subjects (2),
C choices, E start and end, P common tokens, N tokens of several rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from data_modules.encoding.windows import EncodedRow

PAD_TO = 8
"""Lengths of batches are multiples of this, so that there are few shapes."""

Inputs = dict[str, Tensor]
"""`input_ids`, `attention_mask`, `token_type_ids`, each (B, T); a model ignores what it does not take."""


class QABatch(NamedTuple):
    """Windows of questions."""

    inputs: Inputs
    start_B: Tensor
    end_B: Tensor
    context_BT: Tensor
    """True at context tokens: where an answer may stand."""
    cls_B: Tensor
    shift_B: Tensor
    """Columns of padding before the row: subtract to get the token index of the unpadded row."""
    feature_B: Tensor
    """Index of the window in its data set."""
    answer_type_B: Tensor
    """Target of the window, index into encoding.questions.WINDOW_TYPES."""
    number_B: Tensor
    option_B: Tensor
    """XLNet's number and option classes."""
    rationale_BT: Tensor
    """True at rationale tokens."""
    max_context_BT: Tensor
    """True where an answer may begin: context tokens that no other window shows with more context."""


class GroupBatch(NamedTuple):
    """Whole groups; row b * 4 + v of `inputs` is variant v of group b."""

    inputs: Inputs
    context_BT: Tensor
    """True at context tokens, of the same rows."""
    candidate_BVSE: Tensor
    advice_class_B: Tensor
    """Index into schema.ADVICE_CLASSES."""
    subject_BS: Tensor
    """Ids of x1 and x2 in the vocabulary of the data set."""
    attribute_B: Tensor
    group_B: Tensor
    """Index of the group in its data set."""


class PairBatch(NamedTuple):
    """Original stories beside a variant of each, in their first windows; P counts the tokens of all."""

    original: QABatch
    variant: QABatch
    original_P: Tensor
    variant_P: Tensor
    """Token index of every common token, in its row of either half."""
    row_P: Tensor
    """Which row that is."""


class ChoiceBatch(NamedTuple):
    """Multiple-choice questions with the same number of choices C."""

    inputs: Inputs
    """Each (B, C, T); of a decoder (B, 1, T)."""
    label_B: Tensor
    unknown_B: Tensor
    """True where the label says that the text does not tell, and the other choices are to be alike."""
    candidate_BCE: Tensor | None
    """Of a decoder: first and last token of each choice behind the prompt."""
    example_B: Tensor
    """Index of the question in its data set."""


class TrainBatch(NamedTuple):
    """What one optimisation step sees; each part may be absent."""

    groups: GroupBatch | None = None
    qa: QABatch | None = None


def padded(
    tokenizer: Any,
    ids_N: np.ndarray,
    types_N: np.ndarray,
    length_R: np.ndarray,
    *,
    multiple: int = PAD_TO,
    **masks_N: np.ndarray,
) -> tuple[Inputs, Tensor, dict[str, Tensor]]:
    """Rows that stand behind one another, padded as the tokenizer pads them, to a multiple in length.

    Returns:
        Inputs (R, T), columns of padding before each row (R,), and masks (R, T), False at padding.
    """
    length_R = length_R.astype(np.int64)
    width = -(-int(length_R.max()) // multiple) * multiple
    left = tokenizer.padding_side == "left"
    shift_R = width - length_R if left else np.zeros(len(length_R), dtype=np.int64)
    column_T = np.arange(width)
    inside_RT = (column_T >= shift_R[:, None]) & (column_T < (shift_R + length_R)[:, None])

    def rows_of(values_N: Any, padding: int, dtype: type) -> Tensor:
        array = np.full(inside_RT.shape, padding, dtype)
        array[inside_RT] = values_N
        return torch.from_numpy(array)

    inputs = {
        "input_ids": rows_of(ids_N, tokenizer.pad_token_id, np.int64),
        "attention_mask": rows_of(1, 0, np.int64),
        "token_type_ids": rows_of(types_N, tokenizer.pad_token_type_id, np.int64),
    }
    masks = {name: rows_of(values_N, False, bool) for name, values_N in masks_N.items()}
    return inputs, torch.from_numpy(shift_R), masks


def pad_rows(
    rows: Sequence[EncodedRow], tokenizer: Any, multiple: int = PAD_TO
) -> tuple[Inputs, Tensor, Tensor]:
    """Inputs (R, T), context (R, T), True at context tokens, and columns of padding before each row (R,)."""
    ids_N, types_N, offsets_NE = (np.concatenate([row[column] for row in rows]) for column in range(3))
    columns = ids_N, types_N, np.array([len(row.input_ids_T) for row in rows])
    inputs, shift_R, masks = padded(tokenizer, *columns, multiple=multiple, context=offsets_NE[:, 0] >= 0)
    return inputs, masks["context"], shift_R


def sorted_batches(lengths: Sequence[int] | np.ndarray, batch_size: int) -> list[list[int]]:
    """Every index once, longest first (memory trouble shows at once), similar lengths together."""
    order = np.argsort(-np.asarray(lengths), kind="stable")
    return [order[i : i + batch_size].tolist() for i in range(0, len(order), batch_size)]
