"""Perplexity of a long text in chunks, with and without self-debiasing.

Logits are computed for a part of the positions at a time, with cached keys and values of earlier
ones.

As in the authors' definition, a chunk is weighted by one token more than it predicts, unless the
tokenizer begins texts with a token, which predicts the first.

Shape letters: K prefixes, and the text without one; T tokens of a row, P those of a part, V
vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from .likelihood import padded, takes
from .self_debiasing import DECAY, Ids, debiased

RESERVED = 32
"""Positions in a chunk reserved for the longest prefix."""
LOGITS = 1 << 26
"""Limit on the logits of a part, over all rows: 256 MB in float32."""


@torch.no_grad()
def chunk_loss(
    model: Any, ids: Ids, prefixes: Sequence[Ids], *, pad: int, lead: Ids = (), decay: float = DECAY
) -> tuple[float, float]:
    """Mean negative log-likelihood (nats) of a chunk's tokens times their number, without and with
    debiasing; 0 if there is no token to predict. ValueError: the model does not cache keys and
    values.

    Args:
        model: a causal model, in evaluation mode.
        ids: the chunk.
        prefixes: token ids of each; without any, both results are equal.
        pad: any token id; it is masked.
        lead: the tokenizer's initial tokens, which begin every chunk, before the prefix.
        decay: see `interventune.models.language.self_debiasing.debiased`.
    """
    rows = [[*lead, *prefix, *ids] for prefix in ([], *prefixes)]
    padded_KT, mask_KT = padded(rows, pad, model.device, left=True)
    width, targets = padded_KT.shape[1], len(ids) if lead else len(ids) - 1
    position_KT = (mask_KT.cumsum(-1) - 1).clamp(min=0)  # padding does not count
    cache: Any = None
    losses = list[Tensor]()
    part = max(1, LOGITS // (len(rows) * model.config.get_text_config().vocab_size))
    for start in range(0, width, part):
        end = start + part
        options: dict[str, Any] = {"attention_mask": mask_KT[:, :end], "use_cache": True}
        if takes(model, "position_ids"):
            options["position_ids"] = position_KT[:, start:end]
        output = model(padded_KT[:, start:end], past_key_values=cache, **options)
        cache = getattr(output, "past_key_values", None)
        if cache is None:
            raise ValueError(
                f"a {type(model).__name__} does not cache keys and values, which perplexity "
                "needs; take a transformer"
            )
        # Every column predicts the token of the next; the last one predicts none.
        logits_KPV = output.logits[:, : width - 1 - start].float()
        target_P = padded_KT[0, start + 1 : end + 1]
        scores = logits_KPV[0], debiased(logits_KPV[0], logits_KPV[1:], decay=decay)
        losses.append(
            torch.stack(
                [cross_entropy(score_PV, target_P, reduction="none") for score_PV in scores]
            )
        )
    loss_2T = torch.cat(losses, 1)[:, width - 1 - targets :].double()
    regular, other = (loss_2T.sum(1) / max(1, targets) * len(ids)).tolist()
    return regular, other
