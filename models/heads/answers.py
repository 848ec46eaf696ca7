"""Answers that are a span, yes, no or unknown: the papers' rationale heads and their model.

Shape letters: B batch (windows), T tokens, D hidden, C answer types (yes, no, unknown), K selected
tokens; L answers (types, then tokens); in groups V variants, S subjects, and E the two boundaries.
"""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from interventune.models.backbones import Inputs

from .span import LOW, QAModel, SpanHead, best_row_spans, candidate_log_probs

Tagged = Literal["story", "all"]

TYPES = 3
"""yes, no, unknown."""


class AnswerPrediction(NamedTuple):
    """The best span of every window, and the scores of the other answers; numbers and options only
    with XLNet's heads.
    """

    start_B: Tensor
    end_B: Tensor
    score_B: Tensor
    """Score of the span: the sum of its two logits (with XLNet's heads, log-probabilities). -inf if
    no span is allowed.
    """
    type_BC: Tensor
    """Scores of yes, no, unknown, comparable with the span's: twice the logit, since the span sums
    two (with XLNet's heads, probabilities).
    """
    number_B: Tensor | None = None
    """The best of the number classes 1 to 11, with its probability."""
    number_score_B: Tensor | None = None
    option_B: Tensor | None = None
    """The better of the option classes 1 and 2, with its probability."""
    option_score_B: Tensor | None = None


class RationaleOutput(NamedTuple):
    """Float32 logits of the first and last answer token, of yes, no and unknown, and of the
    rationale, with the lowest finite number at padding and untagged tokens.
    """

    start_BT: Tensor
    end_BT: Tensor
    type_BC: Tensor
    rationale_BT: Tensor


class RationaleModel(QAModel):
    """Span head and rationale heads (Chaturvedi et al. 2023, section 4.2); yes, no, unknown and all
    positions share one softmax per boundary, as in the authors' code.

    Args:
        tagged: Which tokens are tagged and attended over: those of the story, as in the paper's
            equations, or all but padding, as in the authors' code.
    """

    heads = "rationale"
    starts_from = ("span",)
    unknown_at = -1  # the last type, just before the tokens

    def __init__(self, pretrained: Any, architecture: str, *, tagged: Tagged = "story") -> None:
        super().__init__(pretrained, architecture)
        self.tagged = tagged
        self.span_head = SpanHead(pretrained, architecture)
        self.answer_heads = self.fresh(RationaleHeads(self.config.hidden_size))

    @property
    def head_options(self) -> dict[str, Any]:
        return {"tagged": self.tagged}

    def forward(self, inputs: Inputs, context_BT: Tensor) -> RationaleOutput:
        """Encode a padded batch; `context_BT` is True at the tokens of the story."""
        hidden_BTD = self.encode(inputs)
        start_BT, end_BT = self.span_head(hidden_BTD, inputs["attention_mask"])
        tagged_BT = self.tagged_tokens(inputs, context_BT)
        cls_B = self.cls_positions(inputs)
        type_BC, rationale_BT = self.answer_heads(hidden_BTD, tagged_BT, cls_B)
        return RationaleOutput(start_BT, end_BT, type_BC, rationale_BT)

    def tagged_tokens(self, inputs: Inputs, context_BT: Tensor) -> Tensor:
        """True (B, T) at the tokens that are tagged and attended over."""
        return context_BT if self.tagged == "story" else inputs["attention_mask"] != 0

    def group_log_probs(self, inputs: Inputs, context_BT: Tensor, candidate_BVSE: Tensor) -> Tensor:
        """Computed from the softmax over yes, no, unknown and the positions."""
        output = self(inputs, context_BT)
        start_RL = torch.cat((output.type_BC, output.start_BT), dim=1)
        end_RL = torch.cat((output.type_BC, output.end_BT), dim=1)
        return candidate_log_probs(start_RL, end_RL.unsqueeze(1), candidate_BVSE + TYPES)

    def predict_answers(
        self, inputs: Inputs, context_BT: Tensor, start_allowed_BT: Tensor
    ) -> AnswerPrediction:
        """Find the best span of every window, and score the other answers.

        Args:
            context_BT: True at tokens allowed in an answer.
            start_allowed_BT: True at those where a span may also start: tokens that no other window
                shows with more context.
        """
        start_BT, end_BT, type_BC, _ = self(inputs, context_BT)
        starts_BT = context_BT & start_allowed_BT
        best = best_row_spans(start_BT, end_BT, starts_BT, context_BT, self.max_answer_tokens)
        return AnswerPrediction(*best, 2 * type_BC)


def states_at(hidden_BTD: Tensor, at_BK: Tensor) -> Tensor:
    """Hidden states (B, K, D) at given tokens."""
    return hidden_BTD.take_along_dim(at_BK.unsqueeze(-1), dim=1)


class RationaleHeads(nn.Module):
    """Tags the rationale and chooses between yes, no and unknown by attention over the tagged
    states, without biases (Chaturvedi et al. 2023, equations 3 to 6).
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        D = hidden_size
        self.rationale, self.attention = (
            nn.Sequential(nn.Linear(D, D, bias=False), nn.ReLU(), nn.Linear(D, 1, bias=False))
            for _ in range(2)
        )
        self.unknown = nn.Linear(2 * D, 1, bias=False)
        self.yes_no = nn.Linear(2 * D, 2, bias=False)

    def forward(
        self, hidden_BTD: Tensor, tagged_BT: Tensor, cls_B: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return type_BC, logits of yes, no, unknown, and rationale_BT, logits of the rationale
        with the lowest finite number at untagged tokens; both float32.

        Args:
            hidden_BTD: last hidden states.
            tagged_BT: True at the tokens that are tagged and attended over.
            cls_B: position of the classification token.
        """
        others_BT = ~tagged_BT
        rationale_BT = self.rationale(hidden_BTD).squeeze(-1).float().masked_fill(others_BT, LOW)
        weighted_BTD = rationale_BT.sigmoid().to(hidden_BTD.dtype).unsqueeze(-1) * hidden_BTD
        logit_BT = self.attention(weighted_BTD).squeeze(-1).float().masked_fill(others_BT, LOW)
        share_B1T = logit_BT.softmax(-1).to(weighted_BTD.dtype).unsqueeze(1)
        pooled_BD = (share_B1T @ weighted_BTD).squeeze(1)
        cls_BD = states_at(hidden_BTD, cls_B.unsqueeze(-1)).squeeze(1)
        both = torch.cat((pooled_BD, cls_BD.to(pooled_BD.dtype)), dim=-1)
        return torch.cat((self.yes_no(both), self.unknown(both)), dim=-1).float(), rationale_BT
