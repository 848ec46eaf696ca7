"""What models that answer with a span, yes, no or unknown have in common.

Shape letters: B batch (windows), T tokens, D hidden, C answer types (yes, no, unknown), N number classes,
O option classes, K starts looked at, E ends looked at for each start; in groups V variants, S subjects, and E
the two boundaries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from models.heads.qa_model import QAModel


class AnswerOutput(NamedTuple):
    """What a model with answer heads says about a batch."""

    start_BT: Tensor
    """Logits of the first answer token, float32, lowest finite number at padding."""
    end_BT: Tensor
    """Logits of the last answer token, likewise; of XLNet's heads given the first token."""
    type_BC: Tensor
    """Logits of yes, no, unknown, float32."""
    rationale_BT: Tensor | None
    """Logits of being part of the rationale, lowest finite number at padding; rationale heads only."""
    number_BN: Tensor | None
    """Logits of 12 number classes; XLNet's heads only."""
    option_BO: Tensor | None
    """Logits of 3 option classes; XLNet's heads only."""
    hidden_BTD: Tensor
    """Last hidden states of the encoder."""


class AnswerPrediction(NamedTuple):
    """The best span of every window, and the scores of the other answers."""

    start_B: Tensor
    end_B: Tensor
    score_B: Tensor
    """Of the span: the sum of its two logits; with XLNet's heads of its two log-probabilities. -inf where no
    span is allowed."""
    type_BC: Tensor
    """Yes, no, unknown as they are compared: twice the logit, to stand beside the sum of two; with XLNet's
    heads probabilities."""
    number_B: Tensor | None
    """The best of the number classes 1 to 11; XLNet's heads only, as what follows."""
    number_score_B: Tensor | None
    """Its probability."""
    option_B: Tensor | None
    """The better of the option classes 1 and 2."""
    option_score_B: Tensor | None


class AnswerQAModel(QAModel):
    """What models with heads for answer types have in common."""

    def forward(  # type: ignore[override]
        self,
        inputs: Mapping[str, Tensor],
        cls_B: Tensor | None = None,
        start_B: Tensor | None = None,
        answerable_BT: Tensor | None = None,
    ) -> AnswerOutput:
        """Encode a padded batch.

        Args:
            inputs: as for `QAModel`.
            cls_B: where the classification token stands; None: where this architecture has it.
            start_B: the first answer token that XLNet's end logits are conditioned on, in training the gold
                one; None: the most probable one.
            answerable_BT: the tokens in XLNet's two softmaxes: context and classification token; None: all
                but padding, as always with rationale heads.
        """
        mask_BT = inputs["attention_mask"] != 0
        return self.answer_output(
            self.encode(inputs),
            mask_BT,
            self.cls_positions(mask_BT) if cls_B is None else cls_B,
            start_B,
            mask_BT if answerable_BT is None else answerable_BT,
        )

    def answer_output(
        self,
        hidden_BTD: Tensor,
        mask_BT: Tensor,
        cls_B: Tensor,
        start_B: Tensor | None,
        answerable_BT: Tensor,
    ) -> AnswerOutput:
        """What the heads read off hidden states; `mask_BT` is False at padding, the rest as in `forward`."""
        raise NotImplementedError

    def predict_answers(
        self,
        inputs: Mapping[str, Tensor],
        context_BT: Tensor,
        start_allowed_BT: Tensor,
        cls_B: Tensor,
        max_answer_tokens: int,
    ) -> AnswerPrediction:
        """The best span of every window, with the scores of the other answers.

        Args:
            inputs: as in `forward`.
            context_BT: True where an answer may stand.
            start_allowed_BT: True where, besides, a span may start: tokens that no other window shows with
                more context.
            cls_B: where the classification token stands.
            max_answer_tokens: longest span.
        """
        raise NotImplementedError

    def cls_positions(self, mask_BT: Tensor) -> Tensor:
        """Where the classification token stands: XLNet's ends the row, all others begin it."""
        at_T = torch.arange(1, mask_BT.shape[1] + 1, device=mask_BT.device)
        return (mask_BT * (at_T if self.architecture == "xlnet" else at_T.flip(0))).argmax(1)


def with_cls(context_BT: Tensor, cls_B: Tensor) -> Tensor:
    """Where XLNet's softmaxes look: at the context (B, T) and the classification token."""
    return context_BT.scatter(1, cls_B.unsqueeze(-1), True)
