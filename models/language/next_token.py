"""Next-token probabilities: log-probabilities of label words after a prompt, from a local model.

Tensor suffixes: N prompts, B batch, T tokens, V vocabulary, L labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache

from interventune.models.language.likelihood import logits_at
from interventune.models.language.writing import require_finite
from interventune.models.row_scores import by_length

_WORTH_SHARING = 32
"""Number of common tokens from which prompts are read in two parts."""


def first_tokens(tokens: Any, labels: Sequence[str], after: str) -> list[int]:
    """Return the first token of each label, tokenised after `after` by a `PromptTokens`.

    Raises:
        ValueError: a label has no token, or two begin with the same one.
    """
    found = dict[int, str]()
    for label, ids in zip(labels, tokens.after([after] * len(labels), labels), strict=True):
        if not ids:
            raise ValueError(f"the label word {label!r} has no tokens; choose another word")
        if (first := found.setdefault(ids[0], label)) != label:
            raise ValueError(
                f"the label words {first!r} and {label!r} begin with the same token, so their "
                "probabilities cannot be told apart; choose other words"
            )
    return list(found)


def log_probabilities(
    local: Any, rows: Sequence[list[int]], labels: Sequence[int], top: int
) -> list[tuple[float, ...]]:
    """The log-probabilities of label tokens after each row of token ids, over the whole vocabulary;
    -inf for labels not among the `top` most probable tokens (0: no limit). `local` is a
    `LocalTextModel`; its batches have similar lengths and harmless padding on the right.
    """
    log_NL = torch.empty(len(rows), len(labels), dtype=torch.float64)
    with torch.inference_mode():
        length, cache = shared_start(local, rows)
        for batch in by_length([len(row) - length for row in rows], local.tokens_at_once):
            some = [rows[i] for i in batch]
            if local.is_seq2seq:  # the first token of the answer
                labels_BT = torch.tensor(
                    [[*local.forced, local.tokens.pad]] * len(some), device=local.device
                )
                output = local.model(**local.padded(some), labels=labels_BT, use_cache=False)
                logits_BV = output.logits[:, -1]
            else:
                logits_BV = _next_logits(local, some, length, cache)
            log_BV = require_finite(local.model, logits_BV).float().log_softmax(-1)
            log_BL = log_BV[:, list(labels)]
            if top:
                least_B1 = log_BV.topk(min(top, log_BV.shape[1])).values[:, -1:]
                log_BL = log_BL.masked_fill(log_BL < least_B1, -math.inf)
            log_NL[batch] = log_BL.double().cpu()
    return [tuple(log_L) for log_L in log_NL.tolist()]


def shared_start(local: Any, rows: Sequence[list[int]]) -> tuple[int, Any]:
    """Return how many tokens all rows share at the start (at most all but a row's last), with their
    keys and values, read once and kept for the next call: most of a prompt is demonstrations. 0 if
    too short to pay off, or if the model has another kind of cache.
    """
    same = takewhile(lambda ids: len({*ids}) == 1, zip(*(row[:-1] for row in rows), strict=False))
    begin = [ids[0] for ids in same]
    if local.is_seq2seq or len(rows) < 2 or len(begin) < _WORTH_SHARING:
        return 0, None
    if local.head[0] != begin:
        ids_1T = torch.tensor([begin], device=local.device)
        with logits_at(local.model, ids_1T.new_zeros(1)):
            read = local.model(input_ids=ids_1T, use_cache=True)
        local.head = begin, getattr(read, "past_key_values", None)  # None for a state-space model
    _, cache = local.head
    return (len(begin), cache) if type(cache) is DynamicCache else (0, None)


def _next_logits(local: Any, rows: list[list[int]], length: int, cache: Any) -> Tensor:
    """Logits behind each row, (B, V), of which `cache` holds the first `length` tokens."""
    inputs = local.padded([row[length:] for row in rows])
    inputs["attention_mask"] = pad(inputs["attention_mask"], (length, 0), value=1)
    inputs["use_cache"] = cache is not None
    if cache is not None:
        inputs["past_key_values"] = deepcopy(cache)
        inputs["past_key_values"].batch_repeat_interleave(len(rows))
    width = inputs["input_ids"].shape[1]
    last = [b * width + len(row) - length - 1 for b, row in enumerate(rows)]
    with logits_at(local.model, torch.tensor(last, device=local.device)):
        logits_BV: Tensor = local.model(**inputs).logits
    return logits_BV
