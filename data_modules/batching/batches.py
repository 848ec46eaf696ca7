"""The batches of all sets: tuples of tensors, which Lightning moves to the device.

Shape letters: T tokens, B batch (questions, groups or pairs), V variants (4), S subjects (2), C choices, E
start and end, P common tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from data_modules.encoding.windows import Inputs


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
    """Target of the window, index into sets.WINDOW_TYPES."""
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


def sorted_batches(lengths: Sequence[int] | np.ndarray, batch_size: int) -> list[list[int]]:
    """Every index once, longest first (memory trouble shows at once), similar lengths together."""
    order = np.argsort(-np.asarray(lengths), kind="stable")
    return [order[i : i + batch_size].tolist() for i in range(0, len(order), batch_size)]
