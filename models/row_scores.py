"""Scores of many rows: batches of rows of one length, under a budget of tokens, on a CPU side by side.

Shape letters: R all rows, B rows of a batch, V variants of a row (1), S subjects, E boundaries, T tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

CPU_TOKENS = 1024
"""Tokens in a batch on a CPU, where more of them leave the caches: with MiniLM shapes 662 rows a second,
608 in batches of twice as many (two cores, bfloat16)."""

Batch = tuple[dict[str, Tensor], Tensor, Tensor]
"""Inputs (B, T), context (B, T) and candidates (B, 1, S, 2)."""


def batches_within(length_R: np.ndarray, tokens: int, multiple: int = 1) -> Iterator[np.ndarray]:
    """Every index once, longest first, cut into batches of at most `tokens` tokens, padding to a `multiple`
    counted; a row longer than that makes up a batch of its own."""
    padded_R = -(-length_R // multiple) * multiple
    order_R = np.argsort(-padded_R, kind="stable")
    at = 0
    while at < len(order_R):
        size = max(1, tokens // max(1, int(padded_R[order_R[at]])))
        yield order_R[at : at + size]
        at += size


@torch.inference_mode()
def score_rows(
    rows: Callable[[np.ndarray, int], Batch],
    length_R: np.ndarray,
    score: Callable[[dict[str, Tensor], Tensor, Tensor], Tensor],
    *,
    tokens: int,
    device: torch.device,
    multiple: int = 8,
    what: str = "scoring groups",
) -> Tensor:
    """Boundary log-probabilities (R, S, E) of all rows, float32, on the CPU, in their order.

    Args:
        rows: builds a batch out of indices and what its width is a multiple of.
        length_R: tokens of every row.
        score: the model, in evaluation mode and in its precision: a `Batch` to (B, 1, S, E).
        tokens: in a batch; on a CPU no more than pay off.
        device: where the model is; scores stay there until the last batch, so that it never waits.
        multiple: of widths, for few distinct shapes; a CPU does not mind these, and saves the padding.
        what: the name of the bar.
    """
    on_cpu = device.type == "cpu"
    if on_cpu:
        tokens, multiple = min(tokens, CPU_TOKENS), 1
    index = list(batches_within(length_R, tokens, multiple))
    scored: list[Tensor] = [torch.empty(0)] * len(index)
    with tqdm(total=len(length_R), desc=what, unit="row", disable=None) as bar:

        def score_batch(at: int) -> None:
            inputs, context_BT, candidate_BVSE = rows(index[at], multiple)
            inputs = {name: _moved(value, device) for name, value in inputs.items()}
            found_BVSE = score(inputs, _moved(context_BT, device), _moved(candidate_BVSE, device))
            scored[at] = found_BVSE.squeeze(1).float()
            bar.update(len(index[at]))

        if on_cpu and len(index) > 1:
            side_by_side(score_batch, len(index), torch.get_num_threads())
        else:
            for at in range(len(index)):
                score_batch(at)
    if not scored:
        return torch.empty(0, 2, 2)
    return torch.cat(scored).cpu()[np.argsort(np.concatenate(index))]


def side_by_side(task: Callable[[int], None], count: int, threads: int) -> None:
    """`task(0)`, ..., `task(count - 1)` in `threads` threads of one core each, in inference mode and under
    the caller's autocast. After an error, which is raised, threads end with what they have begun.

    A batch that one core works on waits for nobody: two cores do a quarter more than when they share each
    operation, and several times as much where other programs run too (measured with MiniLM shapes).
    """
    todo = iter(range(count))  # whose next() is atomic
    enabled, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    def work() -> None:
        torch.set_num_threads(1)  # of this thread
        with torch.inference_mode(), torch.autocast("cpu", dtype, enabled=enabled):
            for at in todo:
                task(at)

    with ThreadPoolExecutor(threads) as pool:
        try:
            futures = [pool.submit(work) for _ in range(threads)]
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:  # of an error or Ctrl-C
            deque(todo, maxlen=0)
    for future in futures:
        future.result()


def _moved(value: Tensor, device: torch.device) -> Tensor:
    """On `device`, without waiting for it."""
    return value.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else value.to(device)
