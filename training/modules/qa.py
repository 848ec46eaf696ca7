"""Fine-tune a model on questions, and evaluate questions, groups and pairs of stories.

Answers are spans, or also yes, no and unknown: original training (OT) and intervention-based
training (IBT), which differ only in their data (`data.interventions.train`).

Shape letters: B batch (windows), T tokens, V variants of a group (4), S subjects (2), E boundaries
(start, end), P common tokens of pairs, L layers.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from jsonargparse.typing import ClosedUnitInterval, NonNegativeFloat, NonNegativeInt
from torch import Tensor

from interventune.data_modules.batching.candidates import GroupBatch, GroupSet
from interventune.data_modules.batching.data_module import TrainBatch
from interventune.data_modules.batching.decoding import (
    decode_answers,
    decode_typed_answers,
    written_answers,
)
from interventune.data_modules.batching.pair_set import PairBatch
from interventune.data_modules.batching.sets import QABatch, QASet
from interventune.data_modules.encoding.prompts import PromptTokens
from interventune.data_modules.schema.questions import Answer
from interventune.losses.answers import (
    Losses,
    joint_answer_loss,
    rationale_tagging_loss,
    span_cross_entropy,
    written_answer_loss,
    xlnet_answer_loss,
)
from interventune.metrics.shift import pair_cosines
from interventune.models.backbones import Backbone
from interventune.models.heads.answers import RationaleModel, Tagged, XLNetModel, XLNetOutput
from interventune.models.heads.causal import CausalModel
from interventune.models.heads.span import QAModel, SpanModel
from interventune.models.loading import start

from .fine_tuning import FineTuning

log = logging.getLogger(__name__)

RATIONALE_WEIGHT = 5.0
"""Weight of the tagging loss relative to the answer loss, as in the authors' code."""


