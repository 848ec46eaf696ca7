"""Sets of questions and of groups: records, their features, and their batches.

Shape letters: N groups or questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import Dataset

from data_modules.batching.collate import Collator, GroupBatch, GroupIds, QABatch, TrainBatch
from data_modules.batching.samplers import BatchIndex, sorted_batches
from data_modules.encoding.choices import ChoiceSet
from data_modules.encoding.questions import QAFeature, encode_qa
from data_modules.encoding.windows import Encoding, GroupFeature, encode_groups
from data_modules.schema import ADVICE_CLASSES, ANSWER_TYPES, AnswerType, Group, QAExample


class GroupVocabulary(NamedTuple):
    """The subjects and attributes of some groups, and every group in integers."""

    subjects: list[str]
    attributes: list[tuple[str, str]]
    """(category, attribute)."""
    ids: list[GroupIds]
    """What the metrics sum over, in the order of the groups."""


class GroupSet(Dataset):
    """Groups, tokenised, with integer ids for what the metrics sum over.

    Args:
        groups: the records.
        tokenizer: a fast tokenizer of transformers.
        encoding: how text becomes rows.
        prepared: their features and ids, where they are known already.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        tokenizer: Any,
        encoding: Encoding,
        *,
        prepared: tuple[Sequence[GroupFeature], GroupVocabulary] | None = None,
    ) -> None:
        self.groups = groups if prepared else list(groups)
        self.features, vocabulary = prepared or (
            encode_groups(self.groups, tokenizer, encoding),
            group_vocabulary(self.groups),
        )
        self.subjects, self.attributes, self.ids = vocabulary
        self.collator = Collator(tokenizer, encoding.pad_to_multiple_of)

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, index: Sequence[int]) -> GroupBatch:
        return self.collator.groups(self.features, self.ids, index)

    def batches(self, groups_per_batch: int) -> list[list[int]]:
        """Every group once, similar lengths together."""
        lengths = getattr(self.features, "lengths_N", None)
        if lengths is None:
            lengths = [max(len(row.input_ids_T) for row in f.rows) for f in self.features]
        return sorted_batches(lengths, groups_per_batch)


def group_vocabulary(groups: Sequence[Group]) -> GroupVocabulary:
    """Integer ids for what the metrics sum over; names are numbered in their alphabetical order."""
    subjects = sorted({s for g in groups for s in g.subjects})
    attributes = sorted({(g.category, g.attribute) for g in groups})
    subject_id = {name: i for i, name in enumerate(subjects)}
    attribute_id = {name: i for i, name in enumerate(attributes)}
    ids = [
        GroupIds(
            ADVICE_CLASSES.index(group.advice_class),
            (subject_id[group.subjects[0]], subject_id[group.subjects[1]]),
            attribute_id[group.category, group.attribute],
        )
        for group in groups
    ]
    return GroupVocabulary(subjects, attributes, ids)


class QASet(Dataset):
    """Extractive questions, tokenised into windows.

    Args:
        examples: the records.
        tokenizer: a fast tokenizer of transformers.
        encoding: how text becomes rows.
        may_abstain: whether a span model may leave a question unanswered; None: where the set holds a
            question without an answer. All variants of one source must agree, or their numbers do not
            compare.
        features: their windows, where they are known already.
    """

    def __init__(
        self,
        examples: Sequence[QAExample],
        tokenizer: Any,
        encoding: Encoding,
        *,
        may_abstain: bool | None = None,
        features: Sequence[QAFeature] | None = None,
    ) -> None:
        self.examples = list(examples) if features is None else examples
        self.may_abstain = has_unknown(self.examples) if may_abstain is None else may_abstain
        self.features = encode_qa(self.examples, tokenizer, encoding) if features is None else features
        self.lengths = row_lengths(self.features)
        self.collator = Collator(tokenizer, encoding.pad_to_multiple_of)

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: Sequence[int]) -> QABatch:
        return self.collator.qa(self.features, index)

    def first_of(self, types: Iterable[AnswerType]) -> QAExample | None:
        """The first question whose answer is of one of these types."""
        wanted = [ANSWER_TYPES.index(name) for name in types]
        found = np.flatnonzero(np.isin(answer_types(self.examples), wanted))
        return self.examples[int(found[0])] if len(found) else None

    def batches(self, windows_per_batch: int) -> list[list[int]]:
        """Every window once; all windows of a question stay in one batch, so that no question is split
        over ranks. Batches hold `windows_per_batch` windows, or a few more for the last question."""
        of_example: dict[int, list[int]] = {}
        for i, feature in enumerate(self.features):
            of_example.setdefault(feature.row.example, []).append(i)
        order = sorted(of_example.values(), key=lambda windows: -max(self.lengths[i] for i in windows))
        batches: list[list[int]] = [[]]
        for windows in order:
            if len(batches[-1]) >= windows_per_batch:
                batches.append([])
            batches[-1] += windows
        return [batch for batch in batches if batch]


def row_lengths(features: Sequence[QAFeature]) -> Sequence[int]:
    """Tokens of every window, (N,); prepared data know them without looking at one."""
    known: Sequence[int] | None = getattr(features, "lengths_N", None)
    return [len(feature.row.input_ids_T) for feature in features] if known is None else known


def answer_types(examples: Sequence[QAExample]) -> np.ndarray:
    """The answer type of every question, (N,), as indices into schema.ANSWER_TYPES; prepared data know them
    without decoding a question."""
    known: np.ndarray | None = getattr(examples, "answer_type_N", None)
    if known is not None:
        return known
    return np.array([ANSWER_TYPES.index(example.answer_type) for example in examples], dtype=np.int8)


def has_unknown(examples: Sequence[QAExample]) -> bool:
    """Whether some question has no answer."""
    return bool((answer_types(examples) == ANSWER_TYPES.index("unknown")).any())


class TrainSet(Dataset):
    """Groups and questions to train on together, or multiple-choice questions; indexed by what `TrainSampler`
    or `ChoiceSampler` yields."""

    def __init__(self, groups: GroupSet | None, qa: QASet | None, choices: ChoiceSet | None = None) -> None:
        self.groups, self.qa, self.choices = groups, qa, choices

    def __getitem__(self, index: BatchIndex) -> TrainBatch:
        return TrainBatch(
            groups=self.groups[index.groups] if self.groups is not None and index.groups else None,
            qa=self.qa[index.qa] if self.qa is not None and index.qa else None,
            choices=self.choices.pieces(index.choices)
            if self.choices is not None and index.choices
            else None,
        )
