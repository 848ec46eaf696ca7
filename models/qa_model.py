"""Encoder plus span head: tensors in, a typed output out.

Shape letters: B batch (rows), T tokens, D hidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor, nn
from transformers import AutoModelForQuestionAnswering, PreTrainedConfig, PreTrainedModel

from models.backbones import ARCHITECTURES, Backbone, load_pretrained
from models.heads import SpanHead


class QAOutput(NamedTuple):
    """What a QA model says about a batch."""

    start_BT: Tensor
    """Logits of the first answer token, float32, lowest finite number at padding."""
    end_BT: Tensor
    """Logits of the last answer token, likewise."""
    hidden_BTD: Tensor
    """Last hidden states of the encoder."""


class QAModel(nn.Module):
    """An encoder with a span head.

    Takes transformers' question-answering model apart, so that further heads can stand beside the span
    head, and puts it together again in `to_pretrained`.
    """

    def __init__(self, pretrained: PreTrainedModel, architecture: str) -> None:
        super().__init__()
        self.architecture = architecture
        self.encoder: PreTrainedModel = pretrained.base_model
        names = ARCHITECTURES[architecture].span_head
        self.span_head = SpanHead(getattr(pretrained, name) for name in names)

    @classmethod
    def from_backbone(cls, backbone: Backbone) -> QAModel:
        """Build from a configuration row; see `Backbone` for where weights come from."""
        return cls(load_pretrained(backbone), backbone.architecture)

    @property
    def config(self) -> PreTrainedConfig:
        """transformers' configuration of the encoder."""
        return self.encoder.config

    def forward(self, inputs: Mapping[str, Tensor]) -> QAOutput:
        """Encode a padded batch.

        Args:
            inputs: `input_ids`, `attention_mask` and, where the architecture has them, `token_type_ids`;
                each (B, T).
        """
        hidden_BTD = self.encoder(**inputs).last_hidden_state
        start_BT, end_BT = self.span_head(hidden_BTD, inputs["attention_mask"])
        return QAOutput(start_BT, end_BT, hidden_BTD)

    def to_pretrained(self) -> PreTrainedModel:
        """The same weights as transformers' own question-answering class, ready for `save_pretrained`.

        The modules are shared, not copied.
        """
        pretrained = AutoModelForQuestionAnswering.from_config(self.config)
        setattr(pretrained, pretrained.base_model_prefix, self.encoder)
        names = ARCHITECTURES[self.architecture].span_head
        for name, layer in zip(names, self.span_head.layers, strict=True):
            setattr(pretrained, name, layer)
        return pretrained
