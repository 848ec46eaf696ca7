"""Fine-tune a model that answers with a span, yes, no or unknown: original training (OT) and
intervention-based training (IBT), which differ only in their data (`data.interventions.train`).

Shape letters: B batch (windows), T tokens, C answer types (yes, no, unknown).
"""

import logging
from typing import Any

from jsonargparse.typing import ClosedUnitInterval, NonNegativeFloat, NonNegativeInt
from torch import Tensor

from interventune.data_modules.batching.data_module import TrainBatch
from interventune.data_modules.batching.sets import QABatch
from interventune.losses.answers import joint_answer_loss, rationale_tagging_loss, xlnet_answer_loss
from interventune.models.backbones import Backbone
from interventune.models.heads.answers import (
    RationaleModel,
    RationaleOutput,
    Tagged,
    XLNetModel,
    XLNetOutput,
)
from interventune.models.heads.span import QAModel
from interventune.models.loading import start

from .qa import QAModule, questions_of

log = logging.getLogger(__name__)

RATIONALE_WEIGHT = 5.0
"""Weight of the tagging loss relative to the answer loss, as in the authors' code."""


class AnswerModule(QAModule):
    """Answers that are a span, yes, no or unknown, with the rationale tagged as well.

    The heads of encoders are `rationale`, which tag the rationale and attend over the tagged states
    (the papers' BERT and RoBERTa); XLNet's are `xlnet`, its span heads with unknown, yes, no,
    number and option. A decoder has none: it learns to write yes, no, unknown or the answer.

    Args:
        backbone: Architecture and starting weights; set by the top-level `backbone`. A `.ckpt` of a
            plain QA model keeps its span head.
        tagged: Tokens that the `rationale` heads tag and attend over: those of the story (the
            paper's equations), or all but padding (the authors' code).
        learning_rate: Highest learning rate; null is the paper's, 3e-5, for RoBERTa 1e-5.
        weight_decay: AdamW's weight decay; biases and normalisation weights are not decayed.
        warmup_steps: Steps in which the learning rate rises from 0; null: see `warmup_ratio`.
        warmup_ratio: The same as a share of all steps; if both are null, the paper's 2000 steps
            (XLNet 3000).
    """

    model: RationaleModel | XLNetModel
    """Used unless there is a `decoder`."""
    weights = {"rationale": RATIONALE_WEIGHT}  # noqa: RUF012

    def __init__(
        self,
        *,
        backbone: Backbone,
        tagged: Tagged = "story",
        learning_rate: NonNegativeFloat | None = None,
        weight_decay: NonNegativeFloat = 0.01,
        warmup_steps: NonNegativeInt | None = None,
        warmup_ratio: ClosedUnitInterval | None = None,
    ) -> None:
        self.tagged = tagged
        if learning_rate is None:
            learning_rate = 1e-5 if backbone.architecture == "roberta" else 3e-5
        super().__init__(
            backbone=backbone,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            warmup_ratio=warmup_ratio or 0.0,
        )
        self.mean_over["rationale"] = [tagged]
        if warmup_steps is None and warmup_ratio is None:
            warmup_steps = 3000 if backbone.architecture == "xlnet" else 2000
        self.fixed_warmup = warmup_steps

    def starting_model(self, backbone: Backbone) -> QAModel:
        """Return encoder, span head and the heads for answer types; or a decoder."""
        if backbone.causal:
            return super().starting_model(backbone)
        if backbone.architecture == "xlnet":
            return start(backbone, XLNetModel)
        return start(backbone, RationaleModel, tagged=self.tagged)

    def warmup_steps(self, total: int) -> int:
        """Return the configured number or share, or the paper's number; warn if the run has no more
        steps.
        """
        if self.fixed_warmup is None:
            return super().warmup_steps(total)
        if self.fixed_warmup >= total:
            log.warning(
                "the run has %d steps, but its warm-up %d, so it never reaches "
                "model.learning_rate; set model.warmup_steps, or model.warmup_ratio=0.1",
                *(total, self.fixed_warmup),
            )
        return self.fixed_warmup

    def losses(self, step: TrainBatch) -> dict[str, Tensor]:
        """Return the answer loss and the rationale loss; of XLNet's heads seven terms; a decoder's
        loss.
        """
        if self.decoder is not None:
            return super().losses(step)
        batch = questions_of(step)
        spans = batch.start_B, batch.end_B, batch.answer_type_B
        if isinstance(self.model, RationaleModel):
            output: RationaleOutput = self.model(batch.inputs, batch.context_BT)
            tagged_BT = self.model.tagged_tokens(batch.inputs, batch.context_BT)
            rationale = output.rationale_BT, batch.rationale_BT, tagged_BT
            return {
                "answer": joint_answer_loss(*output[:3], *spans),
                "rationale": rationale_tagging_loss(*rationale),
            }
        scores: XLNetOutput = self.model(batch.inputs, batch.context_BT, batch.start_B)
        return xlnet_answer_loss(*scores[:5], *spans, batch.number_B, batch.option_B)

    def answer_step(self, batch: QABatch) -> dict[str, Any]:
        """Return the scores of every window."""
        if self.decoder is not None:
            return super().answer_step(batch)
        places = batch.context_BT, batch.max_context_BT
        return {"answers": self.model.predict_answers(batch.inputs, *places)}
