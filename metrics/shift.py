"""How far an intervention moves embeddings: cosine similarity between the original story and a
variant.

An input's embedding is the last hidden state of its CLS token; common tokens are the story tokens
that both inputs share, with their states. Source: h_CLS and h_t of Chaturvedi et al. 2023, section
5.2.

Shape letters: N examples (B pairs of stories in a batch), T tokens of a half, P pairs of aligned
tokens, L layers, D hidden.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity


def cosine(a_ND: Tensor, b_ND: Tensor) -> Tensor:
    """Cosine of the angle between rows, in [-1, 1], as float32 for any type of embeddings.

    bfloat16 has three digits and could not separate 0.99 from 0.995. The cosine of a zero vector is
    0.

    Args:
        a_ND: shape (..., D), any float type; b_ND likewise.

    Returns:
        Shape (...).

    Example:
        >>> a_ND, b_ND = torch.tensor([[1., 0.], [3., 4.]]), torch.tensor([[0., 2.], [4., 3.]])
        >>> [round(value, 6) for value in cosine(a_ND, b_ND).tolist()]
        [0.0, 0.96]
    """
    return cosine_similarity(a_ND.float(), b_ND.float(), dim=-1).clamp(-1, 1)


def pair_cosines(
    original_LBTD: Sequence[Tensor], variant_LBTD: Sequence[Tensor], batch: Any
) -> tuple[Tensor, Tensor]:
    """Cosines of B pairs of stories: of CLS tokens (B, L), and of P common tokens (P, L); float32.

    Args:
        original_LBTD, variant_LBTD: hidden states of L layers, each (B, T, D).
        batch: the pairs, a `PairBatch`.
    """
    cls_B = batch.original.cls_B
    rows_B = torch.arange(len(cls_B), device=cls_B.device)
    row_P = batch.row_P
    pairs = list(zip(original_LBTD, variant_LBTD, strict=True))
    cls_cos = [cosine(o[rows_B, cls_B], v[rows_B, batch.variant.cls_B]) for o, v in pairs]
    token_cos = [cosine(o[row_P, batch.original_P], v[row_P, batch.variant_P]) for o, v in pairs]
    return torch.stack(cls_cos, -1), torch.stack(token_cos, -1)


def distance_sums(cls_cos_N: Tensor, token_cos_P: Tensor, example_P: Tensor) -> Tensor:
    """Return what `shift_measures` needs of N examples, (N, 4), in terms of u = 1 - cosine, as
    squares of cosines close to 1 would cancel in the variance: u of CLS; of the common tokens the
    number, the sum of u, and that of its squares. No value is copied to the host.

    Args:
        cls_cos_N: cosines of the CLS embeddings, see `cosine`.
        token_cos_P: cosines of aligned tokens, of all examples together; what is not finite is left
            out.
        example_P: the index of each, 0 .. N-1 in any order.
    """
    fine_P = token_cos_P.isfinite()
    cls_N = 1 - cls_cos_N.double()
    u_P = torch.where(fine_P, 1 - token_cos_P.double(), 0)
    sums = [
        torch.zeros_like(cls_N).index_add_(0, example_P, value_P)
        for value_P in (fine_P.double(), u_P, u_P.square())
    ]
    return torch.stack([cls_N, *sums], dim=1)


def shift_measures(sums_N4: Tensor) -> dict[str, float]:
    """Return means and population standard deviations of cosines, of CLS and over all token pairs,
    the mean over examples of the mean of their token pairs, and the number of examples; NaN where
    there are none. What is not finite is left out.

    >>> sums_N4 = distance_sums(*map(torch.tensor, ([1., .5], [1., .8, .2], [0, 0, 1])))
    >>> measures = shift_measures(sums_N4)
    >>> [round(measures[name], 4) for name in ("cls/mean", "cls/std", "tokens/mean")]
    [0.75, 0.25, 0.6667]
    """
    cls_N = sums_N4[:, 0][sums_N4[:, 0].isfinite()]
    tokens_N, u_N, square_N = sums_N4[sums_N4[:, 1] > 0, 1:].T
    mean = u_N.sum() / tokens_N.sum()
    square = square_N.sum() / tokens_N.sum()
    measures = {
        "cls/mean": 1 - cls_N.mean(),
        "cls/std": cls_N.std(correction=0),
        "tokens/mean": 1 - mean,
        # Negative rounding errors become 0.
        "tokens/std": (square - mean.square()).clamp(min=0).sqrt(),
        "tokens/macro": 1 - (u_N / tokens_N).mean(),
    }
    return {name: value.item() for name, value in measures.items()} | {"cls/n": len(cls_N)}
