"""What comes next: log-probabilities of label words behind a prompt, of a local model.

Tensor suffixes: B batch, S tokens behind the common part, K positions with logits, V vocabulary, L labels.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from models.language.likelihood import takes

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
    length, cache = (
        (0, None) if local.is_seq2seq else shared_start(local, rows, [len(row) - 1 for row in rows])
    )

    def read(batch: list[int]) -> None:
        some = [rows[i] for i in batch]
        if local.is_seq2seq:  # the first token of the answer
            chosen = local.model.generation_config
            begun = (chosen.decoder_start_token_id, chosen.forced_bos_token_id)
            begun_T = [token for token in begun if token is not None]
            begun_BT = torch.tensor([begun_T] * len(some), device=local.device)
            inputs = local.padded(some)
            logits_BTV = local.model(**inputs, decoder_input_ids=begun_BT, use_cache=False).logits
            logits_BV = logits_BTV[:, -1]
        else:
            logits_BV = _next_logits(local, some, length, cache)
        log_BV = logits_BV.float().log_softmax(-1)
        log_BL = log_BV[:, list(labels)]
        if top:
            least_B1 = log_BV.topk(min(top, log_BV.shape[1])).values[:, -1:]
            log_BL = log_BL.masked_fill(log_BL < least_B1, -math.inf)
        found.update(zip(batch, map(tuple, log_BL.double().cpu().tolist()), strict=True))

    with torch.inference_mode():
        local.read_in_batches([len(row) - length for row in rows], read)
    return [found[i] for i in range(len(rows))]


def shared_start(local: Any, rows: Sequence[list[int]], most: Sequence[int]) -> tuple[int, Any]:
    """How many tokens all rows begin with, of each at most so many, and their keys and values, read once for
    a batch of one and kept for the next call: demonstrations are most of a prompt. 0 where it is not worth
    it, or the model keeps something else."""
    same = sum(1 for _ in takewhile(lambda ids: len(set(ids)) == 1, zip(*rows, strict=False)))
    length = min(same, min(most, default=0))
    if len(rows) < 2 or length < _WORTH_SHARING:
        return 0, None
    begin = rows[0][:length]
    if local.head[0] != begin:
        with torch.inference_mode():
            ids_1T = torch.tensor([begin], device=local.device)
            read = local.model(input_ids=ids_1T, use_cache=True, **_kept(local.model, [0]))
        local.head = begin, getattr(read, "past_key_values", None)  # a state-space model has none
    return (length, local.head[1]) if type(local.head[1]) is DynamicCache else (0, None)


def repeated(cache: Any, rows: int) -> Any:
    """A copy of keys and values for so many rows."""
    past = copy.deepcopy(cache)
    past.batch_repeat_interleave(rows)
    return past


def _next_logits(local: Any, rows: list[list[int]], length: int, cache: Any) -> Tensor:
    """Logits behind each row, (B, V), of which `cache` holds the first `length` tokens."""
    inputs = local.padded([row[length:] for row in rows])
    inputs["use_cache"] = cache is not None
    if cache is not None:
        width = inputs["input_ids"].shape[1]
        ones_BT = torch.ones(len(rows), length, dtype=torch.long, device=local.device)
        inputs["attention_mask"] = torch.cat([ones_BT, inputs["attention_mask"]], 1)
        position_BS = torch.arange(length, length + width, device=local.device).expand(len(rows), -1)
        inputs |= {"past_key_values": repeated(cache, len(rows)), "position_ids": position_BS}
    last = [len(row) - length - 1 for row in rows]
    kept = sorted(set(last))
    more = _kept(local.model, kept)
    logits_BKV = local.model(**inputs, **more).logits
    at = [kept.index(position) for position in last] if more else last
    return torch.as_tensor(logits_BKV[torch.arange(len(rows)), at])


def _kept(model: Any, positions: list[int]) -> dict[str, Tensor]:
    """Options that compute the logits of these positions alone, where a model can: all would fill memory."""
    if not takes(model, "logits_to_keep"):
        return {}
    return {"logits_to_keep": torch.tensor(positions, device=model.device)}
