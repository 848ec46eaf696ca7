"""An encoder out of the table of backbones: what every model has below its heads.

Shape letters: B batch (rows), T tokens, D hidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from models.backbones import ARCHITECTURES

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


class EncoderModel(nn.Module):
    """The encoder of transformers' model; subclasses put heads on it.

    Args:
        pretrained: a model of transformers, with a head or without.
        architecture: row of the table of backbones.
    """

    heads: ClassVar[str]
    """Which heads it has, by the name that checkpoints record."""
    purpose: ClassVar[str]
    """What it does, for errors: the checkpoint ..."""

    def __init__(self, pretrained: PreTrainedModel, architecture: str) -> None:
        super().__init__()
        self.architecture = architecture
        self.encoder: PreTrainedModel = pretrained.base_model
        self.segments = ARCHITECTURES[architecture].segments

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

    @property
    def initializer_range(self) -> float:
        """Standard deviation of fresh weights, by the encoder's configuration."""
        return float(getattr(self.config, "initializer_range", 0.02))

    def encode(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Last hidden states (B, T, D) of the encoder.

        Args:
            inputs: `input_ids`, `attention_mask` and `token_type_ids`, each (B, T); an encoder without
                segments does not get the last.
        """
        return self.encoder(**self._taken(inputs)).last_hidden_state

    def hidden_states(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Hidden states (B, T, D) of the embeddings and of every layer; the last are those of `encode`."""
        output = self.encoder(**self._taken(inputs), output_hidden_states=True)
        # Some encoders normalise or drop out once more after the last layer.
        return (*output.hidden_states[:-1], output.last_hidden_state)

    def _taken(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: value for name, value in inputs.items() if self.segments or name != "token_type_ids"}
