"""What this project asks of a language model of transformers: the log-likelihoods of continuations
after a prompt, for losses and for evaluation, and greedy texts.

A row of continuations is a prompt followed by all of them. Each continuation attends to the prompt
and itself only, at the positions that it would have alone: the prompt is read once for any number
of continuations, and collects the gradients of all. Logits are computed only where they predict a
token of a continuation.

Shape letters: B rows, T tokens of a row, C continuations, K tokens with logits, D hidden, V
vocabulary, E the two boundaries (first, last token).
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.nn.utils.rnn import pad_sequence

from interventune.models.backbones import Inputs

from .text_models import Rows

VOCABULARY_PART = 16_384
"""Rows of the output embeddings that are cast to float32 at a time."""

AT_ONCE = 16
"""Tokens whose logits are summed at a time."""


class Float32Projection(torch.nn.Linear):
    """A last layer that is computed in float32, whatever the type of its weights or of autocast."""

    def forward(self, input: Tensor) -> Tensor:
        """Compute the logits (..., V) of hidden states."""
        if self.weight.dtype == torch.float64:
            return super().forward(input)
        with torch.autocast(input.device.type, enabled=False):
            parts = self.weight.split(VOCABULARY_PART)
            logits = torch.cat([linear(input.float(), rows_VD.float()) for rows_VD in parts], -1)
            return logits if self.bias is None else logits + self.bias.float()


def float32_logits(model: Any) -> Any:
    """Make a model compute float32 logits, and return it: bfloat16 values of 16 to 32 are .125
    apart.
    """
    head = model.get_output_embeddings()
    if type(head) is torch.nn.Linear:
        head.__class__ = Float32Projection
    return model


def log_likelihoods(model: Any, inputs: Inputs, continuation_BCE: Tensor) -> Tensor:
    """log P(continuation | prompt) of all continuations, (B, C): sums over their tokens, in nats,
    at least float32; differentiable.

    Args:
        model: a causal language model of transformers.
        inputs: `input_ids` and `attention_mask`, (B, T) each, padded on either side. The prompt
            ends where the first continuation begins.
        continuation_BCE: columns of the first and the last token of each continuation.
            Continuations follow each other without a gap; they and prompts have at least one token.
            First T: absent.
    """
    ids_BT = inputs["input_ids"]
    mask_BT = inputs["attention_mask"]
    start_BC, end_BC = continuation_BCE.unbind(-1)
    column_T = torch.arange(ids_BT.shape[1], device=ids_BT.device)
    # Part 0 is the prompt, part 1 + c continuation c.
    part_BT = (column_T[:, None] >= start_BC[:, None]).sum(-1)
    prompt_end_B1 = start_BC[:, :1]
    first_BT = torch.cat((prompt_end_B1, start_BC), 1).gather(1, part_BT)  # column of each part
    options: dict[str, Any] = {"attention_mask": mask_BT, "use_cache": False}
    if takes_positions(model):
        position_BT = mask_BT.cumsum(1) - 1 - first_BT + prompt_end_B1
        options["position_ids"] = position_BT.clamp(min=0)
    if start_BC.shape[1] > 1:
        same_BTT = part_BT[:, :, None] == part_BT[:, None]
        seen_BTT = (same_BTT | (part_BT == 0)[:, None]) & mask_BT[:, None].bool()
        # Padding attends to itself: a softmax over nothing would be NaN.
        hidden_BTT = ~seen_BTT.tril() & (column_T != column_T[:, None])
        # Numbers instead of booleans: every attention implementation accepts such a mask.
        lowest = torch.finfo(model.dtype).min
        options["attention_mask"] = hidden_BTT[:, None].to(model.dtype) * lowest
    inside_BCT = (column_T >= start_BC[..., None]) & (column_T <= end_BC[..., None])
    row_N, column_N = inside_BCT.any(1).nonzero(as_tuple=True)
    # The prompt's last token predicts a continuation's first token, and each token the next.
    from_BT = torch.where(column_T == first_BT, prompt_end_B1, column_T) - 1
    from_N = row_N * len(column_T) + from_BT[row_N, column_N]
    chosen_K, index_N = from_N.unique(return_inverse=True)
    with logits_at(model, chosen_K):
        logits_KV = model(ids_BT, **options).logits
    if logits_KV.dtype != torch.float64:
        logits_KV = logits_KV.float()
    # In parts that fit a CPU's caches.
    normaliser_K = torch.cat([part_KV.logsumexp(-1) for part_KV in logits_KV.split(AT_ONCE)])
    log_prob_N = logits_KV[index_N, ids_BT[row_N, column_N]] - normaliser_K[index_N]
    log_prob_BT = log_prob_N.new_zeros(ids_BT.shape).index_put((row_N, column_N), log_prob_N)
    return torch.where(inside_BCT, log_prob_BT[:, None], 0.0).sum(-1)


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
    """Whether the second of two continuations after one prompt scores the same as alone, by a model
    in evaluation mode.
    """

    def last_total(ids: list[int], spans: list[list[int]]) -> Tensor:
        inputs = padded([[i % model.config.vocab_size for i in ids]], model.device)
        return log_likelihoods(model, inputs, torch.tensor([spans], device=model.device))[0, -1]

    try:
        together = last_total([0, 1, 2, 3, 4, 5], [[3, 3], [4, 5]])
        alone = last_total([0, 1, 2, 4, 5], [[3, 4]])
    except Exception:  # a model that rejects such masks or positions fails in its own way
        return False
    return bool((together - alone).abs() <= (1e-3 if model.dtype.itemsize >= 4 else 0.25))


def takes_positions(model: Any) -> bool:
    """Whether the model's forward pass has an argument for positions; a few have none."""
    return "position_ids" in inspect.signature(model.forward).parameters


