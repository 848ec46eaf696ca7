"""Self-debiasing (Schick et al. 2021): make tokens less likely that a prefix asking for bias makes
more likely.

As in the authors' code, the texts and their prefixed copies are rows of one call of `generate`. All
copies of a text get the same scores, so that they choose the same tokens, greedily and with beams.
For perplexity see models/language/perplexity.py.

Shape letters: K prefixes, B texts, R rows of the texts in a step (B, times the beams), V
vocabulary.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from .writing import end_tokens, generate

DECAY = 50.0
"""The authors' lambda; the paper's grid is 10, 50, 100."""
FLOOR = 0.01
"""No probability is scaled below this share, before normalisation (the authors' epsilon)."""

Ids = Sequence[int]


def debiased(plain_BV: Tensor, prefixed_KBV: Tensor, *, decay: float = DECAY) -> Tensor:
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
        plain_BV, prefixed_KBV = plain_BV.float(), prefixed_KBV.float()
    delta_BV = plain_BV.softmax(-1) - prefixed_KBV.softmax(-1).amax(0)
    alpha_BV = (decay * delta_BV.clamp(max=0)).exp().clamp(min=FLOOR)
    return (plain_BV + alpha_BV.log()).log_softmax(-1)


def continued(
    model: Any,
    texts: Sequence[Ids],
    prefixed: Sequence[Sequence[Ids]] = (),
    *,
    new_tokens: int,
    pad: int,
    beams: int = 1,
    decay: float = DECAY,
) -> list[list[int]]:
    """Generate exactly `new_tokens` token ids for each text (the end token is suppressed), greedily
    or with beams.

    Args:
        model: a causal model, in evaluation mode.
        texts: token ids of the B texts.
        prefixed: K lists of the B texts' token ids after that prefix; prefix and text were joined
            before tokenisation, as in the authors' code. Without any, the model is unchanged.
        new_tokens: at least 1.
        pad: any token id; it is masked.
        beams: 1 is greedy.
        decay: see `debiased`.
    """

    def debias(_: Tensor, scores: Tensor) -> Tensor:
        score_KRV = scores.unflatten(0, (1 + len(prefixed), -1))
        return debiased(score_KRV[0], score_KRV[1:], decay=decay).repeat(len(score_KRV), 1)

    rows = [*texts, *chain(*prefixed)]
    new = generate(
        model,
        rows,
        ends=end_tokens(model),
        pad=pad,
        most=new_tokens,
        least=new_tokens,
        beams=beams,
        processors=[debias],
    )
    return new[: len(texts)]
