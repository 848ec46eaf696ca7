"""What comes next: log-probabilities of label words behind a prompt, of a local model.

Tensor suffixes: B batch, S tokens behind the common part, K positions with logits, V vocabulary, L labels.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import DynamicCache

_WORTH_SHARING = 32
"""Tokens in common from which prompts are read in two parts."""


def first_tokens(tokenizer: Any, labels: Sequence[str], after: str) -> list[int]:
    """The first token of each label as it is tokenised behind `after`.

    Raises:
        ValueError: a label has no token, or two begin with the same one.
    """

    def ids(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    before, found = ids(after), []
    for label in labels:
        whole = ids(after + label)
        # Where a token spans the end of `after`, the label as it is tokenised alone.
        behind = whole[len(before) :] if whole[: len(before)] == before else ids(label)
        if not behind:
            raise ValueError(f"the label word {label!r} has no tokens; choose another word")
        found.append(behind[0])
    for i, token in enumerate(found):
        if token in found[:i]:
            first = labels[found.index(token)]
            shown = tokenizer.convert_ids_to_tokens(token)
            raise ValueError(
                f"the label words {first!r} and {labels[i]!r} begin with the same token ({shown!r}), so "
                "their probabilities cannot be told apart; choose other words"
            )
    return found


def last_tokens(tokenizer: Any, prompt: str, count: int) -> str:
    """The end of a prompt that has at most `count` tokens, special ones included."""
    text = prompt
    while True:
        row = tokenizer(text, return_offsets_mapping=True, verbose=False)
        surplus = len(row["input_ids"]) - count
        if surplus <= 0:
            return text
        starts = sorted({start for start, end in row["offset_mapping"] if end > start})
        if len(starts) <= surplus:
            return ""
        # What is left may be tokenised differently, by a token more: then once again.
        text = text[max(1, starts[surplus]) :]


def log_probabilities(
    local: Any, rows: Sequence[list[int]], labels: Sequence[int], top: int
) -> list[tuple[float, ...]]:
    """The log-probabilities of label tokens behind each row of token ids, over the whole vocabulary; -inf for
    those not among the `top` most probable (0: no such bound).

    Args:
        local: a `LocalTextModel`.
        rows: prompts; read in batches of similar length, with padding on the right, which reaches nothing.
        labels: token ids.
        top: see above.
    """
    found: dict[int, tuple[float, ...]] = {}
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
    with torch.inference_mode():
        shared = None if local.is_seq2seq else _shared_start(local, rows)
        for start in range(0, len(order), local.batch_size):
            batch = order[start : start + local.batch_size]
            some = [rows[i] for i in batch]
            logits_BV = _answer_logits(local, some) if local.is_seq2seq else _next_logits(local, some, shared)
            log_BV = logits_BV.float().log_softmax(-1)
            log_BL = log_BV[:, list(labels)]
            if top:
                least_B1 = log_BV.topk(min(top, log_BV.shape[1])).values[:, -1:]
                log_BL = log_BL.masked_fill(log_BL < least_B1, -math.inf)
            found |= zip(batch, map(tuple, log_BL.double().cpu().tolist()), strict=True)
    return [found[i] for i in range(len(rows))]


class _SharedStart(NamedTuple):
    """What all prompts begin with, read once: demonstrations are most of a prompt."""

    length: int
    """In tokens."""
    cache: Any
    """Its keys and values, for a batch of one."""


def _shared_start(local: Any, rows: Sequence[list[int]]) -> _SharedStart | None:
    """None where it is not worth it, or the model keeps something else than keys and values."""
    if len(rows) < 2:
        return None
    same = sum(1 for _ in takewhile(lambda ids: len(set(ids)) == 1, zip(*rows, strict=False)))
    length = min(same, min(map(len, rows)) - 1)
    if length < _WORTH_SHARING:
        return None
    ids_1T = torch.tensor([rows[0][:length]], device=local.device)
    read = local.model(input_ids=ids_1T, use_cache=True, **_kept(local.model, [0]))
    cache = getattr(read, "past_key_values", None)  # a state-space model has none
    return _SharedStart(length, cache) if type(cache) is DynamicCache else None


def _next_logits(local: Any, rows: list[list[int]], shared: _SharedStart | None) -> Tensor:
    """Logits behind each row, (B, V)."""
    length = shared.length if shared else 0
    inputs = local.padded([row[length:] for row in rows])
    if shared:
        past = copy.deepcopy(shared.cache)
        past.batch_repeat_interleave(len(rows))
        width = inputs["input_ids"].shape[1]
        ones_BT = torch.ones(len(rows), length, dtype=torch.long, device=local.device)
        inputs["attention_mask"] = torch.cat([ones_BT, inputs["attention_mask"]], 1)
        position_BS = torch.arange(length, length + width, device=local.device).expand(len(rows), -1)
        inputs |= {"past_key_values": past, "position_ids": position_BS, "use_cache": True}
    else:
        inputs["use_cache"] = False
    last = [len(row) - length - 1 for row in rows]
    kept = sorted(set(last))
    more = _kept(local.model, kept)
    logits_BKV = local.model(**inputs, **more).logits
    at = [kept.index(position) for position in last] if more else last
    return torch.as_tensor(logits_BKV[torch.arange(len(rows)), at])


def _kept(model: Any, positions: list[int]) -> dict[str, Tensor]:
    """Options that compute the logits of these positions alone, where a model can: all would fill memory."""
    if "logits_to_keep" not in inspect.signature(model.forward).parameters:
        return {}
    return {"logits_to_keep": torch.tensor(positions, device=model.device)}


def _answer_logits(local: Any, rows: list[list[int]]) -> Tensor:
    """Logits of the first token of the answer of a sequence-to-sequence model, (B, V)."""
    chosen = local.model.generation_config
    start = [i for i in (chosen.decoder_start_token_id, chosen.forced_bos_token_id) if i is not None]
    start_BT = torch.tensor([start] * len(rows), device=local.device)
    logits_BTV = local.model(**local.padded(rows), decoder_input_ids=start_BT, use_cache=False).logits
    return torch.as_tensor(logits_BTV[:, -1])
