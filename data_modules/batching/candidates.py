"""Sets of records that offer candidates, tokenised: groups with two subjects each, and
multiple-choice questions, in batches with equal numbers of choices.

For encoders, each choice is a row, paired with the prompt; for decoders, one row has the prompt and
all choices after it.

Shape letters: N groups, V variants (4), S subjects (2), Q questions, C choices, E first and last
token (or boundary), B groups, questions or rows of a batch, R all rows, T tokens.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from interventune.data_modules.encoding.prompts import CHOOSE, Prompt, encode_prompts, group_prompts
from interventune.data_modules.encoding.tokenizers import warn_of_cut, warn_of_unknown
from interventune.data_modules.encoding.windows import (
    DECODERS,
    PAD_TO,
    Batches,
    EncodedRow,
    Encoding,
    Inputs,
    Prompts,
    encode_texts,
    pad_rows,
    sorted_batches,
    token_span,
)
from interventune.data_modules.schema.groups import ADVICE_CLASSES, Group
from interventune.data_modules.schema.questions import ChoiceQuestion
from interventune.storage.documents import DataError


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


class GroupSet:
    """Groups, tokenised."""

    family = "bias"  # in the keys of metrics

    def __init__(self, groups: Sequence[Group], tokenizer: Any, encoding: Encoding) -> None:
        self.groups = groups
        self.tokenizer = tokenizer
        self.encoding = encoding
        self.encoded = encode_groups(groups, tokenizer, encoding)
        warn_of_unknown(tokenizer, (row.input_ids_T for row in self.encoded[:999]))
        self.lengths = np.array([len(row.input_ids_T) for row in self.encoded])
        """Length of every row in tokens, (R,); row 4 n + v is variant v of group n."""
        attributes = [(group.category, group.attribute) for group in groups]
        self.advice_class_N = np.array([ADVICE_CLASSES.index(x.advice_class) for x in groups])
        """Index into ADVICE_CLASSES."""
        self.subject_NS = np.unique([group.subjects for group in groups], return_inverse=True)[1]
        """Ids of x1 and x2, numbered alphabetically."""
        self.attribute_N = np.unique(attributes, return_inverse=True, axis=0)[1]
        """Id of category and attribute, numbered alphabetically."""

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, index: Sequence[int]) -> GroupBatch:
        chosen = np.asarray(index)
        row_R = (4 * chosen[:, None] + np.arange(4)).ravel()
        inputs, context_BT, candidate_RVSE = self.rows(row_R, PAD_TO)
        return GroupBatch(
            inputs=inputs,
            context_BT=context_BT,
            candidate_BVSE=candidate_RVSE.view(-1, 4, *candidate_RVSE.shape[2:]),
            advice_class_B=torch.from_numpy(self.advice_class_N[chosen]),
            subject_BS=torch.from_numpy(self.subject_NS[chosen]),
            attribute_B=torch.from_numpy(self.attribute_N[chosen]),
            group_B=torch.from_numpy(chosen),
        )

    def rows(self, index: ndarray, multiple: int) -> tuple[Inputs, Tensor, Tensor]:
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
            covered = slice(*row.offsets_TE[[*tokens], [0, 1]]) if tokens else slice(None)
            if tokens is None or variant.context[covered].strip() not in span.text:
                raise DataError(
                    f"{key}: no tokens cover just the subject {span.text!r} of {variant.context!r}"
                )
            spans.append(tokens)
        rows.append(row._replace(spans=tuple(spans)))
    return rows


@dataclass(kw_only=True)
class ChoiceEncoding:
    """How a prompt and one of its choices become a row of tokens.

    Args:
        max_length: Tokens in a row, with special tokens. If a pair is longer, the end of its longer
            text is cut. A decoder's row holds all choices and is never cut.
        padding: `dynamic` pads a batch to its longest row; `parity` pads every row to `max_length`,
            as in the code of Shen and Kejriwal 2022.
        chat: Whether a decoder's prompt uses the tokenizer's chat template: `auto`, if there is
            one, or `never`.
    """

    max_length: int = 128
    padding: Literal["dynamic", "parity"] = "dynamic"
    chat: Literal["auto", "never"] = "auto"

    def within(self, limit: int) -> "ChoiceEncoding":
        """Return the options for a model with so many positions."""
        return replace(self, max_length=min(self.max_length, limit))

    def of_decoder(self, architecture: str) -> Encoding:
        """Return the text encoding stored in checkpoints of decoders, with these settings."""
        prompts = Prompts(chat=self.chat)
        return Encoding(max_length=self.max_length, prompts=prompts, architecture=architecture)


class ChoiceBatch(NamedTuple):
    """Multiple-choice questions with the same number of choices C."""

    inputs: Inputs
    """Each (B, C, T); for a decoder (B, 1, T)."""
    label_B: Tensor
    unknown_B: Tensor
    """True where the label is "unknown" and training should equalise the other choices."""
    candidate_BCE: Tensor | None
    """For a decoder: first and last token of each choice after the prompt."""
    example_B: Tensor
    """Index of the question in its data set."""


class ChoiceSet:
    """Tokenised questions, indexed by the questions of a batch (equal numbers of choices)."""

    family = "choices"  # in the keys of metrics

    def __init__(
        self,
        questions: Sequence[ChoiceQuestion],
        tokenizer: Any,
        encoding: ChoiceEncoding,
        architecture: str,
    ) -> None:
        self.questions = questions
        self.tokenizer = tokenizer
        self.rows = list(encode_choices(questions, tokenizer, encoding, architecture))
        warn_of_unknown(tokenizer, (row.input_ids_T for row in chain(*self.rows[:999])))
        self.multiple = encoding.max_length if encoding.padding == "parity" else PAD_TO
        self.counts = np.array([len(question.choices) for question in questions])
        """Number of choices of every question."""
        self.lengths = np.array([max(len(row.input_ids_T) for row in rows) for rows in self.rows])
        """Length of the longest row of every question, in tokens."""

    def __getitem__(self, index: Sequence[int]) -> ChoiceBatch:
        questions = [self.questions[i] for i in index]
        rows = [*chain(*(self.rows[i] for i in index))]
        inputs, _, shift_R = pad_rows(rows, self.tokenizer, self.multiple)
        candidate_BCE = None
        if rows[0].spans:
            candidate_BCE = torch.tensor([row.spans for row in rows]) + shift_R.view(-1, 1, 1)
        return ChoiceBatch(
            inputs={
                name: rows_RT.unflatten(0, (len(index), -1)) for name, rows_RT in inputs.items()
            },
            label_B=torch.tensor([question.label for question in questions]),
            unknown_B=torch.tensor([question.target == "unknown" for question in questions]),
            candidate_BCE=candidate_BCE,
            example_B=torch.tensor(index),
        )

    def items_of(self, index: Sequence[int]) -> Counter[str]:
        """Return the number of questions of a batch."""
        return Counter(questions=len(index))

    def batches(self, rows_per_batch: int) -> Batches:
        """Batch every question once, longest first, with equal numbers of choices."""
        return [
            of_count[batch].tolist()
            for count, of_count in by_count(self.counts).items()
            for batch in sorted_batches(self.lengths[of_count], max(1, rows_per_batch // count))
        ]


def by_count(counts: ndarray) -> dict[int, ndarray]:
    """Group question indices by number of choices, both in ascending order."""
    return {int(count): np.flatnonzero(counts == count) for count in np.unique(counts)}


def encode_choices(
    questions: Sequence[ChoiceQuestion], tokenizer: Any, encoding: ChoiceEncoding, architecture: str
) -> Iterator[list[EncodedRow]]:
    """Yield the rows of every question: one per choice; for a decoder, a single one.

    A decoder's row has the `spans` of all choices. An empty prompt remains an empty first segment:
    `<s></s></s> choice </s>`. For RoBERTa, each non-empty text without a leading space gets one, as
    in the middle of a sentence. DataError if a decoder's row is too long.
    """
    if architecture in DECODERS:
        prompts = []
        for question in questions:
            text = CHOOSE.format(prompt=question.prompt.strip()).strip()
            messages = [{"role": "user", "content": text}]
            choices = [choice.strip() for choice in question.choices]
            prompts.append(Prompt(messages, text, 0, choices, f"question {question.id}"))
        rows = encode_prompts(prompts, tokenizer, encoding.of_decoder(architecture))
        yield from ([row] for row in rows)
        return

    def spaced(text: str) -> str:
        return re.sub(r"^(?=\S)", " ", text) if architecture == "roberta" else text

    cut = list[bool]()
    for example, question in enumerate(questions):
        pairs = [(spaced(question.prompt), spaced(choice)) for choice in question.choices]
        encodings = tokenizer(
            pairs, truncation="longest_first", max_length=encoding.max_length
        ).encodings
        cut += [bool(row.overflowing) for row in encodings]
        yield [
            EncodedRow(
                np.array(row.ids, np.int32),
                np.array(row.type_ids, np.uint8),
                np.full((len(row.ids), 2), -1),
                cls=0,
                example=example,
            )
            for row in encodings
        ]
    warn_of_cut(cut, "choices")
