"""Likelihoods of continuations after a prompt: one function, for losses and for evaluation.

A row is a prompt followed by all its continuations. Each continuation attends to the prompt and
itself only, at the positions that it would have alone: the prompt is read once for any number of
continuations, and collects the gradients of all. Logits are computed only where they predict a
token of a continuation.

Shape letters: B rows, T tokens of a row, C continuations, K tokens with logits, D hidden, V
vocabulary, E the two boundaries (first, last token).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.nn.utils.rnn import pad_sequence

VOCABULARY_PART = 16_384
"""Rows of the output embeddings that are cast to float32 at a time."""

AT_ONCE = 16
"""Tokens whose logits are summed at a time."""

M = TypeVar("M")


class Float32Projection(torch.nn.Linear):
    """A last layer that is computed in float32, whatever the type of its weights or of autocast."""

    def forward(self, input: Tensor) -> Tensor:
        """Compute the logits (..., V) of hidden states."""
        if self.weight.dtype == torch.float64:
            return super().forward(input)
        with torch.autocast(input.device.type, enabled=False):
            parts = [
                linear(input.float(), rows_VD.float())
                for rows_VD in self.weight.split(VOCABULARY_PART)
            ]
            logits = torch.cat(parts, -1) if len(parts) > 1 else parts[0]
            return logits if self.bias is None else logits + self.bias.float()


def float32_logits(model: M) -> M:
    """Make a model compute float32 logits, and return it: bfloat16 values of 16 to 32 are .125
    apart.
    """
    head = cast(Any, model).get_output_embeddings()
    if type(head) is torch.nn.Linear:
        head.__class__ = Float32Projection
    return model


class Likelihoods(NamedTuple):
    """Likelihoods of continuations given their prompts."""

    total_BC: Tensor
    """Sum of the log-probabilities of a continuation's tokens, in nats, at least float32."""
    count_BC: Tensor
    """Number of tokens of each continuation."""

    def mean(self) -> Tensor:
        """Return the mean over the tokens, (B, C)."""
        return self.total_BC / self.count_BC


def log_likelihoods(
    model: Any, inputs: Mapping[str, Tensor], continuation_BCE: Tensor
) -> Likelihoods:
    """log P(continuation | prompt) of all continuations; differentiable.

    Args:
        model: a causal language model of transformers.
        inputs: `input_ids` and `attention_mask`, (B, T) each, padded on either side. The prompt
            ends where the first continuation begins.
        continuation_BCE: columns of the first and the last token of each continuation.
            Continuations follow each other without a gap; they and prompts have at least one token.
            First T: absent.
    """
    ids_BT, mask_BT = inputs["input_ids"], inputs["attention_mask"]
    start_BC, end_BC = continuation_BCE.unbind(-1)
    column_T = torch.arange(ids_BT.shape[1], device=ids_BT.device)
    # Part 0 is the prompt, part 1 + c continuation c.
    part_BT = (column_T[None, :, None] >= start_BC[:, None, :]).sum(-1)
    begin_B1 = start_BC[:, :1]
    begin_BT = torch.cat((begin_B1, start_BC), 1).gather(
        1, part_BT
    )  # first column of each column's part
    options: dict[str, Any] = {"attention_mask": mask_BT, "use_cache": False}
    if takes(model, "position_ids"):
        options["position_ids"] = (mask_BT.cumsum(1) - 1 - begin_BT + begin_B1).clamp(min=0)
    if start_BC.shape[1] > 1:
        own_BTT = (part_BT[:, :, None] == part_BT[:, None, :]) | (part_BT[:, None, :] == 0)
        seen_BTT = own_BTT & mask_BT[:, None, :].bool() & (column_T[None, :] <= column_T[:, None])
        # Padding attends to itself: a softmax over nothing would be NaN.
        seen_BTT = seen_BTT | torch.eye(len(column_T), dtype=torch.bool, device=ids_BT.device)
        mask_B1TT = torch.zeros_like(seen_BTT[:, None], dtype=model.dtype)
        # Numbers instead of booleans: every attention implementation accepts such a mask.
        options["attention_mask"] = mask_B1TT.masked_fill(
            ~seen_BTT[:, None], torch.finfo(model.dtype).min
        )
    # The prompt's last token predicts a continuation's first token, and each token the next.
    from_BT = torch.where(column_T == begin_BT, begin_B1 - 1, column_T - 1).clamp(min=0)
    inside_BCT = (column_T >= start_BC[..., None]) & (column_T <= end_BC[..., None])
    wanted_BT = (
        torch.zeros_like(mask_BT).scatter_add_(1, from_BT, inside_BCT.any(1).to(mask_BT.dtype)) > 0
    )
    with logits_at(model, wanted_BT.flatten().nonzero()[:, 0]):
        logits_KV = model(ids_BT, **options).logits
    if logits_KV.dtype != torch.float64:
        logits_KV = logits_KV.float()
    row_BT = (wanted_BT.flatten().cumsum(0) - 1).clamp(min=0).view_as(wanted_BT).gather(1, from_BT)
    # In parts that fit a CPU's caches.
    normaliser_K = torch.cat([part_KV.logsumexp(-1) for part_KV in logits_KV.split(AT_ONCE)])
    log_prob_BT = logits_KV[row_BT, ids_BT] - normaliser_K[row_BT]
    total_BC = torch.where(inside_BCT, log_prob_BT[:, None, :], 0.0).sum(-1)
    return Likelihoods(total_BC, end_BC - start_BC + 1)


