"""The span head, the model that answers with a span, and scores computed from their logits.

Shape letters: B batch (rows, or groups where there are variants), R rows, T tokens, D hidden, V
variants of a group, S subjects, E the two boundaries (start, end).
"""

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from interventune.models.backbones import ARCHITECTURES, EncoderModel, Inputs

LOW = torch.finfo(torch.float32).min


class QAOutput(NamedTuple):
    """Float32 logits of the first and last answer token, with the lowest finite number at
    padding.
    """

    start_BT: Tensor
    end_BT: Tensor


class SpanHead(nn.Module):
    """The span head of transformers' question-answering model. As in the papers, the softmax
    includes question and special tokens.
    """

    def __init__(self, pretrained: Any, architecture: str) -> None:
        super().__init__()
        names = ARCHITECTURES[architecture].span_head
        self.layers = nn.Sequential(*(getattr(pretrained, name) for name in names))

    def forward(self, hidden_BTD: Tensor, mask_BT: Tensor) -> QAOutput:
        padding_BT1 = mask_BT.unsqueeze(-1) == 0
        logits_BTE = self.layers(hidden_BTD).float().masked_fill(padding_BT1, LOW)
        return QAOutput(*logits_BTE.unbind(-1))


def candidate_log_probs(start_RT: Tensor, end_RST: Tensor, candidate_BVSE: Tensor) -> Tensor:
    """Boundary log-probabilities (B, V, S, E) of given spans: natural logarithms of the softmax
    over tokens. A span's score is S = sqrt(p_start * p_end), as in the code of Li et al. 2020, so
    log S is the mean over E.

    Args:
        start_RT: logits of the B * V rows, with padding masked.
        end_RST: the same of the end, given each subject's start; S may be 1.
        candidate_BVSE: first and last token of each span.
    """
    start_RS, end_RS = candidate_BVSE.flatten(0, 1).unbind(-1)
    start_log_RS = start_RT.log_softmax(-1).gather(1, start_RS)
    end_log_RS1 = end_RST.log_softmax(-1).take_along_dim(end_RS.unsqueeze(-1), -1)
    log_prob_RSE = torch.stack((start_log_RS, end_log_RS1.squeeze(-1)), dim=-1)
    return log_prob_RSE.unflatten(0, candidate_BVSE.shape[:2])


def best_row_spans(
    start_BT: Tensor,
    end_BT: Tensor,
    may_start_BT: Tensor,
    may_end_BT: Tensor,
    max_answer_tokens: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The best span of every row: maximise start + end logit over start <= end < start +
    max_answer_tokens.

    Args:
        start_BT, end_BT: logits.
        may_start_BT, may_end_BT: where a span may start and end.
        max_answer_tokens: longest answer, in tokens.

    Returns:
        start_B, end_B (token indices) and score_B (sum of the two logits). A row without an allowed
        span has score -inf.
    """
    low, width = float("-inf"), min(max_answer_tokens, start_BT.shape[1])
    start_BT = start_BT.masked_fill(~may_start_BT, low)
    # end_BTW[b, t, w] = end logit at t + w; no span may end after the last token.
    end_BTW = pad(end_BT.masked_fill(~may_end_BT, low), (0, width - 1), value=low).unfold(
        1, width, 1
    )
    score_B, flat_B = (start_BT.unsqueeze(-1) + end_BTW).flatten(1).max(-1)
    start_B = flat_B // width
    return start_B, start_B + flat_B % width, score_B


class QAModel(EncoderModel):
    """A model that answers questions about a text, with any heads."""

    unknown_at: ClassVar[int | None] = None
    """Position of `unknown` as a candidate of `group_log_probs`; None: the classification token."""
    max_answer_tokens = 30
    """Maximum length of a predicted span, in tokens."""

    def cls_positions(self, inputs: Inputs) -> Tensor:
        """Return the position of the classification token, (B,): last in XLNet's rows, first in all
        others.
        """
        mask_BT = inputs["attention_mask"]
        at_T = torch.arange(1, mask_BT.shape[1] + 1, device=mask_BT.device)
        return (mask_BT * (at_T if self.architecture == "xlnet" else at_T.flip(0))).argmax(1)

    def group_log_probs(self, inputs: Inputs, context_BT: Tensor, candidate_BVSE: Tensor) -> Tensor:
        """Boundary log-probabilities (B, V, S, E) of the subjects of whole groups, from the same
        softmax as in training; log S is the mean over E.

        Args:
            inputs: B * V rows, with the variants of a group in consecutive rows.
            context_BT: True at tokens allowed in an answer, for the same rows.
            candidate_BVSE: first and last token of each subject.
        """
        raise NotImplementedError


class SpanPrediction(NamedTuple):
    """The best span of every row, its start + end logit, and that of the classification token (no
    answer).
    """

    start_B: Tensor
    end_B: Tensor
    score_B: Tensor
    null_B: Tensor


class SpanModel(QAModel):
    """An encoder with a span head: transformers' question-answering model, split into its parts."""

    heads = "span"
    starts_from = ("rationale",)

    def __init__(self, pretrained: Any, architecture: str) -> None:
        super().__init__(pretrained, architecture)
        self.span_head = SpanHead(pretrained, architecture)

    def forward(self, inputs: Inputs) -> QAOutput:
        """Encode a padded batch; `inputs` as in `encode`."""
        return self.span_head(self.encode(inputs), inputs["attention_mask"])

    def group_log_probs(self, inputs: Inputs, context_BT: Tensor, candidate_BVSE: Tensor) -> Tensor:
        """Computed from the softmax over all tokens, including the question's."""
        start_BT, end_BT = self(inputs)
        return candidate_log_probs(start_BT, end_BT.unsqueeze(1), candidate_BVSE)

    def predict_spans(self, inputs: Inputs, context_BT: Tensor) -> SpanPrediction:
        """The best span of every row, by start + end logit, of the tokens where `context_BT` is
        True.
        """
        start_BT, end_BT = self(inputs)
        spans = best_row_spans(start_BT, end_BT, context_BT, context_BT, self.max_answer_tokens)
        null_B = (start_BT + end_BT).gather(1, self.cls_positions(inputs)[:, None]).squeeze(-1)
        return SpanPrediction(*spans, null_B)
