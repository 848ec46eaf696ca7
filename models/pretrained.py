"""Models of transformers as a backbone asks for them: their configuration, and weights that are read, checked
and merged with an adapter of peft, or random.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import xxhash
from torch import Tensor, nn

from models.backbones import ARCHITECTURES, RANDOM, Backbone, CheckpointError
from storage.json_files import load_json

if TYPE_CHECKING:  # transformers is imported where a model is built
    from transformers import PreTrainedConfig, PreTrainedModel

log = logging.getLogger(__name__)


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


def fingerprint(model: nn.Module) -> str:
    """A digest of the names, shapes, dtypes and values of all weights: equal exactly when the model is."""
    digest = xxhash.xxh3_128()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


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
        config = AutoConfig.from_pretrained(base, trust_remote_code=False)
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
        config = AutoConfig.from_pretrained(path, trust_remote_code=False)
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
    if path == RANDOM:
        model = build(config, backbone)
        if backbone.reading_init:
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
            trust_remote_code=False,
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
    unexpected = sorted(key for key in info["unexpected_keys"] if ".layer" in key and ".pooler." not in key)
    if unexpected:
        raise CheckpointError(
            f"backbone.checkpoint: {path!r} holds {len(unexpected)} weights of layers that its config.json "
            f"does not have (first: {unexpected[0]})"
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
    if backbone.attention != "auto":
        options["attn_implementation"] = backbone.attention
    return options


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
