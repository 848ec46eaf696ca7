"""Models from a Hugging Face folder, a peft folder, or a Hub name; their files are checked."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from models.backbones import ARCHITECTURES, RANDOM, Backbone
from models.build import build, configured, model_class, refuse_nonfinite
from storage.errors import DataError, as_data_error
from storage.json_files import load_json

if TYPE_CHECKING:  # transformers is imported where a model is built
    from transformers import PreTrainedConfig, PreTrainedModel

log = logging.getLogger(__name__)


def peft_base(path: str) -> str:
    """Return the base model of an adapter folder saved by peft; any other path unchanged. DataError if the
    base is this project's checkpoint file."""
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
    """Read transformers' configuration of a folder, a peft folder, or a Hub name; DataError without one."""
    from transformers import AutoConfig

    base = peft_base(path)
    with as_data_error(f"{base}: no .ckpt (RUN/checkpoints/best.ckpt), Hugging Face folder or Hub model"):
        return AutoConfig.from_pretrained(base, trust_remote_code=False)


def folder_architecture(path: str) -> str:
    """Return the row of ARCHITECTURES for a Hugging Face folder or a Hub name; DataError without a model, or
    for another architecture."""
    config = read_config(path)
    return architecture_of(config, path, str((config.architectures or [""])[0]))


def architecture_of(config: PreTrainedConfig, path: str, class_name: str) -> str:
    """The same for a model's configuration and class."""
    for name, row in ARCHITECTURES.items():
        if row.model_type == config.model_type:
            return name
    if class_name.endswith(("ForCausalLM", "LMHeadModel")):
        return "causal"
    raise DataError(f"{path}: model type {config.model_type!r} is not among {', '.join(ARCHITECTURES)}")


def backbone_config(backbone: Backbone) -> PreTrainedConfig:
    """Return the transformers configuration of `backbone`; DataError as in `read_config` and `configured`, or
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
    """Load transformers' extractive-QA or causal language model of `backbone`, in float32 and training mode.

    Args:
        new_head: level of the log line about a randomly initialised span head, which is normal in training.

    Raises:
        DataError: see `backbone_config` and `build`; also if weights are missing from the checkpoint,
            unreadable, of another shape, or of layers that its configuration does not have.
    """
    from transformers.utils.logging import get_verbosity, set_verbosity, set_verbosity_error

    config, path = backbone_config(backbone), backbone.checkpoint
    if path == RANDOM:
        model = build(config, backbone)
        if backbone.reading_init:
            from models.tiny_init import reading_init_  # used only by tests and demos

            reading_init_(model)
        return model.train()
    halved = backbone.causal and backbone.frozen_weights == "bfloat16"  # encoders include a trained head
    base, verbosity = peft_base(path), get_verbosity()
    set_verbosity_error()  # missing or mismatched weights are reported below
    try:
        with as_data_error(f"backbone.checkpoint {path!r}"):
            model, info = model_class(backbone).from_pretrained(
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
    return model.train()
