"""The table of models that can be fine-tuned, one row per architecture, and the part below the
heads that all models share. A row contains only what transformers does not provide.

Shape letters: B batch (rows), T tokens, D hidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

# transformers is imported where a model is built, because it takes seconds and printing a
# configuration does not need it. (mypy treats MYPY as true; jsonargparse would execute a block
# under TYPE_CHECKING.)
MYPY = False
if MYPY:
    from transformers import PreTrainedConfig, PreTrainedModel

EncoderName = Literal[
    "bert", "roberta", "xlnet", "distilbert", "electra", "deberta-v3", "modernbert"
]
DecoderName = Literal["llama", "qwen2", "qwen3", "gpt2", "causal"]
ArchitectureName = Literal[EncoderName, DecoderName]
FrozenWeights = Literal["float32", "bfloat16"]
Inputs = Mapping[str, Tensor]
"""`input_ids`, `attention_mask` and `token_type_ids`, each (B, T)."""

RANDOM = "random"
"""The checkpoint name for random weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One row of the table."""

    model_type: str
    """transformers' `config.model_type`."""
    span_head: tuple[str, ...] = ("qa_outputs",)
    """Modules of the question-answering class that turn hidden states (B, T, D) into logits (B, T,
    2).
    """
    segments: bool = True
    """Whether the encoder takes `token_type_ids`; tokenizers are wrong about XLNet and
    DistilBERT.
    """
    tiny: dict[str, Any] = field(default_factory=dict)
    """Sizes of a small random model, by the architecture's configuration keys."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Configuration values for every model of this architecture."""
    causal: bool = False
    """Whether it is a decoder, which scores texts after a prompt (models/heads/causal.py)."""


_TINY = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 256,
}
_TINY_DECODER = _TINY | {"num_key_value_heads": 2}

ARCHITECTURES: dict[str, Architecture] = {
    "bert": Architecture(model_type="bert", tiny=_TINY),
    # RoBERTa counts positions from padding_idx + 1, hence the two extra rows.
    "roberta": Architecture(
        model_type="roberta", segments=False, tiny=_TINY | {"max_position_embeddings": 514}
    ),
    # Memories of earlier segments are meaningless for independent questions.
    "xlnet": Architecture(
        model_type="xlnet",
        tiny={"d_model": 128, "n_layer": 2, "n_head": 4, "d_inner": 256},
        settings={"use_mems_eval": False, "use_mems_train": False},
    ),
    "distilbert": Architecture(
        model_type="distilbert",
        span_head=("dropout", "qa_outputs"),
        segments=False,
        tiny={"dim": 128, "n_layers": 2, "n_heads": 4, "hidden_dim": 256},
    ),
    "electra": Architecture(model_type="electra", tiny=_TINY | {"embedding_size": 128}),
    "deberta-v3": Architecture(model_type="deberta-v2", tiny=_TINY),
    "modernbert": Architecture(
        model_type="modernbert",
        span_head=("head", "drop", "classifier"),
        segments=False,
        tiny=_TINY,
    ),
    "llama": Architecture(model_type="llama", tiny=_TINY_DECODER, causal=True),
    "qwen2": Architecture(model_type="qwen2", tiny=_TINY_DECODER, causal=True),
    "qwen3": Architecture(model_type="qwen3", tiny=_TINY_DECODER | {"head_dim": 32}, causal=True),
    "gpt2": Architecture(
        model_type="gpt2", tiny={"n_embd": 128, "n_layer": 2, "n_head": 4}, causal=True
    ),
    # Any other causal language model, by the transformers model type of its checkpoint.
    "causal": Architecture(model_type="", causal=True),
}


@dataclass(kw_only=True)
class Backbone:
    """Backbone: the model to fine-tune, and its starting weights.

    Args:
        architecture: The model's architecture; `causal` is any other decoder.
        checkpoint: A Hub name, a Hugging Face folder, a folder of a peft adapter (it is merged into
            its base), a `.ckpt` of an earlier run, or `random`. A model that was fine-tuned for
            extractive QA keeps its span head.
        tokenizer: Hub name or folder of another tokenizer, or `stories`, the words of the built-in
            stories.
        config: Values that replace those of the checkpoint's transformers configuration.
        gradient_checkpointing: Recompute activations in the backward pass to save memory.
        compile: Compile the layers if there is a GPU, for faster steps; this takes seconds at the
            start.
        reading_init: Initialise random weights so that small models learn to read
            (models/tiny_init.py).
        lora_rank: Train LoRA adapters of this rank (scale 2) on every linear layer, and the heads;
            0: train all weights.
        frozen_weights: Precision of frozen weights (`trainer.precision=bf16-true` sets bfloat16).
            Trained weights and optimizer states are float32.
    """

    architecture: ArchitectureName
    checkpoint: str
    tokenizer: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    gradient_checkpointing: bool = False
    compile: bool = False
    reading_init: bool = False
    lora_rank: int = 0
    frozen_weights: FrozenWeights = "float32"

    @property
    def causal(self) -> bool:
        """Whether it is a decoder."""
        return ARCHITECTURES[self.architecture].causal


