"""How far an intervention moves embeddings: cosine similarity between the original story and a
variant.

An input's embedding is the last hidden state of its CLS token; common tokens are the story tokens
that both inputs share, with their states. Source: h_CLS and h_t of Chaturvedi et al. 2023, section
5.2.

Shape letters: N examples (B pairs of stories in a batch), T tokens of a half, P pairs of aligned
tokens, L layers, D hidden, S sums, C counts.
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
    none. What is not finite in some layer is left out.
    """

    cls_mean_L: Tensor
    cls_std_L: Tensor
    token_mean_L: Tensor
    """Over all token pairs of all examples."""
    token_std_L: Tensor
    token_macro_L: Tensor
    """Mean over examples of the mean of their token pairs."""
    n: Tensor
    """Examples; int64."""


def mean_and_std(sum_L: Tensor, square_L: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of cosines from sums of u = 1 - cosine and of its squares;
    negative rounding errors become 0.
    """
    return 1 - sum_L / n, (square_L / n - (sum_L / n).square()).clamp(min=0).sqrt()


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
    count_C: Tensor

    def __init__(self, layers: int) -> None:
        super().__init__()
        # In terms of u = 1 - cosine: squares of cosines close to 1 would cancel in the variance.
        # Of CLS: u, its square; of tokens: u, its square, the mean u of each example.
        self.add_sum("sum_SL", 5, layers)
        self.add_sum("count_C", 3)  # examples, token pairs, examples with a token pair

    def update(self, cls_cos_NL: Tensor, token_cos_PL: Tensor, example_P: Tensor) -> None:
        """Add N examples with all their P token pairs; an example must not be split over two
        updates. No value is copied to the host.

        Args:
            cls_cos_NL: cosines of the CLS embeddings, see `cosine`, shape (N, L).
            token_cos_PL: cosines of aligned tokens, of all examples together, shape (P, L).
            example_P: its index, 0 .. N-1 in any order. An example without one counts for CLS
                alone.
        """
        fine_N, fine_P = (cos.isfinite().all(1).long() for cos in (cls_cos_NL, token_cos_PL))
        cls_NL, token_PL = (
            torch.where(fine[:, None] > 0, 1 - cos.double(), 0)
            for fine, cos in ((fine_N, cls_cos_NL), (fine_P, token_cos_PL))
        )
        count_N = torch.zeros_like(fine_N).index_add_(0, example_P, fine_P)
        total_NL = torch.zeros_like(cls_NL).index_add_(0, example_P, token_PL)
        mean_NL = total_NL / count_N.clamp(min=1)[:, None]
        parts = (cls_NL, cls_NL.square(), token_PL, token_PL.square(), mean_NL)
        self.sum_SL += torch.stack([part.sum(0) for part in parts])
        self.count_C += torch.stack([fine_N.sum(), fine_P.sum(), (count_N > 0).sum()])

    def compute(self) -> ShiftResult:
        """Return means and deviations of everything seen."""
        cls_L, cls_square_L, token_L, token_square_L, macro_L = self.sum_SL
        n, pairs, paired = self.count_C
        return ShiftResult(
            *mean_and_std(cls_L, cls_square_L, n),
            *mean_and_std(token_L, token_square_L, pairs),
            1 - macro_L / paired,
            n.long(),
        )