@contextmanager
def logits_at(model: Any, chosen_K: Tensor) -> Iterator[None]:
    """Within this context, the model computes logits (K, V) of these tokens only, numbered row by
    row.
    """

    def choose(_: Any, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return arguments[0].flatten(0, 1).index_select(0, chosen_K), *arguments[1:]

    handle = model.get_output_embeddings().register_forward_pre_hook(choose)
    try:
        yield
    finally:
        handle.remove()


@torch.no_grad()
def reads_side_by_side(model: Any) -> bool:
    """Whether two continuations after one prompt score the same as each alone."""
    training = model.training
    rows = torch.arange(6, device=model.device)[None] % model.config.vocab_size
    mask, spans = torch.ones_like(rows), torch.tensor([[[3, 3], [4, 5]]], device=model.device)
    row = {"input_ids": rows[:, [0, 1, 2, 4, 5]], "attention_mask": mask[:, 1:]}
    try:
        model.eval()
        both_C = log_likelihoods(
            model, {"input_ids": rows, "attention_mask": mask}, spans
        ).total_BC[0]
        alone = log_likelihoods(model, row, spans[:, 1:] - 1).total_BC[0, 0]
    except Exception:  # a model that rejects such masks or positions fails in its own way
        return False
    finally:
        model.train(training)
    return bool((both_C[1] - alone).abs() <= (1e-3 if model.dtype.itemsize >= 4 else 0.25))


def takes(model: Any, name: str) -> bool:
    """Whether the model's forward pass has an argument of this name (a few models take no
    positions).
    """
    return name in inspect.signature(model.forward).parameters


def padded(
    rows: Sequence[Sequence[int]], pad: int, device: Any = "cpu", *, left: bool
) -> tuple[Tensor, Tensor]:
    """Pad token ids to (B, T) int64, with their mask. Padding is on the left, so that all texts end
    in the same column, or on the right, where it affects no token before it.
    """
    rows_T = [torch.tensor(row, dtype=torch.long) for row in rows]
    side = "left" if left else "right"
    ids_BT = pad_sequence(rows_T, True, pad, side)
    mask_BT = pad_sequence([torch.ones_like(row_T) for row_T in rows_T], True, 0, side)
    return ids_BT.to(device), mask_BT.to(device)
