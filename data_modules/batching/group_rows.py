"""Groups, tokenised, and their scores row by row: batches of rows of one length, under a budget of tokens.

The four variants of a group differ in length, and advice makes groups differ more; apart from each other,
rows pad next to nothing. Nothing else can be shared between them: an encoder that looks both ways reads every
variant anew, and no two rows are the same (LEI's religion sets: 4,800 of 4,800 differ).

Shape letters: N groups, V variants (4), S subjects (2), E the two boundaries (start, end), B rows of a batch,
R all rows, N the tokens of several rows, T tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any, NamedTuple

import datasets
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset
from tqdm.auto import tqdm

from data_modules.batching.sets import Collator, GroupBatch, numbers, sorted_batches
from data_modules.encoding.groups import decode_groups, encode_groups
from data_modules.encoding.tables import flat, in_memory
from data_modules.encoding.windows import Encoding
from data_modules.schema import ADVICE_CLASSES, Group

CPU_TOKENS = 1024
"""Tokens in a batch on a CPU, where more of them leave the caches: with MiniLM shapes 662 rows a second,
608 in batches of twice as many (two cores, bfloat16)."""

Score = Callable[[dict[str, Tensor], Tensor, Tensor], Tensor]
"""Inputs (B, T), context (B, T) and candidates (B, 1, S, 2) to boundary log-probabilities (B, 1, S, E)."""


class GroupIds(NamedTuple):
    """Groups in integers; names are numbered in their alphabetical order."""

    subjects: list[str]
    attributes: list[tuple[str, str]]
    """(category, attribute)."""
    advice_class_N: np.ndarray
    """Index into schema.ADVICE_CLASSES."""
    subject_NS: np.ndarray
    """Of x1 and x2."""
    attribute_N: np.ndarray


class GroupSet(Dataset):
    """Groups, tokenised, with integer ids for what the metrics sum over.

    Args:
        data: the records, or their table.
        tokenizer: a fast tokenizer of transformers.
        encoding: how text becomes rows.
    """

    family = "bias"
    """What metrics of such sets are called."""

    def __init__(self, data: Sequence[Group] | datasets.Dataset, tokenizer: Any, encoding: Encoding) -> None:
        if not isinstance(data, datasets.Dataset):
            data = in_memory(data, partial(encode_groups, tokenizer=tokenizer, encoding=encoding))
        self.table, self.encoding = data, encoding
        self._tokens = data.select_columns(
            ["input_ids", "token_type_ids", "is_context", "length", "candidate"]
        )
        self.collator = Collator(tokenizer, encoding.pad_to_multiple_of)

    def __len__(self) -> int:
        return len(self.table)

    @cached_property
    def groups(self) -> list[Group]:
        """The records."""
        return list(decode_groups(self.table))

    @cached_property
    def ids(self) -> GroupIds:
        """What the metrics sum over, as integers."""
        columns = self.table.data
        first, second, category, attribute = (
            columns.column(name).to_pylist() for name in ("first", "second", "category", "attribute")
        )
        named = list(zip(category, attribute, strict=True))
        subjects, attributes = sorted({*first, *second}), sorted(set(named))
        number = {name: i for i, name in enumerate(subjects)}
        of_name = {name: i for i, name in enumerate(attributes)}
        classes = {str(name): k for k, name in enumerate(ADVICE_CLASSES)}
        subject_NS = [(number[x1], number[x2]) for x1, x2 in zip(first, second, strict=True)]
        of_class = [classes[name] for name in columns.column("advice_class").to_pylist()]
        return GroupIds(
            subjects,
            attributes,
            np.array(of_class, dtype=np.int64),
            np.array(subject_NS, dtype=np.int64).reshape(-1, 2),
            np.array([of_name[name] for name in named], dtype=np.int64),
        )

    def __getitem__(self, index: Sequence[int]) -> GroupBatch:
        chosen = np.asarray(index, dtype=np.int64)
        table = self._tokens[chosen]
        padded = self.collator.padded(
            flat(table, "input_ids"),
            flat(table, "token_type_ids"),
            flat(table, "length").astype(np.int64),
            context=flat(table, "is_context"),
        )
        candidate_BVSE = numbers(table, "candidate").view(-1, 4, self.encoding.candidates, 2)
        return GroupBatch(
            inputs=padded.inputs,
            context_BT=padded.masks["context"],
            candidate_BVSE=candidate_BVSE + padded.shift_R.view(-1, 4, 1, 1),
            advice_class_B=torch.from_numpy(self.ids.advice_class_N[chosen]),
            subject_BS=torch.from_numpy(self.ids.subject_NS[chosen]),
            attribute_B=torch.from_numpy(self.ids.attribute_N[chosen]),
            group_B=torch.from_numpy(chosen),
        )

    def batches(self, groups_per_batch: int) -> list[list[int]]:
        """Every group once, similar lengths together."""
        length_NV = flat(self.table.data, "length").reshape(-1, 4)
        return sorted_batches(length_NV.max(axis=1, initial=0), groups_per_batch)


class RowBatch(NamedTuple):
    """Rows of any groups and variants; V is 1."""

    inputs: dict[str, Tensor]
    """As in GroupBatch, each (B, T)."""
    context_BT: Tensor
    candidate_BVSE: Tensor
    row_B: np.ndarray
    """Index of the row: 4 times its group's, plus its variant's."""


def token_budget(rows: int, longest: int, device: torch.device) -> int:
    """Tokens in a batch that has room for `rows` rows of `longest` tokens; on a CPU no more than pay off."""
    tokens = rows * longest
    return min(tokens, max(CPU_TOKENS, longest)) if device.type == "cpu" else tokens


def batches_within(lengths: Sequence[int], tokens: int, multiple: int = 1) -> Iterator[np.ndarray]:
    """Every index once, longest first, cut into batches of at most `tokens` tokens, padding to a `multiple`
    counted; a row longer than that makes up a batch of its own."""
    padded = -(-np.asarray(lengths, dtype=np.int64) // multiple) * multiple
    order = np.argsort(-padded, kind="stable")
    at = 0
    while at < len(order):
        size = max(1, tokens // max(1, int(padded[order[at]])))
        yield order[at : at + size]
        at += size


class RowBatches:
    """Every row of every group once, longest first, in batches that are built when asked for.

    Args:
        data: the groups.
        tokens: see `token_budget`.
        multiple: what widths are rounded up to.
    """

    def __init__(self, data: GroupSet, tokens: int, multiple: int = 1) -> None:
        self.collator = Collator(data.collator.tokenizer, multiple)
        columns = data.table.data
        self.ids_N, self.types_N = flat(columns, "input_ids"), flat(columns, "token_type_ids")
        self.context_N = flat(columns, "is_context")
        self.length_R = flat(columns, "length").astype(np.int64)
        self.start_R = np.cumsum(self.length_R) - self.length_R
        shape = -1, data.encoding.candidates, 2
        self.candidate_RSE = flat(columns, "candidate").astype(np.int64).reshape(shape)
        self.index = list(batches_within(self.length_R.tolist(), tokens, multiple))

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, at: int) -> RowBatch:
        if not 0 <= at < len(self):
            raise IndexError(at)
        index = self.index[at]
        length_B = self.length_R[index]
        before_B = np.cumsum(length_B) - length_B
        at_N = np.repeat(self.start_R[index] - before_B, length_B) + np.arange(length_B.sum())
        padded = self.collator.padded(
            self.ids_N[at_N], self.types_N[at_N], length_B, context=self.context_N[at_N]
        )
        candidate_BSE = torch.from_numpy(self.candidate_RSE[index]) + padded.shift_R.view(-1, 1, 1)
        return RowBatch(padded.inputs, padded.masks["context"], candidate_BSE.unsqueeze(1), index)


def score_rows(
    data: GroupSet, score: Score, *, tokens: int, device: torch.device, what: str = "scoring groups"
) -> Tensor:
    """Boundary log-probabilities (N, V, S, E) of all groups, float32, on the CPU, in their order; E is what
    the model gives, 2 or 1.

    Scores stay on the device until the last batch, so that it never waits to be asked.

    Args:
        data: the groups.
        score: the model, in evaluation mode and in its precision.
        tokens: see `token_budget`.
        device: where the model is.
        what: the name of the bar.
    """
    # Few distinct shapes are good for GPUs; a CPU does not mind, and saves the padding.
    multiple = 1 if device.type == "cpu" else data.collator.multiple
    batches = RowBatches(data, tokens, multiple)
    scored: dict[int, Tensor] = {}
    with tqdm(total=4 * len(data), desc=what, unit="row", disable=None) as bar:

        def score_one(at: int) -> None:
            batch = batches[at]
            inputs = {name: _moved(value, device) for name, value in batch.inputs.items()}
            context_BT, candidate_BVSE = (_moved(x, device) for x in (batch.context_BT, batch.candidate_BVSE))
            scored[at] = score(inputs, context_BT, candidate_BVSE).squeeze(1).float()
            bar.update(len(batch.row_B))

        side_by_side(score_one, len(batches), torch.get_num_threads() if device.type == "cpu" else 1)
    if not scored:
        return torch.empty(0, 4, 2, 2)
    found_RSE = torch.cat([scored[at] for at in range(len(batches))]).cpu()
    result_RSE = torch.empty_like(found_RSE)
    result_RSE[torch.from_numpy(np.concatenate(batches.index))] = found_RSE
    return result_RSE.unflatten(0, (-1, 4))


def side_by_side(task: Callable[[int], None], count: int, threads: int) -> None:
    """`task(0)`, ..., `task(count - 1)`, in `threads` threads of one core each.

    A batch that one core works on waits for nobody: two cores do a third more than when they share each
    operation (measured with MiniLM shapes).

    The threads take over the caller's modes of torch (autocast, gradients, inference). The first error of any
    is raised.
    """
    todo = iter(range(count))  # whose next() is atomic
    if threads <= 1 or count <= 1:
        for at in todo:
            task(at)
        return
    inference, gradients = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    enabled, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    def work() -> None:
        torch.set_num_threads(1)  # of this thread
        with (
            torch.inference_mode(inference),
            torch.set_grad_enabled(gradients),
            torch.autocast("cpu", dtype, enabled=enabled),
        ):
            work_off()

    def work_off() -> None:
        try:
            for at in todo:
                task(at)
        finally:
            deque(todo, maxlen=0)  # after an error the others end with what they have begun

    with ThreadPoolExecutor(min(threads, count)) as pool:
        try:
            for future in [pool.submit(work) for _ in range(min(threads, count))]:
                future.result()
        finally:
            deque(todo, maxlen=0)  # likewise after Ctrl-C


def _moved(value: Tensor, device: torch.device) -> Tensor:
    """On `device`, without waiting for it."""
    return value.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else value.to(device)
