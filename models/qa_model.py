"""Encoder plus span head: tensors in, a typed output out.

Shape letters: B batch (rows, or groups where there are variants), T tokens, D hidden, V variants of a
group, S subjects, E the two boundaries (start, end).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from torch import Tensor, nn

from models.backbones import ARCHITECTURES, Backbone, load_pretrained
from models.heads import SpanHead, best_spans, candidate_log_probs

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


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


class QAModel(nn.Module):
    """An encoder with a span head.

    Takes transformers' question-answering model apart, so that further heads can stand beside the span
    head, and puts it together again in `to_pretrained`.
    """

    heads: ClassVar[str] = "span"
    """Which heads it has, by the name that checkpoints record."""

    def __init__(self, pretrained: PreTrainedModel, architecture: str) -> None:
        super().__init__()
        self.architecture = architecture
        self.encoder: PreTrainedModel = pretrained.base_model
        row = ARCHITECTURES[architecture]
        self.segments = row.segments
        self.span_head = SpanHead(getattr(pretrained, name) for name in row.span_head)

    @classmethod
    def from_backbone(cls, backbone: Backbone) -> QAModel:
        """Build from a configuration row; see `Backbone` for where weights come from."""
        return cls(load_pretrained(backbone), backbone.architecture)

    @property
    def head_options(self) -> dict[str, Any]:
        """Keyword arguments of the constructor that a checkpoint has to record, as plain values."""
        return {}

    @property
    def max_tokens(self) -> int | None:
        """The longest row that the position table allows; None where positions are relative."""
        positions = getattr(self.config, "max_position_embeddings", None)
        if positions is None or self.architecture == "xlnet":
            return None
        # RoBERTa counts positions from padding_idx + 1.
        return positions - self.config.pad_token_id - 1 if self.architecture == "roberta" else positions

    @property
    def config(self) -> PreTrainedConfig:
        """transformers' configuration of the encoder."""
        return self.encoder.config

    def forward(self, inputs: Mapping[str, Tensor]) -> QAOutput:
        """Encode a padded batch.

        Args:
            inputs: `input_ids`, `attention_mask` and `token_type_ids`, each (B, T); an encoder without
                segments does not get the last.
        """
        hidden_BTD = self.encode(inputs)
        start_BT, end_BT = self.span_head(hidden_BTD, inputs["attention_mask"])
        return QAOutput(start_BT, end_BT, hidden_BTD)

    def encode(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Last hidden states (B, T, D) of the encoder."""
        return self.encoder(**self._taken(inputs)).last_hidden_state

    def hidden_states(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Hidden states (B, T, D) of the embeddings and of every layer; the last are those of `forward`."""
        output = self.encoder(**self._taken(inputs), output_hidden_states=True)
        # Some encoders normalise or drop out once more after the last layer.
        return (*output.hidden_states[:-1], output.last_hidden_state)

    def _taken(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: value for name, value in inputs.items() if self.segments or name != "token_type_ids"}

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
