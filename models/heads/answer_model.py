"""QA models that answer with a span, yes, no or unknown: an encoder with a span head and heads for the rest.

Shape letters: B batch (windows), T tokens, D hidden, C answer types (yes, no, unknown), N number classes,
O option classes, K starts looked at, E ends looked at for each start; in groups V variants, S subjects, and E
the two boundaries.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from models.backbones import RANDOM, Backbone, load_pretrained
from models.heads.answer_base import AnswerOutput, AnswerPrediction, AnswerQAModel
from models.heads.answer_heads import TYPES, ClsSource, RationaleHeads
from models.heads.qa_model import QAModel
from models.heads.span import best_spans, candidate_log_probs
from models.heads.xlnet import XLNetQAModel

if TYPE_CHECKING:
    from transformers import PreTrainedModel

log = logging.getLogger(__name__)

AnswerHeadsName = Literal["rationale", "xlnet"]


class RationaleQAModel(AnswerQAModel):
    """Span head and rationale heads; yes, no, unknown and all positions share one softmax per boundary.

    Source: faithfulness spec 2.1.
    """

    heads: ClassVar[str] = "rationale"

    def __init__(
        self, pretrained: PreTrainedModel, architecture: str, *, cls_source: ClsSource = "hidden"
    ) -> None:
        super().__init__(pretrained, architecture)
        self.cls_source: ClsSource = cls_source
        self.answer_heads = RationaleHeads(
            self.config.hidden_size, initializer_range=self.initializer_range, cls_source=cls_source
        )

    @property
    def head_options(self) -> dict[str, Any]:
        return {"cls_source": self.cls_source}

    def answer_output(
        self,
        hidden_BTD: Tensor,
        mask_BT: Tensor,
        cls_B: Tensor,
        start_B: Tensor | None,
        answerable_BT: Tensor,
    ) -> AnswerOutput:
        start_BT, end_BT = self.span_head(hidden_BTD, mask_BT)
        type_BC, rationale_BT = self.answer_heads(hidden_BTD, mask_BT, cls_B)
        return AnswerOutput(start_BT, end_BT, type_BC, rationale_BT, None, None, hidden_BTD)

    def group_log_probs(self, inputs: Mapping[str, Tensor], candidate_BVSE: Tensor) -> Tensor:
        """As for `QAModel`, out of the softmax that yes, no and unknown share with the positions."""
        output = self(inputs)
        start_RS, end_RS = (candidate_BVSE.flatten(0, 1) + TYPES).unbind(-1)
        log_prob_RSE = candidate_log_probs(
            torch.cat((output.type_BC, output.start_BT), dim=1),
            torch.cat((output.type_BC, output.end_BT), dim=1),
            start_RS,
            end_RS,
        )
        return log_prob_RSE.unflatten(0, candidate_BVSE.shape[:2])

    def predict_answers(
        self,
        inputs: Mapping[str, Tensor],
        context_BT: Tensor,
        start_allowed_BT: Tensor,
        cls_B: Tensor,
        max_answer_tokens: int,
    ) -> AnswerPrediction:
        output = self(inputs, cls_B)
        start_B, end_B, score_B = best_spans(
            output.start_BT, output.end_BT, context_BT, max_answer_tokens, start_allowed_BT
        )
        return AnswerPrediction(start_B, end_B, score_B, 2 * output.type_BC, None, None, None, None)


MODELS: dict[str, Callable[..., QAModel]] = {
    QAModel.heads: QAModel,
    RationaleQAModel.heads: RationaleQAModel,
    XLNetQAModel.heads: XLNetQAModel,
}
"""The class of each kind of heads: (pretrained, architecture, **head_options) -> model."""


def build_answer_model(
    backbone: Backbone, heads: AnswerHeadsName, *, cls_source: ClsSource = "hidden"
) -> AnswerQAModel:
    """The model with answer heads that training starts from.

    Weights that `backbone.checkpoint` does not hold start random, from torch's global seed: of a Hugging Face
    model and of a plain QA checkpoint of ours the answer heads; of our checkpoints with the same heads none.

    Args:
        backbone: encoder and starting weights.
        heads: which heads.
        cls_source: see `RationaleHeads`; a pooler starts from the pretrained one where there is one. XLNet's
            heads do not look at it.

    Raises:
        CheckpointError, BackboneError: nothing usable is there, or it has other heads.
    """
    options = {"cls_source": cls_source} if heads == "rationale" else {}
    if Path(backbone.checkpoint).suffix == ".ckpt":
        from models.checkpoint import starting_answer_model  # it knows all models, hence not at the top

        model = starting_answer_model(backbone, heads, options)
    else:
        model = MODELS[heads](load_pretrained(backbone), backbone.architecture, **options)
        if isinstance(model, RationaleQAModel) and backbone.checkpoint != RANDOM:
            model.answer_heads.take_pooler(backbone.checkpoint)
        log.info("%s: answer heads (%s) start random", backbone.checkpoint, heads)
    assert isinstance(model, AnswerQAModel)
    return model
