"""How far an intervention moves embeddings: cosine similarity between the original story and a
variant.

An input's embedding is the last hidden state of its CLS token; common tokens are the story tokens
that both inputs share, with their states. Source: h_CLS and h_t of Chaturvedi et al. 2023, section
5.2.

Shape letters: N examples (B pairs of stories in a batch), T tokens of a half, P pairs of aligned
tokens, L layers, D hidden, S sums.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from .sum_metric import SumMetric


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
    original_LBTD: Sequence[Tensor],
    variant_LBTD: Sequence[Tensor],
    original_cls_B: Tensor,
    variant_cls_B: Tensor,
    original_P: Tensor,
    variant_P: Tensor,
    row_P: Tensor,
) -> tuple[Tensor, Tensor]:
    """Cosines of B pairs of stories: of CLS tokens (B, L), and of P common tokens (P, L); float32.

    Args:
        original_LBTD, variant_LBTD: hidden states of L layers, each (B, T, D).
        original_cls_B, variant_cls_B: position of the CLS token in either half.
        original_P, variant_P: index of every common token in either half.
        row_P: the pair that each common token belongs to.
    """
    rows_B = torch.arange(len(original_cls_B), device=original_cls_B.device)
    pairs = list(zip(original_LBTD, variant_LBTD, strict=True))
    cls_cos = [cosine(o[rows_B, original_cls_B], v[rows_B, variant_cls_B]) for o, v in pairs]
    token_cos = [cosine(o[row_P, original_P], v[row_P, variant_P]) for o, v in pairs]
    return torch.stack(cls_cos, -1), torch.stack(token_cos, -1)


class ShiftResult(NamedTuple):
    """Means and population standard deviations of cosines per layer, float64; NaN where there are
    none. What is not finite is left out.
    """

    cls_mean_L: Tensor
    cls_std_L: Tensor
    token_mean_L: Tensor
    """Over all token pairs of all examples."""
    token_std_L: Tensor
    token_macro_L: Tensor
    """Mean over examples of the mean of their token pairs."""
    n_L: Tensor
    """Examples; int64."""


def mean_and_std(n_L: Tensor, sum_L: Tensor, square_L: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of n cosines from sums of u = 1 - cosine and of its squares;
    negative rounding errors become 0.
    """
    return 1 - sum_L / n_L, (square_L / n_L - (sum_L / n_L).square()).clamp(min=0).sqrt()


class EmbeddingShift(SumMetric):
    """Cosine similarity per layer between original stories and one of their variants, on all
    processes.

    Args:
        layers: L, 1 for the last layer alone.

    Example:
        >>> metric = EmbeddingShift(layers=1)
        >>> example_P = torch.tensor([0, 0, 1])
        >>> metric.update(torch.tensor([[1.], [.5]]), torch.tensor([[1.], [.8], [.2]]), example_P)
        >>> result = metric.compute()
        >>> [round(value.item(), 4) for value in (result.cls_mean_L, result.cls_std_L)]
        [0.75, 0.25]
        >>> [round(value.item(), 4) for value in (result.token_mean_L, result.token_macro_L)]
        [0.6667, 0.55]
    """

    sum_SL: Tensor

    def __init__(self, layers: int) -> None:
        super().__init__()
        # In terms of u = 1 - cosine: squares of cosines close to 1 would cancel in the variance.
        # Of CLS, then of tokens: their number, u and its square; the number of examples with a
        # token pair, and their mean u.
        self.add_sum("sum_SL", 8, layers)

    def update(self, cls_cos_NL: Tensor, token_cos_PL: Tensor, example_P: Tensor) -> None:
        """Add N examples with all their P token pairs; an example must not be split over two
        updates. No value is copied to the host.

        Args:
            cls_cos_NL: cosines of the CLS embeddings, see `cosine`, shape (N, L).
            token_cos_PL: cosines of aligned tokens, of all examples together, shape (P, L).
            example_P: its index, 0 .. N-1 in any order. An example without one counts for CLS
                alone.
        """
        fine_NL, fine_PL = cls_cos_NL.isfinite(), token_cos_PL.isfinite()
        cls_NL = torch.where(fine_NL, 1 - cls_cos_NL.double(), 0)
        token_PL = torch.where(fine_PL, 1 - token_cos_PL.double(), 0)
        count_NL, total_NL = (
            torch.zeros_like(cls_NL).index_add_(0, example_P, value_PL)
            for value_PL in (fine_PL.double(), token_PL)
        )
        of_cls = fine_NL, cls_NL, cls_NL.square()
        of_tokens = fine_PL, token_PL, token_PL.square()
        parts = (*of_cls, *of_tokens, count_NL > 0, total_NL / count_NL.clamp(min=1))
        self.sum_SL += torch.stack([part.sum(0).double() for part in parts])

    def compute(self) -> ShiftResult:
        """Return means and deviations of everything seen."""
        sums_cls, sums_tokens, (paired_L, macro_L) = self.sum_SL.split((3, 3, 2))
        cls, tokens = mean_and_std(*sums_cls), mean_and_std(*sums_tokens)
        return ShiftResult(*cls, *tokens, 1 - macro_L / paired_L, sums_cls[0].long())
