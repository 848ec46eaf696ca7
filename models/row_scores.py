"""Scores of many rows: batches of rows of similar length, within a limit of tokens.

Shape letters: R all rows, B rows of a batch, V variants of a row (1), S subjects, E boundaries, T
tokens.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interventune.storage.progress import progress

CPU_TOKENS = 1024
"""Tokens per batch on a CPU; more would overflow the caches."""


def by_length(length_R: Any, tokens: int) -> Iterator[Any]:
    """Yield the row indices of batches of rows with these lengths, longest rows first. A batch has
    at most `tokens`, including padding; a longer row is a batch of its own.
    """
    order_R = np.argsort(-np.asarray(length_R), kind="stable")
    while len(order_R):
        count = max(1, tokens // length_R[order_R[0]])
        yield order_R[:count]
        order_R = order_R[count:]


@torch.inference_mode()
def score_rows(
    data: Any,
    score: Callable[..., Tensor],
    *,
    tokens: int,
    device: torch.device,
    what: str,
) -> Tensor:
    """Boundary log-probabilities (R, S, E) of all rows, float32, on the CPU, in their order.

    Args:
        data: as interventune.data_modules.batching.group_set.GroupSet. Its `rows` builds a batch
            from row indices and a number that its width must be a multiple of: inputs (B, T),
            context (B, T) and candidates (B, 1, S, 2).
        tokens: see `by_length`.
        score: the model, in evaluation mode and in its precision: such a batch to (B, 1, S, E).
        device: the model's; scores stay there until the last batch, so that it never waits.
        what: label of the progress bar.
    """
    length_R, multiple = data.lengths, 8
    if device.type == "cpu":
        tokens, multiple = min(tokens, CPU_TOKENS), 1
    batches = list(by_length(-(-length_R // multiple) * multiple, tokens))
    if not batches:
        return torch.empty(0, 2, 2)
    scores = list[Tensor]()

    def moved(values: Tensor) -> Tensor:
        """On the device, without waiting for it."""
        pinned = values.pin_memory() if device.type == "cuda" else values
        return pinned.to(device, non_blocking=True)

    with progress(None, what, "row", len(length_R)) as bar:
        for index in batches:
            inputs, *rest = data.rows(index, multiple)
            inputs = {name: moved(values) for name, values in inputs.items()}
            scores.append(score(inputs, *map(moved, rest)).squeeze(1).float())
            bar.update(len(index))
    return torch.cat(scores).cpu()[np.argsort(np.concatenate(batches))]
