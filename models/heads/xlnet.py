"""XLNet's model: an encoder with its span, answer-type, number and option heads (faithfulness spec 2.3).

Shape letters: B batch (windows), T tokens, D hidden, C answer types (yes, no, unknown), N number classes,
O option classes, K starts looked at, E ends looked at for each start; in groups V variants, S subjects, and E
the two boundaries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from models.heads.answer_base import AnswerOutput, AnswerPrediction, AnswerQAModel, with_cls
from models.heads.answer_heads import XLNetAnswerHeads
from models.heads.qa_model import SpanPrediction
from models.heads.span import best_pairs, best_spans

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BEAM = 5
"""Starts, and ends for each start, that are looked at (faithfulness spec 2.3)."""


class XLNetQAModel(AnswerQAModel):
    """XLNet's answer heads in place of the span head; any encoder can carry them.

    Source: faithfulness spec 2.3. The start layer takes over the start half of a span head of one layer.
    """

    heads: ClassVar[str] = "xlnet"

    def __init__(self, pretrained: PreTrainedModel, architecture: str) -> None:
        super().__init__(pretrained, architecture)
        self.answer_heads = XLNetAnswerHeads(
            self.config.hidden_size, initializer_range=self.initializer_range
        )
        if isinstance(only := self.span_head.layers[0], nn.Linear):
            with torch.no_grad():
                self.answer_heads.start.weight.copy_(only.weight[:1])
                self.answer_heads.start.bias.copy_(only.bias[:1])
        del self.span_head

    def answer_output(
        self,
        hidden_BTD: Tensor,
        mask_BT: Tensor,
        cls_B: Tensor,
        start_B: Tensor | None,
        answerable_BT: Tensor,
    ) -> AnswerOutput:
        start_BT = self.answer_heads.start_logits(hidden_BTD, answerable_BT)
        start_B = start_BT.argmax(1) if start_B is None else start_B
        end_BT = self.answer_heads.end_logits(hidden_BTD, start_B.unsqueeze(-1), answerable_BT).squeeze(1)
        type_BC, number_BN, option_BO = self.answer_heads.kind_logits(hidden_BTD, start_BT, cls_B)
        return AnswerOutput(start_BT, end_BT, type_BC, None, number_BN, option_BO, hidden_BTD)

    def group_log_probs(self, inputs: Mapping[str, Tensor], candidate_BVSE: Tensor) -> Tensor:
        """As for `QAModel`; the end of each subject given its own start."""
        hidden_BTD, mask_BT = self.encode(inputs), inputs["attention_mask"] != 0
        start_RS, end_RS = candidate_BVSE.flatten(0, 1).unbind(-1)
        start_BT = self.answer_heads.start_logits(hidden_BTD, mask_BT)
        end_RST = self.answer_heads.end_logits(hidden_BTD, start_RS, mask_BT)
        start_log_RS = start_BT.log_softmax(-1).gather(1, start_RS)
        end_log_RS = end_RST.log_softmax(-1).gather(2, end_RS.unsqueeze(-1)).squeeze(-1)
        return torch.stack((start_log_RS, end_log_RS), dim=-1).unflatten(0, candidate_BVSE.shape[:2])

    def predict_spans(
        self, inputs: Mapping[str, Tensor], context_BT: Tensor, cls_B: Tensor, max_answer_tokens: int
    ) -> SpanPrediction:
        """As for `QAModel`, with log-probabilities for logits: the ends of spans are given the most probable
        start in the context, the end of "no answer" the classification token."""
        hidden_BTD = self.encode(inputs)
        answerable_BT = with_cls(context_BT, cls_B)
        start_BT = self.answer_heads.start_logits(hidden_BTD, answerable_BT).log_softmax(-1)
        likely_B = start_BT.masked_fill(~context_BT, float("-inf")).argmax(1)
        given_BK = torch.stack((likely_B, cls_B), dim=1)
        span_end_BT, null_end_BT = (
            self.answer_heads.end_logits(hidden_BTD, given_BK, answerable_BT).log_softmax(-1).unbind(1)
        )
        start_B, end_B, score_B = best_spans(start_BT, span_end_BT, context_BT, max_answer_tokens)
        cls_B1 = cls_B.unsqueeze(-1)
        null_B = (start_BT.gather(1, cls_B1) + null_end_BT.gather(1, cls_B1)).squeeze(-1)
        return SpanPrediction(start_B, end_B, score_B, null_B)

    def predict_answers(
        self,
        inputs: Mapping[str, Tensor],
        context_BT: Tensor,
        start_allowed_BT: Tensor,
        cls_B: Tensor,
        max_answer_tokens: int,
    ) -> AnswerPrediction:
        hidden_BTD = self.encode(inputs)
        answerable_BT = with_cls(context_BT, cls_B)
        start_BT = self.answer_heads.start_logits(hidden_BTD, answerable_BT)
        kinds = self.answer_heads.kind_logits(hidden_BTD, start_BT, cls_B)
        beam = min(BEAM, start_BT.shape[1])
        start_log_BK, start_BK = start_BT.log_softmax(-1).topk(beam)
        end_BKT = self.answer_heads.end_logits(hidden_BTD, start_BK, answerable_BT)
        end_log_BKE, end_BKE = end_BKT.log_softmax(-1).topk(beam)
        span = best_pairs(
            start_BK,
            end_BKE,
            start_log_BK.unsqueeze(-1) + end_log_BKE,
            context_BT,
            start_allowed_BT,
            max_answer_tokens,
        )
        number_score_B, number_B = kinds[1].softmax(-1)[:, 1:].max(-1)
        option_score_B, option_B = kinds[2].softmax(-1)[:, 1:].max(-1)
        others = (number_B + 1, number_score_B, option_B + 1, option_score_B)
        return AnswerPrediction(*span, kinds[0].sigmoid(), *others)

    def to_pretrained(self) -> PreTrainedModel:
        """Not possible: no question-answering class of transformers has these heads.

        Raises:
            ValueError: always.
        """
        raise ValueError("XLNet's answer heads have no counterpart in transformers; keep the .ckpt")
