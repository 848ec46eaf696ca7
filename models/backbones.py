"""The table of encoders that can be fine-tuned: one row per architecture, how to build one, and what every
model has below its heads.

A row says only what transformers does not say itself: which modules of the architecture's
question-answering class make up its span head, and a small random configuration for tests and demos.

Shape letters: B batch (rows), T tokens, D hidden.
"""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from storage.json_files import load_json

# transformers is imported where a model is built: printing a configuration takes none of its seconds. (mypy
# takes MYPY for True; a block under TYPE_CHECKING jsonargparse would execute.)
MYPY = False
if MYPY:
    from transformers import PreTrainedConfig, PreTrainedModel

log = logging.getLogger(__name__)

ArchitectureName = Literal[
    "bert",
    "roberta",
    "xlnet",
    "distilbert",
    "electra",
    "deberta-v3",
    "modernbert",
    "llama",
    "qwen2",
    "qwen3",
    "gpt2",
    "causal",
]
FrozenWeights = Literal["float32", "bfloat16", "nf4"]
Attention = Literal["auto", "eager", "sdpa", "flash_attention_2", "flex_attention"]

RANDOM = "random"
"""The checkpoint name that stands for random weights."""


ADAPTER_OPTIONS = ("rank", "alpha", "dropout", "targets")
"""Of LoRA; two adapters that agree in these have the same weights by name and shape."""


class CheckpointError(ValueError):
    """A checkpoint that is missing, damaged, of another architecture, or not as the configuration claims."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One row of the table."""

    model_type: str
    """transformers' `config.model_type`."""
    span_head: tuple[str, ...] = ("qa_outputs",)
    """Modules of the question-answering class that turn hidden states (B, T, D) into logits (B, T, 2),
    applied in this order."""
    segments: bool = True
    """Whether the encoder takes `token_type_ids`. Tokenizers cannot be asked: transformers 5 says no for
    XLNet, which was pretrained with them, and yes for DistilBERT, which has none."""
    tiny: dict[str, Any] = field(default_factory=dict)
    """Sizes of a small random model, by this architecture's own configuration keys."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Configuration values that every model of this architecture gets."""
    causal: bool = False
    """A decoder, which scores texts behind a prompt (models/heads/causal.py)."""


_TINY = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}

_TINY_DECODER = _TINY | {"num_key_value_heads": 2}

ARCHITECTURES: dict[str, Architecture] = {
    "bert": Architecture(model_type="bert", tiny=_TINY),
    # RoBERTa counts positions from padding_idx + 1, hence the two extra rows.
    "roberta": Architecture(
        model_type="roberta", segments=False, tiny=_TINY | {"max_position_embeddings": 514}
    ),
    "xlnet": Architecture(
        model_type="xlnet",
        tiny={"d_model": 128, "n_layer": 2, "n_head": 4, "d_inner": 256},
        # Memories of earlier segments make no sense for independent questions.
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
        tiny=dict(_TINY),
    ),
    "llama": Architecture(model_type="llama", segments=False, tiny=_TINY_DECODER, causal=True),
    "qwen2": Architecture(model_type="qwen2", segments=False, tiny=_TINY_DECODER, causal=True),
    "qwen3": Architecture(
        model_type="qwen3", segments=False, tiny=_TINY_DECODER | {"head_dim": 32}, causal=True
    ),
    "gpt2": Architecture(
        model_type="gpt2", segments=False, tiny={"n_embd": 128, "n_layer": 2, "n_head": 4}, causal=True
    ),
    # Any other causal language model of transformers, by the model type of its checkpoint.
    "causal": Architecture(model_type="", segments=False, causal=True),
}


