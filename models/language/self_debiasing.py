"""Self-debiasing (Schick et al. 2021): make tokens less likely that a prefix asking for bias makes
more likely. Generation, and the perplexity of a long text in chunks.

In generation, as in the authors' code, the texts and their prefixed copies are rows of one call of
`generate`. All copies of a text get the same scores, so that they choose the same tokens, greedily
and with beams.

For perplexity, logits are computed for a part of the positions at a time, with cached keys and
values of earlier ones. As in the authors' definition, a chunk is weighted by one token more than it
predicts, unless the tokenizer begins texts with a token, which predicts the first.

Shape letters: K prefixes, in perplexity also the text without one; B texts, R rows of the texts in
a step (B, times the beams), T tokens of a row, P those of a part, V vocabulary.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from .model_calls import end_tokens, generate, padded, takes_positions
from .text_models import Rows

DECAY = 50.0
"""The authors' lambda; the paper's grid is 10, 50, 100."""
FLOOR = 0.01
"""No probability is scaled below this share, before normalisation (the authors' epsilon)."""
RESERVED = 32
"""Positions in a chunk reserved for the longest prefix."""
LOGITS = 1 << 26
"""Limit on the logits of a part, over all rows: 256 MB in float32."""


def debiased(plain_BV: Tensor, prefixed_KBV: Tensor, *, decay: float) -> Tensor:
    """log q: the more a prefix raises a token's probability, the more it is lowered.

    With p of the plain texts and p_j of the prefixed ones, delta = p - max_j p_j; where it is
    negative, p is multiplied by max(FLOOR, exp(decay * delta)), and the result is normalised.

    Args:
        plain_BV: logits or log-probabilities of the texts (any leading shape, here B); -inf
            excludes a token.
        prefixed_KBV: the same for the texts after each prefix.
        decay: lambda, at least 0.

    Returns:
        Log-probabilities, float32 (or float64 as given). For K = 0, exactly `plain_BV`.
    """
    if not len(prefixed_KBV):
        return plain_BV
    if plain_BV.dtype != torch.float64:
        plain_BV = plain_BV.float()
        prefixed_KBV = prefixed_KBV.float()
    delta_BV = plain_BV.softmax(-1) - prefixed_KBV.softmax(-1).amax(0)
    alpha_BV = (decay * delta_BV.clamp(max=0)).exp().clamp(min=FLOOR)
    return (plain_BV + alpha_BV.log()).log_softmax(-1)


def continued(
    model: Any, copies: Sequence[Rows], *, new_tokens: int, beams: int = 1, decay: float = DECAY
) -> list[list[int]]:
    """Generate exactly `new_tokens` token ids for each text (the end token is suppressed), greedily
    or with beams.

    Args:
        model: a causal model, in evaluation mode.
        copies: token ids of the B texts, and of these after each of the K prefixes, joined before
            tokenisation, as in the authors' code. Without prefixes, the model is unchanged.
        new_tokens: at least 1.
        beams: 1 is greedy.
        decay: see `debiased`.
    """

    def debias(_: Tensor, scores: Tensor) -> Tensor:
        score_KRV = scores.unflatten(0, (len(copies), -1))
        return debiased(score_KRV[0], score_KRV[1:], decay=decay).repeat(len(score_KRV), 1)

    new = generate(
        model,
        [*chain(*copies)],
        ends=end_tokens(model),
        processors=[debias],
        max_new_tokens=new_tokens,
        min_new_tokens=new_tokens,
        num_beams=beams,
    )
    return new[: len(copies[0])]


@torch.no_grad()
def chunk_loss(
    model: Any, ids: Sequence[int], prefixes: Rows, *, lead: Sequence[int], decay: float
) -> tuple[float, float]:
    """Mean negative log-likelihood (nats) of a chunk's tokens times their number, without and with
    debiasing; 0 if there is no token to predict. ValueError: the model does not cache keys and
    values.

    Args:
        model: a causal model, in evaluation mode.
        ids: the chunk.
        prefixes: token ids of each; without any, both results are equal.
        lead: the tokenizer's initial tokens, which begin every chunk, before the prefix.
        decay: see `debiased`.
    """
    rows = [[*lead, *prefix, *ids] for prefix in ([], *prefixes)]
    ids_KT, mask_KT = padded(rows, model.device, left=True).values()
    width = ids_KT.shape[1]
    targets = len(ids) if lead else len(ids) - 1
    position_KT = (mask_KT.cumsum(-1) - 1).clamp(min=0)  # padding does not count
    cache: Any = None
    losses = list[Tensor]()
    part = max(1, LOGITS // (len(rows) * model.config.get_text_config().vocab_size))
    for start in range(0, width, part):
        end = start + part
        options: dict[str, Any] = {"attention_mask": mask_KT[:, :end], "use_cache": True}
        if takes_positions(model):
            options["position_ids"] = position_KT[:, start:end]
        output = model(ids_KT[:, start:end], past_key_values=cache, **options)
        cache = getattr(output, "past_key_values", None)
        if cache is None:
            raise ValueError(
                f"a {type(model).__name__} does not cache keys and values, which perplexity "
                "needs; take a transformer"
            )
        # Every column predicts the token of the next; the last one predicts none.
        logits_KPV = output.logits[:, : width - 1 - start].float()
        target_P = ids_KT[0, start + 1 : end + 1]
        scores = logits_KPV[0], debiased(logits_KPV[0], logits_KPV[1:], decay=decay)
        loss_2 = [cross_entropy(score_PV, target_P, reduction="none") for score_PV in scores]
        losses.append(torch.stack(loss_2))
    loss_2T = torch.cat(losses, 1)[:, width - 1 - targets :].double()
    regular, other = (loss_2T.sum(1) / max(1, targets) * len(ids)).tolist()
    return regular, other
