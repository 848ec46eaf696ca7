"""The models that can be fine-tuned (backbones.yaml), and the part below the heads that all models
share.

Shape letters: B batch (rows), T tokens, D hidden.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

from interventune.storage.documents import DataError, Values, own_yaml

Pretrained = Any
"""A model of transformers, which is imported where one is built: it takes seconds, and printing a
configuration does not need it.
"""
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

WEIGHT_STD = 0.1
"""Of `reading_init_`: standard deviation of linear weights, larger than transformers' 0.02, because
two layers amplify little.
"""
WORD_STD = 0.5
WORD_STD_ON_POSITION_AXES = 0.1
POSITION_AXES = 32
POSITION_BASE = 64.0
"""Number of first axes for positions; wavelengths up to 2 pi * 64, the length of a story."""
HEAD_GAINS = (0.5, 1.2, 1.2, 0.0)
"""Multiples of the identity in W_Q W_K, one per head, repeated for more heads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A row of backbones.yaml: what transformers does not provide of an architecture."""

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
    tiny: Values = field(default_factory=dict)
    """Sizes of a small random model, by the architecture's configuration keys."""
    settings: Values = field(default_factory=dict)
    """Configuration values for every model of this architecture."""
    causal: bool = False
    """Whether it is a decoder, which scores texts after a prompt (models/heads/causal.py)."""


ARCHITECTURES = own_yaml(__file__, dict[str, Architecture])


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
            (models/backbones.py).
        lora_rank: Train LoRA adapters of this rank (scale 2) on every linear layer, and the heads;
            0: train all weights.
        frozen_weights: Precision of frozen weights (`trainer.precision=bf16-true` sets bfloat16).
            Trained weights and optimizer states are float32.
    """

    architecture: ArchitectureName
    checkpoint: str
    tokenizer: str = ""
    config: Values = field(default_factory=dict)
    gradient_checkpointing: bool = False
    compile: bool = False
    reading_init: bool = False
    lora_rank: int = 0
    frozen_weights: FrozenWeights = "float32"

    @property
    def causal(self) -> bool:
        """Whether it is a decoder."""
        return ARCHITECTURES[self.architecture].causal


def architecture_of(config: Any, path: str, class_name: str) -> Any:
    """Return the row of ARCHITECTURES of a model, by its configuration and the name of its class.
    DataError, which names `path`, for another architecture.
    """
    for name, row in ARCHITECTURES.items():
        if row.model_type == config.model_type:
            return name
    if class_name.endswith(("ForCausalLM", "LMHeadModel")):
        return "causal"
    if config.is_encoder_decoder:
        raise DataError(
            f"{path}: is a sequence-to-sequence model; name it as a language model, hf:{path}"
        )
    raise DataError(
        f"{path}: model type {config.model_type!r} is not among {', '.join(ARCHITECTURES)}"
    )


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

    def __init__(self, pretrained: Pretrained, architecture: str) -> None:
        super().__init__()
        self.architecture = architecture
        self.adapter: Values = {}
        """The LoRA adapter, see `models/adapters.py`; empty without one."""
        self.head_options: Values = {}
        """The constructor's keyword arguments that a checkpoint must record, as plain values."""
        self.encoder: Pretrained = pretrained.base_model
        row = ARCHITECTURES[architecture]
        self.segments = row.segments and not row.causal

    @property
    def max_tokens(self) -> int | None:
        """Return the longest row that the position table allows; None for relative positions."""
        config = self.config
        positions = getattr(config, "max_position_embeddings", None)
        # DeBERTa-v3 configures a table that it does not use.
        if self.architecture == "xlnet" or not getattr(config, "position_biased_input", True):
            return None
        if self.architecture == "roberta":  # counts positions from padding_idx + 1
            return positions - config.pad_token_id - 1
        return positions

    @property
    def config(self) -> Any:
        return self.encoder.config

    def fresh(self, head: H, generator: torch.Generator | None = None) -> H:
        """Reinitialise a head's linear weights as the configuration specifies; biases become 0."""
        for layer in head.modules():
            if isinstance(layer, nn.Linear):
                std = self.config.initializer_range
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

    def _taken(self, inputs: Inputs) -> Values:
        """What the layers below the heads take."""
        return {
            name: value
            for name, value in inputs.items()
            if self.segments or name != "token_type_ids"
        }


def encoder_layers(encoder: nn.Module) -> nn.ModuleList:
    """The repeated layers: the longest list of modules."""
    return max((part for part in encoder.modules() if isinstance(part, nn.ModuleList)), key=len)


def pick_device(name: str) -> torch.device:
    """Return a device by name; `auto` is a GPU if present. ValueError if torch cannot
    use it here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(1, device=name).tolist()  # `meta` holds no data
    except (RuntimeError, AssertionError) as error:  # the latter if torch was built without CUDA
        reason = str(error).splitlines()[0]
        if reason.startswith("Expected one of"):
            reason = "choose auto, cpu, cuda, cuda:1, ..."
        raise ValueError(f"--device {name}: {reason}") from error
    return torch.device(name)


@torch.no_grad()
def reading_init_(model: Any) -> None:
    """Initialise a tiny encoder so that it learns to read in a minute on a CPU, in place.

    To connect a question with the sentence that answers it, attention must link equal words and
    neighbours. Both links exist from the first step if words and positions have separate axes and
    queries and keys start near a multiple of the identity. From an ordinary start this takes
    thousands of steps.

    Raises:
        DataError: not a BERT-like encoder (`attention.self.query` and `.key`,
            `embeddings.position_embeddings`: BERT, RoBERTa, ELECTRA); XLNet, for example.
    """
    try:
        attentions = [layer.attention.self for layer in model.base_model.encoder.layer]
        matching = [linear for part in attentions for linear in (part.query, part.key)]
        positions = model.base_model.embeddings.position_embeddings
    except AttributeError as error:
        raise DataError(
            f"backbone.reading_init: {type(model).__name__} has no BERT-like attention and "
            "positions"
        ) from error
    for part in model.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=WEIGHT_STD)
    heads = model.config.num_attention_heads
    gains = torch.tensor(HEAD_GAINS).repeat(heads)[:heads]
    for linear in matching:
        root = gains.repeat_interleave(linear.out_features // heads).sqrt()
        linear.weight.mul_(0.5).add_(torch.diag(root))
    for part in model.modules():
        if isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=WORD_STD)
            part.weight[:, :POSITION_AXES] *= WORD_STD_ON_POSITION_AXES / WORD_STD
    # Sine and cosine codes (Vaswani et al. 2017, section 3.5).
    axes = min(POSITION_AXES, positions.embedding_dim)
    position = torch.arange(positions.num_embeddings, dtype=torch.float32)[:, None]
    step = torch.arange(0, axes, 2, dtype=torch.float32)
    angle = position * torch.exp(step * (-math.log(POSITION_BASE) / axes))
    positions.weight.zero_()
    positions.weight[:, 0:axes:2] = torch.sin(angle) * math.sqrt(2)
    positions.weight[:, 1:axes:2] = torch.cos(angle) * math.sqrt(2)