@dataclass(kw_only=True)
class Backbone:
    """Which encoder to fine-tune, and from which weights.

    Args:
        architecture: A row of the table of backbones.
        checkpoint: A name on the Hub, a local folder in Hugging Face format or of an adapter of peft (merged
            into the base that it names), a `.ckpt` of an earlier run, or `random`. A checkpoint that was
            already fine-tuned for extractive QA keeps its span head.
        tokenizer: Where the tokenizer comes from, when not from the checkpoint: a Hub name, a folder, or
            `stories` for the words of the embedded stories.
        config: Values that replace those of the checkpoint's transformers configuration.
        attention: The attention kernel; `auto` is transformers' own choice, and on a machine without a GPU
            ours (models/cpu_kernels.py).
        gradient_checkpointing: Recompute activations in the backward pass to save memory.
        reading_init: Start random weights so that small models learn to read (see models/tiny_init.py).
        likelihood: Of a decoder, what stands for a subject of a group: the mean log-probability of its
            tokens, or their sum.
        lora_rank: Train adapters of this rank (LoRA) beside frozen weights, and the heads; 0 trains all. A
            checkpoint then holds these alone, and the name of what they stand on.
        lora_alpha: Their scale is this over the rank; null is twice the rank.
        lora_dropout: Share of their input that is dropped.
        lora_targets: Layers that get one, by the ends of their names; empty is every linear layer.
        frozen_weights: How the weights beside adapters are kept: in float32, in bfloat16 (which
            `trainer.precision=bf16-true` chooses), or of a decoder's linear layers in 4 bits (`nf4`, by
            bitsandbytes, with CUDA). What is trained is float32, and so is its optimizer's state.
    """

    architecture: ArchitectureName
    checkpoint: str
    tokenizer: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    attention: Attention = "auto"
    gradient_checkpointing: bool = False
    reading_init: bool = False
    likelihood: Literal["mean", "sum"] = "mean"
    lora_rank: int = 0
    lora_alpha: float | None = None
    lora_dropout: float = 0.0
    lora_targets: list[str] = field(default_factory=list)
    frozen_weights: FrozenWeights = "float32"

    @property
    def causal(self) -> bool:
        """Whether it is a decoder."""
        return ARCHITECTURES[self.architecture].causal

    @property
    def adapter(self) -> dict[str, Any]:
        """What a checkpoint records of the adapter that is asked for (models/adapters.py); empty for none.
        `base` is what it stands on, a path in full; empty for random weights, which a checkpoint has to hold
        itself."""
        if not self.lora_rank:
            return {}
        base = "" if self.checkpoint == RANDOM else self.checkpoint
        return {
            "rank": self.lora_rank,
            "alpha": self.lora_alpha or 2.0 * self.lora_rank,
            "dropout": self.lora_dropout,
            "targets": list(self.lora_targets),
            "base": str(Path(base).absolute()) if base and Path(base).exists() else base,
        }