def padded(rows: Rows, device: torch.device, *, left: bool = False) -> dict[str, Tensor]:
    """Return rows of token ids as a model's inputs, `input_ids` and `attention_mask`, (B, T) int64
    each. Padding, by token 0, is on the left, so that all texts end in the same column, or on the
    right, where it affects no token before it.
    """
    rows_T = [torch.tensor(row, dtype=torch.long) for row in rows]
    ids_BT = pad_sequence(rows_T, True, -1, "left" if left else "right").to(device)
    return {"input_ids": ids_BT.clamp(min=0), "attention_mask": (ids_BT >= 0).long()}


def by_length(length_R: Any, tokens: int) -> Iterator[Any]:
    """Yield the row indices of batches of rows with these lengths, longest rows first. A batch has
    at most `tokens`, including padding; a longer row is a batch of its own.
    """
    order_R = np.argsort(-np.asarray(length_R), kind="stable")
    while len(order_R):
        count = max(1, tokens // length_R[order_R[0]])
        yield order_R[:count]
        order_R = order_R[count:]


def end_tokens(model: Any) -> list[int]:
    """Return every token that ends a text, by the model's configuration and its generation
    settings.
    """
    ids = set[int]()
    for settings in (model.config, model.config.get_text_config(), model.generation_config):
        value: Any = getattr(settings, "eos_token_id", None)
        ids.update(value if isinstance(value, list) else [value])
    return sorted(ids - {None})


def require_finite(model: Any, logits_BV: Tensor) -> Tensor:
    """Return the logits; ValueError where they overflow: a model would repeat one token
    for ever.
    """
    if not logits_BV.amax(-1).isfinite().all():
        name = model.name_or_path or type(model).__name__
        raise ValueError(
            f"{name}: gives logits that are not finite numbers in {model.dtype}; choose another "
            "model, or --dtype float32"
        )
    return logits_BV


@torch.no_grad()
def generate(
    model: Any,
    rows: Rows,
    *,
    ends: list[int],
    processors: Sequence[Callable[[Tensor, Tensor], Tensor]] = (),
    **settings: int,
) -> list[list[int]]:
    """Return the new token ids after each row of a prompt's ids, padded to one length.

    A folder's generation_config.json changes nothing: sampling, penalties, suppressed tokens and
    minimum lengths would make a model's answers differ between its files. Only the fixed first
    tokens of sequence-to-sequence models are taken from it.

    Args:
        model: a causal or sequence-to-sequence model of transformers.
        ends: tokens that end a text.
        processors: change the logits of a step, as in transformers.
        settings: of GenerationConfig: `max_new_tokens`, `min_new_tokens`, `num_beams`.

    Raises:
        ValueError: logits are not finite.
    """
    from transformers import GenerationConfig

    original = model.generation_config
    seq2seq = model.config.is_encoder_decoder
    config = GenerationConfig(
        do_sample=False,
        eos_token_id=ends or None,
        pad_token_id=0,
        decoder_start_token_id=original.decoder_start_token_id,
        forced_bos_token_id=original.forced_bos_token_id,
        **settings,
    )
    # Causal models are padded on the left, so that every prompt ends where its text begins.
    inputs = padded(rows, model.device, left=not seq2seq)
    try:
        model.generation_config = config  # transformers fills the gaps of its argument from here
        # FSDP would wait for other processes, which may have fewer batches; all weights are
        # gathered here.
        new_BT = model.generate(
            **inputs,
            generation_config=config,
            logits_processor=[lambda _, logits_BV: require_finite(model, logits_BV), *processors],
            synced_gpus=False,
        )
    finally:
        model.generation_config = original
    # After the one token with which a separate decoder starts, or after the prompt.
    start = 1 if seq2seq else inputs["input_ids"].shape[1]
    return new_BT[:, start:].tolist()
