"""Encoder plus span head: tensors in, a typed output out.

Shape letters: B batch (rows, or groups where there are variants), T tokens, D hidden, V variants of a
group, S subjects, E the two boundaries (start, end).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from torch import Tensor

from models.backbones import ARCHITECTURES, Backbone, load_pretrained
from models.heads.encoder import EncoderModel
from models.heads.span import SpanHead, best_spans, candidate_log_probs

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class QAOutput(NamedTuple):
    """What a QA model says about a batch."""

    start_BT: Tensor
    """Logits of the first answer token, float32, lowest finite number at padding."""
    end_BT: Tensor
    """Logits of the last answer token, likewise."""
    hidden_BTD: Tensor
    """Last hidden states of the encoder."""


class SpanPrediction(NamedTuple):
    """The best span of every row."""

    start_B: Tensor
    end_B: Tensor
    score_B: Tensor
    """Start + end logit of the span."""
    null_B: Tensor
    """The same for "no answer": start + end logit of the classification token."""


class QAModel(EncoderModel):
    """An encoder with a span head.

    Takes transformers' question-answering model apart, so that further heads can stand beside the span
    head, and puts it together again in `to_pretrained`.
    """

    heads: ClassVar[str] = "span"

    def __init__(self, pretrained: PreTrainedModel, architecture: str) -> None:
        super().__init__(pretrained, architecture)
        names = ARCHITECTURES[architecture].span_head
        self.span_head = SpanHead(getattr(pretrained, name) for name in names)

    @classmethod
    def from_backbone(cls, backbone: Backbone) -> QAModel:
        """Build from a configuration row; see `Backbone` for where weights come from."""
        return cls(load_pretrained(backbone), backbone.architecture)

    def forward(self, inputs: Mapping[str, Tensor]) -> QAOutput:
        """Encode a padded batch.

        Args:
            inputs: `input_ids`, `attention_mask` and `token_type_ids`, each (B, T); an encoder without
                segments does not get the last.
        """
        hidden_BTD = self.encode(inputs)
        start_BT, end_BT = self.span_head(hidden_BTD, inputs["attention_mask"])
        return QAOutput(start_BT, end_BT, hidden_BTD)

    def group_log_probs(self, inputs: Mapping[str, Tensor], candidate_BVSE: Tensor) -> Tensor:
        """Boundary log-probabilities (B, V, S, E) of the subjects of whole groups.

        Args:
            inputs: as in `forward`, with B * V rows, the variants of a group one after the other.
            candidate_BVSE: first and last token of each subject.
        """
        output = self(inputs)
        start_RS, end_RS = candidate_BVSE.flatten(0, 1).unbind(-1)
        log_prob_RSE = candidate_log_probs(output.start_BT, output.end_BT, start_RS, end_RS)
        return log_prob_RSE.unflatten(0, candidate_BVSE.shape[:2])

    def predict_spans(
        self, inputs: Mapping[str, Tensor], context_BT: Tensor, cls_B: Tensor, max_answer_tokens: int
    ) -> SpanPrediction:
        """The best span of every row, by start + end logit.

        Args:
            inputs: as in `forward`.
            context_BT: True where an answer may stand.
            cls_B: where the classification token stands.
            max_answer_tokens: longest answer.
        """
        output = self(inputs)
        start_B, end_B, score_B = best_spans(output.start_BT, output.end_BT, context_BT, max_answer_tokens)
        cls_B1 = cls_B.unsqueeze(-1)
        null_B = (output.start_BT.gather(1, cls_B1) + output.end_BT.gather(1, cls_B1)).squeeze(-1)
        return SpanPrediction(start_B, end_B, score_B, null_B)

    def to_pretrained(self) -> PreTrainedModel:
        """The same weights as transformers' own question-answering class, ready for `save_pretrained`.

        The modules are shared, not copied.
        """
        from transformers import AutoModelForQuestionAnswering

        pretrained = AutoModelForQuestionAnswering.from_config(self.config)
        setattr(pretrained, pretrained.base_model_prefix, self.encoder)
        names = ARCHITECTURES[self.architecture].span_head
        for name, layer in zip(names, self.span_head.layers, strict=True):
            setattr(pretrained, name, layer)
        return pretrained