class QAModule(FineTuning):
    """Extractive question answering: cross-entropy of the answer's start and end.

    Args:
        backbone: Architecture and starting weights; set by the top-level `backbone`.
        learning_rate: Highest learning rate; it then falls linearly to 0.
        weight_decay: AdamW's weight decay; biases and normalisation weights are not decayed.
        warmup_ratio: Share of all steps in which the learning rate rises from 0.
    """

    model: SpanModel | CausalModel | RationaleModel | XLNetModel

    def __init__(
        self,
        *,
        backbone: Backbone,
        learning_rate: NonNegativeFloat = 3e-5,
        weight_decay: NonNegativeFloat = 0.01,
        warmup_ratio: ClosedUnitInterval = 0.1,
    ) -> None:
        super().__init__(
            self.starting_model(backbone),
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            warmup_ratio=warmup_ratio,
        )
        if backbone.causal:
            self.mean_over["span"] = ["answer"]

    def starting_model(self, backbone: Backbone) -> QAModel:
        """Return the model that training starts from; a module with other heads overrides this."""
        return start(backbone, CausalModel) if backbone.causal else start(backbone, SpanModel)

    def check_data(self, stage: str) -> None:
        """ValueError for multiple-choice questions, and for training questions that a span cannot
        answer.
        """
        data = self.datamodule
        if "choices" in data.kinds:
            raise ValueError(
                "data: ChoicesDataModule needs ChoiceModule (experiment multiple_choice)"
            )
        qa: QASet | None = data.train_set.qa if stage == "fit" else None
        if qa is None or self.model.heads != "span":
            return
        for name, kind in zip(qa.column("id"), qa.column("kind"), strict=True):
            if kind in ("yes", "no"):
                raise ValueError(
                    f"data.train_qa: {name} is answered by {kind}, which a span head cannot say; "
                    "train with interventune.training.modules.qa.AnswerModule (experiments "
                    "coqa_ot, ...)"
                )

    @property
    def training_groups(self) -> GroupSet:
        """The groups to train on; ValueError if there are none."""
        groups: GroupSet | None = self.datamodule.train_set.groups
        if groups is None:
            raise ValueError(f"data.train_groups: {type(self).__name__} needs groups to train on")
        return groups

    def losses(self, batch: TrainBatch) -> Losses:
        """Return the losses of questions by name, means in nats: the cross-entropy of the gold
        span's start and end, or of the tokens that a decoder writes; of rationale heads the answer
        loss and the rationale loss, of XLNet's heads seven terms. ValueError without questions.
        """
        qa = batch.qa
        if qa is None:
            raise ValueError(
                "data.train_qa: a batch without questions came; name some, with data.qa_every=1"
            )
        if isinstance(self.model, CausalModel):
            total_B = self.model.answer_likelihoods(qa.inputs, qa.start_B, qa.end_B)
            return {"span": written_answer_loss(total_B, qa.end_B - qa.start_B + 1)}
        if isinstance(self.model, SpanModel):
            start_BT, end_BT = self.model(qa.inputs)
            return {"span": span_cross_entropy(start_BT, end_BT, qa.start_B, qa.end_B)}
        answers = qa.start_B, qa.end_B, qa.answer_type_B
        if isinstance(self.model, RationaleModel):
            start_BT, end_BT, type_BC, rationale_BT = self.model(qa.inputs, qa.context_BT)
            tagged_BT = self.model.tagged_tokens(qa.inputs, qa.context_BT)
            return {
                "answer": joint_answer_loss(start_BT, end_BT, type_BC, *answers),
                "rationale": rationale_tagging_loss(rationale_BT, qa.rationale_BT, tagged_BT),
            }
        output: XLNetOutput = self.model(qa.inputs, qa.context_BT, qa.start_B)
        return xlnet_answer_loss(*output[:5], *answers, qa.number_B, qa.option_B)

    def group_log_probs(self, batch: GroupBatch) -> Tensor:
        """Boundary log-probabilities (B, V, S, E) of the two subjects in all variants; for a
        decoder log S, and E is 1.
        """
        return self.model.group_log_probs(batch.inputs, batch.context_BT, batch.candidate_BVSE)

    def decode(self, data: QASet, batch: QABatch, outputs: Mapping[str, Any]) -> Iterator[Answer]:
        """Yield the answers of a batch, from the output of `validation_step`."""
        if "texts" in outputs:
            return written_answers(data, batch.feature_B, outputs["texts"])
        if "answers" in outputs:
            return decode_typed_answers(data, batch, *outputs["answers"])
        return decode_answers(data, batch, *outputs["spans"])

    def validation_step(
        self, batch: QABatch | GroupBatch | PairBatch, batch_idx: int, dataloader_idx: int = 0
    ) -> dict[str, Any]:
        """Return predictions for the callbacks: of questions, groups, or pairs of stories."""
        if isinstance(batch, GroupBatch):
            log_prob_BVSE = self.group_log_probs(batch)
            return {"log_prob_BVSE": log_prob_BVSE, "score_BVS": log_prob_BVSE.mean(-1).exp()}
        if isinstance(batch, PairBatch):
            return self.pair_step(batch)
        if isinstance(self.model, CausalModel):
            tokens = PromptTokens(self.datamodule.tokenizer, self.encoding.prompts.chat)
            return {"texts": self.model.write(batch.inputs, batch.start_B, tokens)}
        if isinstance(self.model, SpanModel):
            return {"spans": self.model.predict_spans(batch.inputs, batch.context_BT)}
        places = batch.context_BT, batch.max_context_BT
        return {"answers": self.model.predict_answers(batch.inputs, *places)}

    def pair_step(self, batch: PairBatch) -> dict[str, Any]:
        """Return cosine similarities of pairs, from the last layer."""
        # In float32 for any training precision: bfloat16 keeps three digits of a state, and cosines
        # are close to 1.
        with torch.autocast(batch.row_P.device.type, enabled=False):
            original = self.model.hidden_states(batch.original.inputs)[-1:]
            variant = self.model.hidden_states(batch.variant.inputs)[-1:]
        cls_cos_BL, token_cos_PL = pair_cosines(original, variant, batch)
        return {"cls_cos_BL": cls_cos_BL, "token_cos_PL": token_cos_PL}


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
