"""Features to padded batches.

A batch is a NamedTuple of tensors, which Lightning moves to the device and pins field by field.

Shape letters: R rows, T tokens, B batch (questions, groups or pairs), V variants (4), S subjects (2),
C choices, E the two boundaries (start, end), P common tokens, N the tokens of several rows together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from data_modules.encoding.tables import flat
from data_modules.encoding.windows import EncodedRow


class QABatch(NamedTuple):
    """Windows of questions."""

    inputs: dict[str, Tensor]
    """`input_ids`, `attention_mask`, `token_type_ids`, each (B, T); a model ignores what it does not take."""
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
    """Target of the window, index into encoding.windows.WINDOW_TYPES."""
    number_B: Tensor
    option_B: Tensor
    """XLNet's number and option classes."""
    rationale_BT: Tensor
    """True at rationale tokens."""
    max_context_BT: Tensor
    """True where an answer may begin: context tokens that no other window shows with more context."""


class GroupBatch(NamedTuple):
    """Whole groups; row b * 4 + v of `inputs` is variant v of group b."""

    inputs: dict[str, Tensor]
    candidate_BVSE: Tensor
    advice_class_B: Tensor
    """Index into schema.ADVICE_CLASSES."""
    subject_BS: Tensor
    """Ids of x1 and x2 in the vocabulary of the data set."""
    attribute_B: Tensor
    group_B: Tensor
    """Index of the group in its data set."""


class PairBatch(NamedTuple):
    """Original stories beside a variant of each, see encoding/pairs.py; P counts the tokens of all."""

    original: dict[str, Tensor]
    variant: dict[str, Tensor]
    """Inputs of the two halves, as in QABatch, each (B, T) with its own T."""
    original_cls_B: Tensor
    variant_cls_B: Tensor
    original_P: Tensor
    variant_P: Tensor
    """Token index of every common token, in its row of either half."""
    row_P: Tensor
    """Which row that is."""
    pair_B: Tensor
    """Index of the pair in its data set."""


class ChoiceBatch(NamedTuple):
    """Multiple-choice questions with the same number of choices C."""

    inputs: dict[str, Tensor]
    """`input_ids`, `attention_mask`, `token_type_ids`, each (B, C, T)."""
    label_B: Tensor
    uniform_B: Tensor
    """True where training wants all choices alike."""
    example_B: Tensor
    """Index of the question in its data set."""
    perturbed: int
    """In how many questions `uniform_B` is True; no device needs to be asked."""


class TrainBatch(NamedTuple):
    """What one optimisation step sees; each part may be absent."""

    groups: GroupBatch | None
    qa: QABatch | None
    choices: tuple[ChoiceBatch, ...] | None = None


class Padded(NamedTuple):
    """Rows of tokens, padded."""

    inputs: dict[str, Tensor]
    """As in QABatch, each (R, T)."""
    shift_R: Tensor
    """Columns of padding before each row."""
    masks: dict[str, Tensor]
    """Booleans of the tokens, each (R, T), False at padding."""


@dataclass(frozen=True)
class Collator:
    """Pads rows as the tokenizer pads them.

    Args:
        tokenizer: tells the padding side and ids.
        multiple: batch lengths are multiples of this (few distinct shapes).
    """

    tokenizer: Any
    multiple: int

    def padded(
        self,
        ids_N: np.ndarray,
        types_N: np.ndarray,
        length_R: np.ndarray,
        *,
        width: int = 0,
        **masks_N: np.ndarray,
    ) -> Padded:
        """Rows that stand behind one another as (R, T); T is `width`, or follows from the longest."""
        width = width or -(-int(length_R.max()) // self.multiple) * self.multiple
        left = self.tokenizer.padding_side == "left"
        shift_R = width - length_R if left else np.zeros(len(length_R), dtype=np.int64)
        column_T = np.arange(width)
        inside_RT = (column_T >= shift_R[:, None]) & (column_T < (shift_R + length_R)[:, None])
        ids_RT = np.full(inside_RT.shape, self.tokenizer.pad_token_id, dtype=np.int64)
        types_RT = np.full(inside_RT.shape, self.tokenizer.pad_token_type_id, dtype=np.int64)
        ids_RT[inside_RT], types_RT[inside_RT] = ids_N, types_N
        attention_RT = inside_RT.astype(np.int64)
        arrays = {"input_ids": ids_RT, "attention_mask": attention_RT, "token_type_ids": types_RT}
        masks = {name: np.zeros(inside_RT.shape, dtype=bool) for name in masks_N}
        for name, values_N in masks_N.items():
            masks[name][inside_RT] = values_N
        return Padded(
            {name: torch.from_numpy(array) for name, array in arrays.items()},
            torch.from_numpy(shift_R),
            {name: torch.from_numpy(mask) for name, mask in masks.items()},
        )

    def pad(self, rows: Sequence[EncodedRow]) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """Returns the model inputs (R, T), the context mask (R, T) and the left shift (R,)."""
        padded = self.padded(
            np.concatenate([row.input_ids_T for row in rows]),
            np.concatenate([row.token_type_ids_T for row in rows]),
            np.array([len(row.input_ids_T) for row in rows]),
            context=np.concatenate([row.offsets_TE[:, 0] for row in rows]) >= 0,
        )
        return padded.inputs, padded.masks["context"], padded.shift_R


def numbers(table: pa.Table, name: str) -> Tensor:
    """A column of numbers, or of lists of them behind one another, as int64."""
    return torch.from_numpy(flat(table, name).astype(np.int64))


def sorted_batches(lengths: Sequence[int] | np.ndarray, batch_size: int) -> list[list[int]]:
    """Every index once, longest first (memory trouble shows at once), similar lengths together."""
    order = np.argsort(-np.asarray(lengths), kind="stable")
    return [order[i : i + batch_size].tolist() for i in range(0, len(order), batch_size)]
