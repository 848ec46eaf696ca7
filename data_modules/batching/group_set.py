"""Groups, tokenised, in batches of whole groups or of rows of any groups.

Shape letters: N groups, V variants (4), S subjects (2), E the two boundaries (start, end), B groups
or rows of a batch, R all rows, T tokens.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from interventune.data_modules.encoding.tokenizers import warn_of_unknown
from interventune.data_modules.encoding.windows import (
    DECODERS,
    PAD_TO,
    Batches,
    EncodedRow,
    Encoding,
    Inputs,
    encode_texts,
    pad_rows,
    sorted_batches,
    token_span,
)
from interventune.data_modules.schema.groups import ADVICE_CLASSES, Group
from interventune.storage.errors import DataError


class GroupIds(NamedTuple):
    """Groups as integers; names are numbered alphabetically."""

    advice_class_N: np.ndarray
    """Index into ADVICE_CLASSES."""
    subjects: np.ndarray
    subject_NS: np.ndarray
    """Ids of x1 and x2."""
    attributes: np.ndarray
    """(category, attribute) of each."""
    attribute_N: np.ndarray


class GroupBatch(NamedTuple):
    """Whole groups; row b * 4 + v of `inputs` is variant v of group b."""

    inputs: Inputs
    context_BT: Tensor
    """True at context tokens, in the same rows."""
    candidate_BVSE: Tensor
    advice_class_B: Tensor
    """Index into ADVICE_CLASSES."""
    subject_BS: Tensor
    """Ids of x1 and x2 in the vocabulary of the data set."""
    attribute_B: Tensor
    group_B: Tensor
    """Index of the group in its data set."""


class GroupSet(Dataset):
    """Groups, tokenised."""

    family = "bias"  # in the keys of metrics

    def __init__(self, groups: Sequence[Group], tokenizer: Any, encoding: Encoding) -> None:
        self.groups, self.tokenizer, self.encoding = groups, tokenizer, encoding
        self.encoded = encode_groups(groups, tokenizer, encoding)
        warn_of_unknown(tokenizer, (row.input_ids_T for row in self.encoded[:999]))
        self.lengths = np.array([len(row.input_ids_T) for row in self.encoded], np.int64)
        """Length of every row in tokens, (R,); row 4 n + v is variant v of group n."""

    def __len__(self) -> int:
        return len(self.groups)

    @cached_property
    def ids(self) -> GroupIds:
        """The keys by which metrics sum, as integers."""
        classes = [ADVICE_CLASSES.index(group.advice_class) for group in self.groups]
        attributes = [(group.category, group.attribute) for group in self.groups]
        return GroupIds(
            np.array(classes, np.int64),
            *np.unique([group.subjects for group in self.groups], return_inverse=True),
            *np.unique(attributes, return_inverse=True, axis=0),
        )

    def __getitem__(self, index: Sequence[int]) -> GroupBatch:
        chosen = np.asarray(index, dtype=np.int64)
        row_R = (4 * chosen[:, None] + np.arange(4)).ravel()
        inputs, context_BT, candidate_RVSE = self.rows(row_R, PAD_TO)
        return GroupBatch(
            inputs=inputs,
            context_BT=context_BT,
            candidate_BVSE=candidate_RVSE.view(-1, 4, *candidate_RVSE.shape[2:]),
            advice_class_B=torch.from_numpy(self.ids.advice_class_N[chosen]),
            subject_BS=torch.from_numpy(self.ids.subject_NS[chosen]),
            attribute_B=torch.from_numpy(self.ids.attribute_N[chosen]),
            group_B=torch.from_numpy(chosen),
        )

    def rows(self, index: np.ndarray, multiple: int) -> tuple[Inputs, Tensor, Tensor]:
        """Return inputs (B, T), context (B, T) and candidates (B, 1, S, 2) of some rows.

        T is a multiple of `multiple`.
        """
        rows = [self.encoded[i] for i in index]
        inputs, context_BT, shift_B = pad_rows(rows, self.tokenizer, multiple)
        candidate_BSE = torch.tensor([row.spans for row in rows]) + shift_B.view(-1, 1, 1)
        return inputs, context_BT, candidate_BSE.unsqueeze(1)

    def batches(self, rows_per_batch: int) -> Batches:
        """Return batches with every group once, similar lengths together; a group is four rows."""
        longest_N = self.lengths.reshape(-1, 4).max(axis=1, initial=0)
        return sorted_batches(longest_N, max(1, rows_per_batch // 4))


def encode_groups(groups: Sequence[Group], tokenizer: Any, encoding: Encoding) -> list[EncodedRow]:
    """Return the rows of groups; each variant has exactly one window.

    Their `spans` are the first and last token of each subject, and of `unknown` if it is a
    candidate.

    Raises:
        DataError: a context is longer than a window, or a token at a subject's boundary also covers
            neighbouring text; the message names the group.
    """
    if encoding.architecture in DECODERS:
        from interventune.data_modules.encoding.prompts import encode_prompts, group_prompts

        return list(encode_prompts(group_prompts(groups, encoding.prompts), tokenizer, encoding))
    variants = [(variant, group.key) for group in groups for variant in group.variants]
    texts = ((v.context, v.query, key) for v, key in variants)
    rows: list[EncodedRow] = []
    for row in encode_texts(texts, tokenizer, encoding):
        variant, key = variants[row.example]
        if row.example != len(rows):
            raise DataError(
                f"{key}: does not fit into {encoding.max_length} tokens (encoding.max_length)"
            )
        spans = []
        for span in variant.candidates:
            tokens = token_span(row, span)
            if tokens is not None:
                start, end = row.offsets_TE[list(tokens), [0, 1]]
                if variant.context[start:end].strip() not in span.text:
                    tokens = None
            if tokens is None:
                raise DataError(
                    f"{key}: no tokens cover just the subject {span.text!r} of {variant.context!r}"
                )
            spans.append(tokens)
        rows.append(row._replace(spans=tuple(spans)))
    return rows
