"""How likely continuations are behind a prompt: one function, for losses and for evaluation.

A row is packed: its prompt, then all continuations behind one another. Each continuation sees the prompt and
itself, at the positions that it would have alone, so that the prompt is read once however many there are, and
gradients of all continuations meet in it. (A cache of keys and values would do the same in two passes, and
gradient checkpointing switches caches off.) Logits are computed behind the prompt only.

Shape letters: B rows, T tokens of a row, C continuations, K columns with logits, V vocabulary, E the two
boundaries (first, last token).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor
from torch.nn.functional import linear

VOCABULARY_PART = 16_384
"""Rows of the output embeddings that are cast to float32 at once."""

M = TypeVar("M")


class Float32Projection(torch.nn.Linear):
    """A last layer that is computed in float32, whatever its weights are held in or autocast casts to."""

    def forward(self, input: Tensor) -> Tensor:
        """Logits (..., V) of hidden states."""
        if self.weight.dtype == torch.float64:
            return super().forward(input)
        with torch.autocast(input.device.type, enabled=False):
            parts = [linear(input.float(), rows_VD.float()) for rows_VD in self.weight.split(VOCABULARY_PART)]
            logits = torch.cat(parts, -1) if len(parts) > 1 else parts[0]
            return logits if self.bias is None else logits + self.bias.float()


def float32_logits(model: M) -> M:
    """The same model of transformers, whose logits are float32 from now on: of 16 to 32, those in bfloat16
    are .125 apart."""
    head = cast(Any, model).get_output_embeddings()
    if type(head) is torch.nn.Linear:
        head.__class__ = Float32Projection
        if hasattr(head, "_old_forward"):  # what accelerate calls, which spreads a model over devices
            head._old_forward = Float32Projection.forward.__get__(head)
    return model


class Likelihoods(NamedTuple):
    """Of continuations given their prompts."""

    total_BC: Tensor
    """Sum of the log-probabilities of a continuation's tokens, in nats, at least float32."""
    count_BC: Tensor
    """How many tokens that are."""

    def mean(self) -> Tensor:
        """Mean over the tokens, (B, C)."""
        return self.total_BC / self.count_BC


def log_likelihoods(model: Any, inputs: Mapping[str, Tensor], continuation_BCE: Tensor) -> Likelihoods:
    """log P(continuation | prompt) of all continuations; differentiable.

    Args:
        model: a causal language model of transformers.
        inputs: `input_ids` and `attention_mask`, (B, T) each, padded on either side. The prompt ends where
            the first continuation begins.
        continuation_BCE: columns of the first and the last token of each continuation, which follow one
            another without a gap; continuations have at least one token, and prompts too.
    """
    ids_BT, mask_BT, first_B, continuation_BCE = _aligned(inputs, continuation_BCE)
    start_BC, end_BC = continuation_BCE.unbind(-1)
    prompt, width = int(first_B), ids_BT.shape[1]
    column_T = torch.arange(width, device=ids_BT.device)
    # 0 in the prompt, else 1 + the continuation.
    part_BT = (column_T[None, :, None] >= start_BC[:, None, :]).sum(-1)
    start_BT = torch.cat((start_BC[:, :1], start_BC), dim=1).gather(1, part_BT)
    length_B1 = mask_BT[:, :prompt].sum(1, keepdim=True)  # of the prompt
    position_BT = (length_B1 + column_T - start_BT).clamp(min=0)
    options: dict[str, Any] = {"attention_mask": mask_BT, "position_ids": position_BT, "use_cache": False}
    if continuation_BCE.shape[1] > 1:
        own_BTT = (part_BT[:, None, :] == 0) | (part_BT[:, None, :] == part_BT[:, :, None])
        seen_BTT = own_BTT & mask_BT[:, None, :].bool() & (column_T[None, :] <= column_T[:, None])
        # Padding sees itself: a softmax over nothing would be NaN.
        seen_BTT = seen_BTT | torch.eye(width, dtype=torch.bool, device=ids_BT.device)
        options["attention_mask"] = additive(seen_BTT[:, None], model.dtype)
    logits_BKV = model(ids_BT, **options, logits_to_keep=width - prompt + 1).logits
    if logits_BKV.dtype != torch.float64:
        logits_BKV = logits_BKV.float()
    # A continuation's first token is told by the prompt's last, any other by the one before it.
    column_K = column_T[prompt:]
    teller_BK = torch.where(column_K == start_BT[:, prompt:], 0, column_K - prompt)
    row_B1 = torch.arange(len(ids_BT), device=ids_BT.device)[:, None]
    logit_BK = logits_BKV[row_B1, teller_BK, ids_BT[:, prompt:]]
    log_prob_BK = logit_BK - logits_BKV.logsumexp(-1).gather(1, teller_BK)
    inside_BCK = (column_K >= start_BC[..., None]) & (column_K <= end_BC[..., None])
    total_BC = torch.where(inside_BCK, log_prob_BK[:, None, :], 0.0).sum(-1)
    return Likelihoods(total_BC, end_BC - start_BC + 1)


def _aligned(inputs: Mapping[str, Tensor], continuation_BCE: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows with their continuations in the same columns: ids, mask, that column, and the continuations."""
    ids_BT, mask_BT = inputs["input_ids"], inputs["attention_mask"]
    first_B, last_B = continuation_BCE[:, 0, 0], continuation_BCE[:, -1, 1]
    begin_B = mask_BT.argmax(1)
    prompt, behind = (first_B - begin_B).max(), (last_B - first_B).max() + 1
    from_BT = torch.arange(int(prompt + behind), device=ids_BT.device) + (first_B - prompt)[:, None]
    inside_BT = (from_BT >= begin_B[:, None]) & (from_BT <= last_B[:, None])
    from_BT = from_BT.clamp(0, ids_BT.shape[1] - 1)
    ids_BT = torch.where(inside_BT, ids_BT.gather(1, from_BT), ids_BT[:, :1])
    return ids_BT, inside_BT.long(), prompt, continuation_BCE - (first_B - prompt)[:, None, None]


def additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a token may be seen, the lowest finite number elsewhere: a mask that every attention takes."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(~seen, torch.finfo(dtype).min)