def same_adapter(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether the weights of one fit the other, whatever they stand on."""
    return all(one.get(name) == other.get(name) for name in ADAPTER_OPTIONS)


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
        self.adapter: dict[str, Any] = {}
        """Of LoRA, see models/adapters.py; empty without."""
        self.encoder: PreTrainedModel = pretrained.base_model
        self.segments = ARCHITECTURES[architecture].segments

    @property
    def head_options(self) -> dict[str, Any]:
        """Keyword arguments of the constructor that a checkpoint has to record, as plain values."""
        return {}

    def take_pooler(self, checkpoint: str) -> None:
        """Start what these heads have of a pooler from that of a pretrained encoder."""

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
        return self._for_heads(self.encoder(**self._taken(inputs)).last_hidden_state)

    def hidden_states(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Hidden states (B, T, D) of the embeddings and of every layer; the last are those of `encode`."""
        output = self.encoder(**self._taken(inputs), output_hidden_states=True)
        # Some encoders normalise or drop out once more after the last layer.
        return (*output.hidden_states[:-1], self._for_heads(output.last_hidden_state))

    def _for_heads(self, hidden_BTD: Tensor) -> Tensor:
        """In float32 above frozen weights that may be in less: heads that are trained are float32."""
        return hidden_BTD.float() if self.adapter else hidden_BTD

    def _taken(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: value for name, value in inputs.items() if self.segments or name != "token_type_ids"}


def nonfinite(weights: Mapping[str, Tensor]) -> list[str]:
    """Names of the tensors that hold NaN or infinity.

    >>> nonfinite({"a": torch.ones(3), "b": torch.tensor([0.0, float("nan")])})
    ['b']
    """
    return [
        name
        for name, weight in weights.items()
        if weight.is_floating_point()
        and weight.numel()
        and not torch.stack(weight.aminmax()).isfinite().all()
    ]


def refuse_nonfinite(weights: Mapping[str, Tensor], path: str) -> None:
    """CheckpointError for weights that are NaN or infinite: the answers of such a model look like "unknown".

    Args:
        weights: by name.
        path: where they come from.
    """
    wrong = nonfinite(weights)
    if wrong:
        raise CheckpointError(
            f"{path}: {len(wrong)} of {len(weights)} weights are not finite numbers (first: {wrong[0]}): its "
            "training diverged; choose an earlier checkpoint, or train again with a smaller learning rate"
        )


def backbone_config(backbone: Backbone) -> PreTrainedConfig:
    """The transformers configuration of `backbone`.

    Raises:
        CheckpointError: the checkpoint cannot be found, or is of another architecture, or `config` has a key
            or a value that the architecture does not take.
    """
    from transformers import AutoConfig

    row = ARCHITECTURES[backbone.architecture]
    if backbone.checkpoint == RANDOM:
        if not row.model_type:
            raise CheckpointError(
                "backbone.checkpoint: random weights need an architecture with sizes, as llama"
            )
        _check_keys(backbone, AutoConfig.for_model(row.model_type))
        try:
            return AutoConfig.for_model(row.model_type, **(row.tiny | row.settings | backbone.config))
        except Exception as error:  # huggingface_hub's validation errors are no ValueErrors
            raise CheckpointError(f"backbone.config: {' '.join(str(error).split())}") from error
    base = peft_base(backbone.checkpoint)
    try:
        config = AutoConfig.from_pretrained(base)
    except Exception as error:  # OSError, ValueError, huggingface_hub's validation errors
        raise CheckpointError(
            f"backbone.checkpoint: cannot load {base!r}: {_first_line(error)} "
            "(give a local folder, or a Hub name while online)"
        ) from error
    if row.model_type and config.model_type != row.model_type:
        raise CheckpointError(
            f"backbone.checkpoint: {backbone.checkpoint!r} is a {config.model_type!r} model, but "
            f"backbone.architecture is {backbone.architecture!r} (model type {row.model_type!r})"
        )
    apply_settings(config, backbone)
    return config


def apply_settings(config: PreTrainedConfig, backbone: Backbone) -> None:
    """Put the architecture's and the user's values over a configuration, in place.

    Raises:
        CheckpointError: `backbone.config` has a key or a value that the architecture does not take.
    """
    _check_keys(backbone, config)
    try:
        for key, value in (ARCHITECTURES[backbone.architecture].settings | backbone.config).items():
            setattr(config, key, value)
    except Exception as error:  # huggingface_hub's validation errors are no ValueErrors
        raise CheckpointError(f"backbone.config: {' '.join(str(error).split())}") from error


def _check_keys(backbone: Backbone, config: PreTrainedConfig) -> None:
    unknown = [key for key in backbone.config if not hasattr(config, key)]
    if unknown:
        raise CheckpointError(f"backbone.config: {config.model_type!r} has no setting {unknown[0]!r}")


def peft_base(path: str) -> str:
    """The model below an adapter that peft has saved as a folder; any other path as it is.

    Raises:
        CheckpointError: the folder does not name one.
    """
    file = Path(path) / "adapter_config.json"
    if not file.is_file():
        return path
    base = load_json(file, dict[str, Any]).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise CheckpointError(f"{file}: names no base (base_model_name_or_path)")
    if base.endswith(".ckpt"):
        raise CheckpointError(
            f"{file}: its base is {base}; export that (interventune export), and name the folder here"
        )
    return base


def folder_architecture(path: str) -> str:
    """The row of ARCHITECTURES that a Hugging Face folder or a name on the Hub is of; reads no weights.

    Raises:
        CheckpointError: there is no model, or none of these architectures.
    """
    from transformers import AutoConfig

    path = peft_base(path)
    try:
        config = AutoConfig.from_pretrained(path)
    except Exception as error:  # OSError, ValueError, huggingface_hub's validation errors
        if (Path(path) / "config.json").is_file():
            raise CheckpointError(f"{path}: config.json: {_first_line(error)}") from error
        raise CheckpointError(
            f"{path}: no checkpoint file, no Hugging Face folder, and no model of that name on the Hub"
        ) from error
    model_type, classes = config.model_type, config.architectures or [""]
    for name, row in ARCHITECTURES.items():
        if row.model_type == model_type:
            return name
    if str(classes[0]).endswith(("ForCausalLM", "LMHeadModel")):
        return "causal"
    raise CheckpointError(f"{path}: model type {model_type!r} is not among {', '.join(ARCHITECTURES)}")


def load_pretrained(backbone: Backbone, *, new_head: int = logging.INFO) -> PreTrainedModel:
    """transformers' extractive-QA model of `backbone`, or causal language model, in float32 and training
    mode.

    Args:
        backbone: which.
        new_head: level of the log line that says that the span head starts random: normal in training.

    Raises:
        CheckpointError: see `backbone_config`; also when weights are absent from the checkpoint, unreadable,
            or of another shape, and when transformers refuses an option for this architecture.
    """
    from transformers.utils.logging import get_verbosity, set_verbosity, set_verbosity_error

    config, path = backbone_config(backbone), backbone.checkpoint
    base = peft_base(path)
    if path == RANDOM or shapes_only():
        model = build(config, backbone)
        if backbone.reading_init and not shapes_only():
            from models.tiny_init import reading_init_  # tests and demos alone start so

            try:
                reading_init_(model)
            except ValueError as error:
                raise CheckpointError(f"backbone.reading_init: {error}") from error
        return model.train()
    verbosity = get_verbosity()
    set_verbosity_error()  # which weights are absent or do not fit is said below
    try:
        model, info = _model_class(backbone).from_pretrained(
            base,
            config=config,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **_options(backbone),
        )
        if base != path:
            model, own = _with_adapter(model, path)
            info["missing_keys"] = [key for key in info["missing_keys"] if key not in own]
    except Exception as error:  # transformers, safetensors, torch and pickle: a dozen types
        raise CheckpointError(f"backbone.checkpoint {path!r}: {_first_line(error)}") from error
    finally:
        set_verbosity(verbosity)
    for key, found, wanted in info["mismatched_keys"]:
        raise CheckpointError(
            f"backbone.checkpoint: in {path!r} {key} has shape {tuple(found)}, but the "
            f"configuration asks for {tuple(wanted)}"
        )
    missing, prefix = set(info["missing_keys"]), model.base_model_prefix + "."
    encoder = sorted(
        key for key in missing if backbone.causal or (key.startswith(prefix) and ".pooler." not in key)
    )
    if encoder:
        raise CheckpointError(
            f"backbone.checkpoint: {path!r} lacks {len(encoder)} encoder weights (first: {encoder[0]}); "
            f"is it complete, and of architecture {backbone.architecture!r}?"
        )
    refuse_nonfinite(model.state_dict(), path)
    if backbone.causal:
        return model.train()
    if any(not key.startswith(prefix) for key in missing):
        log.log(new_head, "%s: span head starts random; answers and scores by it mean nothing yet", path)
    else:
        log.info("%s: span head kept from the checkpoint", path)
    return model.train()


def _with_adapter(model: PreTrainedModel, path: str) -> tuple[PreTrainedModel, set[str]]:
    """The model with an adapter of peft's merged, and names of the weights that the adapter replaces, as it
    may a head."""
    from peft import PeftModel

    adapted = PeftModel.from_pretrained(model, path)
    replaced = {name for name, _ in adapted.named_parameters() if ".modules_to_save." in name}
    names = {
        name.removeprefix("base_model.model.").replace(f".modules_to_save.{adapted.active_adapter}", "")
        for name in replaced
    }
    return adapted.merge_and_unload(), names


def shapes_only() -> bool:
    """Whether tensors are made without values here (`with torch.device("meta")`); no weights are read."""
    return torch.get_default_device().type == "meta"


def build(config: PreTrainedConfig, backbone: Backbone) -> PreTrainedModel:
    """A model of this configuration with random weights.

    Args:
        config: transformers' configuration; not changed (a failed `from_config` may leave its argument so).
        backbone: its architecture and attention kernel apply.

    Raises:
        CheckpointError: the configuration contradicts itself, or transformers refuses an option for it.
    """
    try:
        return _model_class(backbone).from_config(copy.deepcopy(config), **_options(backbone))
    except Exception as error:  # ValueError, AssertionError, ImportError, ...
        raise CheckpointError(f"backbone: {_first_line(error)}") from error


def prepare_training(model: PreTrainedModel, backbone: Backbone) -> PreTrainedModel:
    """The same with gradient checkpointing, if it is wanted, and our kernels where there is no GPU.

    Raises:
        CheckpointError: transformers refuses gradient checkpointing for this architecture.
    """
    if backbone.gradient_checkpointing:
        try:
            model.gradient_checkpointing_enable()
        except ValueError as error:
            raise CheckpointError(f"backbone.gradient_checkpointing: {_first_line(error)}") from error
    if not torch.cuda.is_available() and not backbone.causal:  # torch's own are made for causal attention
        from models.cpu_kernels import use_kernels

        use_kernels(model, attention=backbone.attention == "auto")
    return model


def _model_class(backbone: Backbone) -> Any:
    from transformers import AutoModelForCausalLM, AutoModelForQuestionAnswering

    return AutoModelForCausalLM if backbone.causal else AutoModelForQuestionAnswering


def _options(backbone: Backbone) -> dict[str, Any]:
    options: dict[str, Any] = {"dtype": torch.float32}
    if backbone.causal and backbone.checkpoint != RANDOM and backbone.frozen_weights != "float32":
        options["dtype"] = torch.bfloat16  # of an encoder a head is read with them, which stays float32
        if backbone.frozen_weights == "nf4":
            options |= _four_bits()
    if backbone.attention != "auto":
        options["attn_implementation"] = backbone.attention
    return options


def _four_bits() -> dict[str, Any]:
    """Linear layers in NF4 (Dettmers et al. 2023), computed in bfloat16, on this process's GPU."""
    if not torch.cuda.is_available():
        raise CheckpointError(
            "backbone.frozen_weights: nf4 needs a GPU with CUDA, and there is none; take bfloat16"
        )
    if find_spec("bitsandbytes") is None:
        raise CheckpointError(
            "backbone.frozen_weights: nf4 needs bitsandbytes (pip install 'interventune[nf4]')"
        )
    from transformers import BitsAndBytesConfig

    four = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    return {"quantization_config": four, "device_map": {"": int(os.environ.get("LOCAL_RANK", 0))}}


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


SPREAD = "spread"
"""The name for all GPUs of a machine, over which a language model's layers are spread."""


def pick_device(name: str) -> torch.device:
    """A device by name; `auto` is a GPU where there is one.

    Raises:
        ValueError: torch knows no such device here.
    """
    if name == SPREAD:
        raise ValueError(
            f"--device {SPREAD}: is for models named hf:PATH; export a checkpoint to a folder first"
        )
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:  # the latter where torch is built without CUDA
        raise ValueError(f"--device {name}: {str(error).splitlines()[0]}") from error
    return torch.device(name)
