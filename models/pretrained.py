"""Models from a Hugging Face folder, a peft folder, or a Hub name; their files are checked."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.backbones import ARCHITECTURES, RANDOM, Backbone
from models.build import build, configured, model_class, refuse_nonfinite
from models.language.writing import end_tokens
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
    if config.is_encoder_decoder:
        raise DataError(f"{path}: is a sequence-to-sequence model; name it as a language model, hf:{path}")
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


def load_pretrained(
    backbone: Backbone, *, new_head: int = logging.INFO, dtype: str = "float32"
) -> PreTrainedModel:
    """Load transformers' extractive-QA or causal language model of `backbone`, in training mode; all weights
    are trainable.

    Args:
        new_head: level of the log line about a randomly initialised span head, which is normal in training.
        dtype: of the weights; `auto` is that of the files. An adapter is merged in float32.

    Raises:
        DataError: see `backbone_config`, `build` and `whole`.
    """
    config, path = backbone_config(backbone), backbone.checkpoint
    if path == RANDOM:
        model = build(config, backbone)
        if backbone.reading_init:
            from models.tiny_init import reading_init_  # used only by tests and demos

            reading_init_(model)
        return model.train()
    if backbone.causal and backbone.frozen_weights == "bfloat16":  # encoders include a trained head
        dtype = "bfloat16"
    base, span = peft_base(path), not backbone.causal
    options = {"config": config, "dtype": dtype if base == path else "float32"}
    model, no_head = whole(model_class(backbone), base, own_head=not span, **options)
    if base != path:
        model, replaced = adapted(model, path)
        no_head = no_head and not replaced
    refuse_nonfinite(model.state_dict(), path)
    if no_head:
        log.log(new_head, "%s: span head starts random; answers and scores by it mean nothing yet", path)
    if backbone.causal:
        model.config.eos_token_id = end_tokens(model) or None  # a checkpoint has no generation_config.json
    return model.requires_grad_(True).train()


def whole(kind: Any, path: str, *, own_head: bool = True, **options: Any) -> tuple[PreTrainedModel, bool]:
    """Load a model of a class of transformers. Return it, and whether its head is new.

    Args:
        own_head: whether the checkpoint must have the head of `kind`, and no other.
        options: of `from_pretrained`.

    Raises:
        DataError: the checkpoint is unreadable; weights are missing, of another shape, or such as the model
            does not have. Pooling layers are ignored where the head may be another.
    """
    from transformers.utils.logging import get_verbosity, set_verbosity, set_verbosity_error

    verbosity = get_verbosity()
    set_verbosity_error()  # missing or mismatched weights are reported below
    options |= {"output_loading_info": True, "ignore_mismatched_sizes": True, "trust_remote_code": False}
    try:
        with as_data_error(f"{path}: cannot be loaded"):
            model, info = kind.from_pretrained(path, **options)
    finally:
        set_verbosity(verbosity)
    body = f"{model.base_model_prefix}."

    def of_interest(key: str) -> bool:
        inside = key.startswith(body) or re.search(r"\b(layers?|h)\.\d", key)
        return own_head or (bool(inside) and ".pooler." not in key)

    for problem, keys in (
        ("of another shape", [key for key, *_ in info["mismatched_keys"]]),
        ("missing", filter(of_interest, info["missing_keys"])),
        ("that the configuration has no place for", filter(of_interest, info["unexpected_keys"])),
    ):
        if first := min(keys, default=""):
            raise DataError(f"{path}: does not fit its configuration: weights {problem}, as {first}")
    return model, any(not of_interest(key) for key in info["missing_keys"] if ".pooler." not in key)


def adapted(model: Any, path: str) -> tuple[PreTrainedModel, bool]:
    """Merge a peft folder's adapter into its base. Return the model, and whether the folder has its head.

    Raises:
        DataError: peft is not installed, or the adapter's weights do not fit the base.
    """
    with as_data_error(f"{path}: needs peft (pip install -e '.[lora]')"):
        from peft import PeftConfig, get_peft_model, load_peft_weights, set_peft_model_state_dict
    with as_data_error(f"{path}: does not fit its base"):
        config = PeftConfig.from_pretrained(path)
        with_adapter: Any = get_peft_model(model, config)
        result = set_peft_model_state_dict(with_adapter, load_peft_weights(path, device="cpu"))
    wrong = [key for key in result.missing_keys if ".default" in key] + list(result.unexpected_keys)
    if first := min(wrong, default=""):
        raise DataError(
            f"{path}: does not fit its base: {len(wrong)} weights too few or too many, as {first}"
        )
    return with_adapter.merge_and_unload(), bool(getattr(config, "modules_to_save", None))


def load_seq2seq(path: str, dtype: str) -> PreTrainedModel:
    """Load a sequence-to-sequence model of transformers in evaluation mode; DataError as in `whole`."""
    from transformers import AutoModelForSeq2SeqLM

    model, _ = whole(AutoModelForSeq2SeqLM, path, dtype=dtype)
    refuse_nonfinite(model.state_dict(), path)
    return model.eval()