H = TypeVar("H", bound=nn.Module)


class EncoderModel(nn.Module):
    """The encoder of a transformers model, which may have a head; subclasses add their own heads.
    `architecture` is its row of the table."""

    heads: ClassVar[str]
    """The name of its heads in checkpoints."""
    starts_from: ClassVar[tuple[str, ...]] = ()
    """Other heads from whose checkpoints it can start: it takes over the encoder and, except for
    `choice`, the span head.
    """

    def __init__(self, pretrained: PreTrainedModel, architecture: str) -> None:
        super().__init__()
        self.architecture = architecture
        self.adapter: dict[str, Any] = {}
        """The LoRA adapter, see `models/adapters.py`; empty without one."""
        self.encoder: PreTrainedModel = pretrained.base_model
        row = ARCHITECTURES[architecture]
        self.segments = row.segments and not row.causal

    @property
    def head_options(self) -> dict[str, Any]:
        """Return the constructor's keyword arguments that a checkpoint must record, as plain
        values.
        """
        return {}

    @property
    def max_tokens(self) -> int | None:
        """Return the longest row that the position table allows; None for relative positions."""
        positions = getattr(self.config, "max_position_embeddings", None)
        # DeBERTa-v3 configures a table that it does not use.
        unused = not getattr(self.config, "position_biased_input", True)
        if positions is None or self.architecture == "xlnet" or unused:
            return None
        # RoBERTa counts positions from padding_idx + 1.
        return (
            positions - self.config.pad_token_id - 1
            if self.architecture == "roberta"
            else positions
        )

    @property
    def config(self) -> PreTrainedConfig:
        return self.encoder.config

    def fresh(self, head: H, generator: torch.Generator | None = None) -> H:
        """Reinitialise a head's linear weights as the configuration specifies; biases become 0."""
        for layer in head.modules():
            if isinstance(layer, nn.Linear):
                std = getattr(self.config, "initializer_range", 0.02)
                nn.init.normal_(layer.weight, std=std, generator=generator)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
        return head

    def encode(self, inputs: Inputs) -> Tensor:
        """Last hidden states (B, T, D) of the encoder; segment ids are passed only if it takes
        them.
        """
        return self._for_heads(self.encoder.base_model(**self._taken(inputs)).last_hidden_state)

    def hidden_states(self, inputs: Inputs) -> tuple[Tensor, ...]:
        """Hidden states (B, T, D) of the embeddings and of every layer; the last equal those of
        `encode`.
        """
        output = self.encoder.base_model(**self._taken(inputs), output_hidden_states=True)
        # Some encoders apply another normalisation or dropout after the last layer.
        return (*output.hidden_states[:-1], self._for_heads(output.last_hidden_state))

    def _for_heads(self, hidden_BTD: Tensor) -> Tensor:
        """In float32 above frozen weights that may be in less: heads that are trained
        are float32.
        """
        return hidden_BTD.float() if self.adapter else hidden_BTD

    def _taken(self, inputs: Inputs) -> dict[str, Any]:
        """What the layers below the heads take."""
        return {
            name: value
            for name, value in inputs.items()
            if self.segments or name != "token_type_ids"
        }


def encoder_layers(encoder: nn.Module) -> list[nn.Module]:
    """The repeated layers: the longest list of modules."""
    lists = [part for part in encoder.modules() if isinstance(part, nn.ModuleList)]
    return list(max(lists, key=len, default=[]))


def pick_device(name: str) -> torch.device:
    """Return a device by name; `auto` is a GPU if present. ValueError if torch cannot
    use it here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:  # the latter if torch was built without CUDA
        reason = str(error).splitlines()[0]
        reason = (
            "choose auto, cpu, cuda, cuda:1, ..."
            if reason.startswith("Expected one of")
            else reason
        )
        raise ValueError(f"--device {name}: {reason}") from error
    return torch.device(name)
