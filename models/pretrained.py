"""Models of transformers as a backbone asks for them: from files that are checked, or random."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import xxhash
from torch import Tensor, nn

from models.backbones import ARCHITECTURES, RANDOM, Backbone
from storage.errors import DataError, as_data_error
from storage.json_files import load_json

if TYPE_CHECKING:  # transformers is imported where a model is built
    from transformers import PreTrainedConfig, PreTrainedModel

log = logging.getLogger(__name__)


def nonfinite(weights: Mapping[str, Tensor]) -> list[str]:
    """Names of the tensors that hold NaN or infinity."""
    return [
        name
        for name, weight in weights.items()
        if weight.is_floating_point()
        and weight.numel()
        and not torch.stack(weight.aminmax()).isfinite().all()
    ]


def refuse_nonfinite(weights: Mapping[str, Tensor], path: str) -> None:
    """DataError for weights of `path` that are NaN or infinite: the answers of such a model look like
    "unknown"."""
    if wrong := nonfinite(weights):
        raise DataError(
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


def peft_base(path: str) -> str:
    """The model below an adapter that peft has saved as a folder; any other path as it is. DataError
    where that model is a checkpoint file of ours."""
    file = Path(path) / "adapter_config.json"
    if not file.is_file():
        return path
    base = str(load_json(file, dict[str, Any])["base_model_name_or_path"])
    if base.endswith(".ckpt"):
        raise DataError(
            f"{file}: its base is {base}; export that (interventune export), and name the folder here"
        )
    return base


def read_config(path: str) -> PreTrainedConfig:
    """transformers' configuration of a folder, of peft too, or of a name on the Hub; DataError where
    there is none."""
    from transformers import AutoConfig

    base = peft_base(path)
    with as_data_error(f"{base}: no checkpoint file, no Hugging Face folder, no model of the Hub"):
        return AutoConfig.from_pretrained(base, trust_remote_code=False)


def folder_architecture(path: str) -> str:
    """The row of ARCHITECTURES that a Hugging Face folder or a name on the Hub is of; DataError where
    there is no model, or none of these."""
    config = read_config(path)
    for name, row in ARCHITECTURES.items():
        if row.model_type == config.model_type:
            return name
    if str((config.architectures or [""])[0]).endswith(("ForCausalLM", "LMHeadModel")):
        return "causal"
    raise DataError(f"{path}: model type {config.model_type!r} is not among {', '.join(ARCHITECTURES)}")


def configured(values: Mapping[str, Any], backbone: Backbone) -> PreTrainedConfig:
    """transformers' configuration of these values, with the architecture's and the user's over them;
    DataError for a key or a value in `backbone.config` that the architecture does not take."""
    from transformers import AutoConfig

    known = AutoConfig.for_model(values["model_type"])
    for key in backbone.config:
        if not hasattr(known, key):
            raise DataError(f"backbone.config: {known.model_type!r} has no setting {key!r}")
    settings = ARCHITECTURES[backbone.architecture].settings
    with as_data_error("backbone.config"):
        return AutoConfig.for_model(**{**values, **settings, **backbone.config})


def backbone_config(backbone: Backbone) -> PreTrainedConfig:
    """The transformers configuration of `backbone`; DataError as in `read_config` and `configured`, or
    for a checkpoint of another architecture."""
    row = ARCHITECTURES[backbone.architecture]
    if backbone.checkpoint == RANDOM:
        if not row.model_type:
            raise DataError("backbone.checkpoint: random weights need an architecture with sizes, as llama")
        return configured({"model_type": row.model_type, **row.tiny}, backbone)
    config = read_config(backbone.checkpoint)
    if row.model_type and config.model_type != row.model_type:
        raise DataError(
            f"backbone.checkpoint: {backbone.checkpoint!r} is a {config.model_type!r} model, but "
            f"backbone.architecture is {backbone.architecture!r} (model type {row.model_type!r})"
        )
    return configured(config.to_dict(), backbone)


def load_pretrained(backbone: Backbone, *, new_head: int = logging.INFO) -> PreTrainedModel:
    """transformers' extractive-QA model of `backbone`, or causal language model, in float32 and training
    mode.

    Args:
        new_head: level of the log line that says that the span head starts random: normal in training.

    Raises:
        DataError: see `backbone_config` and `build`; also when weights are absent from the checkpoint,
            unreadable, of another shape, or of layers that its configuration does not have.
    """
    from transformers.utils.logging import get_verbosity, set_verbosity, set_verbosity_error

    config, path = backbone_config(backbone), backbone.checkpoint
    if path == RANDOM:
        model = build(config, backbone)
        if backbone.reading_init:
            from models.tiny_init import reading_init_  # tests and demos alone start so

            reading_init_(model)
        return model.train()
    halved = backbone.causal and backbone.frozen_weights == "bfloat16"  # an encoder's hold a head too
    base, verbosity = peft_base(path), get_verbosity()
    set_verbosity_error()  # which weights are absent or do not fit is said below
    try:
        with as_data_error(f"backbone.checkpoint {path!r}"):
            model, info = _model_class(backbone).from_pretrained(
                base,
                config=config,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                trust_remote_code=False,
                dtype=torch.bfloat16 if halved else torch.float32,
            )
            missing, prefix = set(info["missing_keys"]), model.base_model_prefix + "."
            if base != path:
                from peft import PeftModel

                adapted = PeftModel.from_pretrained(model, path)
                if adapted.active_peft_config.modules_to_save:  # the head
                    missing = {key for key in missing if key.startswith(prefix)}
                model = adapted.merge_and_unload()
    finally:
        set_verbosity(verbosity)
    needed = "" if backbone.causal else prefix
    more = [key for key in info["unexpected_keys"] if re.search(r"\b(layers?|h)\.\d", key)]
    for problem, keys in (
        ("of another shape", [key for key, _, _ in info["mismatched_keys"]]),
        ("missing", [key for key in missing if key.startswith(needed)]),
        ("of layers that the configuration lacks", more),
    ):
        if first := min((key for key in keys if ".pooler." not in key), default=""):
            raise DataError(
                f"backbone.checkpoint: {path!r} does not fit the configuration: weights {problem}, as {first}"
            )
    refuse_nonfinite(model.state_dict(), path)
    if any(not key.startswith(prefix) for key in missing):
        log.log(new_head, "%s: span head starts random; answers and scores by it mean nothing yet", path)
    return _prepared(model, backbone).train()


def build(config: PreTrainedConfig, backbone: Backbone) -> PreTrainedModel:
    """A model of this configuration with random weights; DataError where the configuration contradicts
    itself."""
    with as_data_error("backbone"):
        model = _model_class(backbone).from_config(config, dtype=torch.float32)
    return _prepared(model, backbone)


def _prepared(model: PreTrainedModel, backbone: Backbone) -> PreTrainedModel:
    """The same with gradient checkpointing, if it is wanted, and our kernels where there is no GPU."""
    if backbone.gradient_checkpointing:
        with as_data_error("backbone.gradient_checkpointing"):
            model.gradient_checkpointing_enable()
    if not torch.cuda.is_available() and not backbone.causal:  # torch's own are made for causal attention
        from models.cpu_kernels import use_kernels

        use_kernels(model)
    return model


def _model_class(backbone: Backbone) -> Any:
    from transformers import AutoModelForCausalLM, AutoModelForQuestionAnswering

    return AutoModelForCausalLM if backbone.causal else AutoModelForQuestionAnswering
