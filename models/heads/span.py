"""Heads on top of an encoder, and the scores that are read off them.

Shape letters: B batch (rows), T tokens, D hidden, C candidate spans, E the two boundaries (start, end); in
`best_pairs` K starts and E ends of each.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class SpanHead(nn.Module):
    """Start and end logits of an extractive answer: (B, T, D) -> two of (B, T), float32.

    Padding can never be an answer: its logits are the lowest finite number, so that scores do not depend
    on how far a batch was padded. Question and special tokens stay in the softmax, as in the papers.
    """

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, hidden_BTD: Tensor, mask_BT: Tensor) -> tuple[Tensor, Tensor]:
        logits_BTE = self.layers(hidden_BTD).float()
        logits_BTE = logits_BTE.masked_fill(mask_BT.unsqueeze(-1) == 0, torch.finfo(torch.float32).min)
        return logits_BTE[..., 0], logits_BTE[..., 1]


def candidate_log_probs(
    start_BT: Tensor, end_BT: Tensor, candidate_start_BC: Tensor, candidate_end_BC: Tensor
) -> Tensor:
    """Boundary log-probabilities of given spans (LEI spec 2.1).

    Args:
        start_BT, end_BT: logits, padding already masked.
        candidate_start_BC, candidate_end_BC: first and last token of each candidate.

    Returns:
        (B, C, E) natural logarithms of the softmax over tokens; a span's score is
        S = sqrt(p_start * p_end), that is log S = mean over E.
    """
    start_BC = start_BT.log_softmax(-1).gather(1, candidate_start_BC)
    end_BC = end_BT.log_softmax(-1).gather(1, candidate_end_BC)
    return torch.stack((start_BC, end_BC), dim=-1)


def best_spans(
    start_BT: Tensor,
    end_BT: Tensor,
    allowed_BT: Tensor,
    max_answer_tokens: int,
    start_allowed_BT: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The best span of every row: maximise start + end logit over start <= end < start + max_answer_tokens.

    Args:
        start_BT, end_BT: logits.
        allowed_BT: where a span may start and end (context tokens).
        max_answer_tokens: longest answer, in tokens.
        start_allowed_BT: where, besides, a span may start; None adds no condition.

    Returns:
        start_B, end_B (token indices) and score_B (sum of the two logits). A row without an allowed token
        has score -inf.
    """
    B, T = start_BT.shape
    low = float("-inf")
    may_start_BT = allowed_BT if start_allowed_BT is None else allowed_BT & start_allowed_BT
    start_BT = start_BT.masked_fill(~may_start_BT, low)
    end_BT = end_BT.masked_fill(~allowed_BT, low)
    width = min(max_answer_tokens, T)
    # end_BTW[b, t, w] = end logit at t + w; beyond the last token nothing may end.
    padded = torch.cat((end_BT, end_BT.new_full((B, width - 1), low)), dim=1)
    score_BTW = start_BT.unsqueeze(-1) + padded.unfold(1, width, 1)
    score_B, flat_B = score_BTW.flatten(1).max(-1)
    best_start_B = flat_B // width
    return best_start_B, best_start_B + flat_B % width, score_B


def best_pairs(
    start_BK: Tensor,
    end_BKE: Tensor,
    score_BKE: Tensor,
    context_BT: Tensor,
    start_allowed_BT: Tensor,
    max_answer_tokens: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The best allowed span of every row among K starts with E ends each.

    Args:
        start_BK, end_BKE: token indices.
        score_BKE: the higher the better.
        context_BT, start_allowed_BT, max_answer_tokens: as in `best_spans` (`allowed_BT` is the context).

    Returns:
        start_B, end_B and score_B, which is -inf where no pair is allowed.
    """
    starts_BK = (context_BT & start_allowed_BT).gather(1, start_BK)
    ends_BKE = context_BT.gather(1, end_BKE.flatten(1)).view_as(end_BKE)
    length_BKE = end_BKE - start_BK.unsqueeze(-1) + 1
    allowed_BKE = starts_BK.unsqueeze(-1) & ends_BKE & (length_BKE >= 1) & (length_BKE <= max_answer_tokens)
    score_B, flat_B = score_BKE.masked_fill(~allowed_BKE, float("-inf")).flatten(1).max(-1)
    flat_B1 = flat_B.unsqueeze(-1)
    start_B = start_BK.gather(1, flat_B1 // end_BKE.shape[-1]).squeeze(-1)
    return start_B, end_BKE.flatten(1).gather(1, flat_B1).squeeze(-1), score_B
