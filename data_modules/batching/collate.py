"""Features to padded batches.

A batch is a NamedTuple of tensors, which Lightning moves to the device and pins field by field.

Shape letters: R rows, T tokens, B batch (questions, groups or pairs), V variants (4), S subjects (2),
E the two boundaries (start, end), P common tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from data_modules.encoding.choices import ChoiceBatch
from data_modules.encoding.questions import QAFeature
from data_modules.encoding.windows import EncodedRow, GroupFeature


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
    """Target of the window, index into qa_features.WINDOW_TYPES."""
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
    """Original stories beside a variant of each; see pairs.py. P counts the common tokens of all of them."""

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


class TrainBatch(NamedTuple):
    """What one optimisation step sees; each part may be absent."""

    groups: GroupBatch | None
    qa: QABatch | None
    choices: tuple[ChoiceBatch, ...] | None = None


class GroupIds(NamedTuple):
    """What a group is, as integers."""

    advice_class: int
    subjects: tuple[int, int]
    attribute: int


class Collator:
    """Pads rows as the tokenizer pads them.

    Args:
        tokenizer: tells the padding side and ids.
        pad_to_multiple_of: batch lengths are multiples of this (few distinct shapes).
    """

    def __init__(self, tokenizer: Any, pad_to_multiple_of: int) -> None:
        self.pad_id = int(tokenizer.pad_token_id)
        self.pad_type = int(tokenizer.pad_token_type_id)
        self.left = tokenizer.padding_side == "left"
        self.multiple = pad_to_multiple_of

    def pad(self, rows: Sequence[EncodedRow]) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """Returns the model inputs (R, T), the context mask (R, T) and the left shift (R,)."""
        longest = max(len(row.input_ids_T) for row in rows)
        width = -(-longest // self.multiple) * self.multiple
        ids = np.full((len(rows), width), self.pad_id, dtype=np.int64)
        mask = np.zeros((len(rows), width), dtype=np.int64)
        types = np.full((len(rows), width), self.pad_type, dtype=np.int64)
        context = np.zeros((len(rows), width), dtype=bool)
        shift = np.zeros(len(rows), dtype=np.int64)
        for r, row in enumerate(rows):
            length = len(row.input_ids_T)
            shift[r] = width - length if self.left else 0
            at = slice(shift[r], shift[r] + length)
            ids[r, at], mask[r, at], types[r, at] = row.input_ids_T, 1, row.token_type_ids_T
            context[r, at] = row.offsets_TE[:, 0] >= 0
        arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        inputs = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return inputs, torch.from_numpy(context), torch.from_numpy(shift)

    def qa(self, features: Sequence[QAFeature], index: Sequence[int]) -> QABatch:
        """Windows `index` of `features` as one batch."""
        chosen = [features[i] for i in index]
        inputs, context_BT, shift_B = self.pad([f.row for f in chosen])
        return QABatch(
            inputs=inputs,
            start_B=torch.tensor([f.start for f in chosen]) + shift_B,
            end_B=torch.tensor([f.end for f in chosen]) + shift_B,
            context_BT=context_BT,
            cls_B=torch.tensor([f.row.cls for f in chosen]) + shift_B,
            shift_B=shift_B,
            feature_B=torch.tensor(list(index)),
            answer_type_B=torch.tensor([f.answer_type for f in chosen]),
            number_B=torch.tensor([f.number for f in chosen]),
            option_B=torch.tensor([f.option for f in chosen]),
            rationale_BT=self.spread([f.rationale_T for f in chosen], shift_B, context_BT.shape[1]),
            max_context_BT=self.spread([f.max_context_T for f in chosen], shift_B, context_BT.shape[1]),
        )

    @staticmethod
    def spread(masks: Sequence[np.ndarray], shift_B: Tensor, width: int) -> Tensor:
        """Boolean rows of different lengths as one (B, width), where their tokens stand after padding."""
        spread_BT = torch.zeros(len(masks), width, dtype=torch.bool)
        for b, (mask_T, shift) in enumerate(zip(masks, shift_B.tolist(), strict=True)):
            spread_BT[b, shift : shift + len(mask_T)] = torch.from_numpy(mask_T)
        return spread_BT

    def groups(
        self, features: Sequence[GroupFeature], ids: Sequence[GroupIds], index: Sequence[int]
    ) -> GroupBatch:
        """Groups `index` of `features` as one batch of 4 rows each."""
        inputs, _, shift_R = self.pad([row for i in index for row in features[i].rows])
        candidate = torch.from_numpy(np.stack([features[i].candidate_VSE for i in index]))
        chosen = [ids[i] for i in index]
        return GroupBatch(
            inputs=inputs,
            candidate_BVSE=candidate + shift_R.view(-1, 4, 1, 1),
            advice_class_B=torch.tensor([c.advice_class for c in chosen]),
            subject_BS=torch.tensor([c.subjects for c in chosen]),
            attribute_B=torch.tensor([c.attribute for c in chosen]),
            group_B=torch.tensor(list(index)),
        )
