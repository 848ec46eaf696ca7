"""LoRA (Hu et al. 2021) by peft: small trainable matrices next to a model's frozen weights. A new
adapter does not change the model's outputs. Folders of peft, and the base models of adapters.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from interventune.storage.documents import (
    DataError,
    Values,
    as_data_error,
    file_digest,
    load_json,
    text_digest,
)

from .backbones import RANDOM, Backbone, EncoderModel
from .checkpoint import refuse_nonfinite


def peft_base(path: str) -> str:
    """Return the base model of an adapter folder saved by peft; any other path unchanged. DataError
    if the base is this project's checkpoint file.
    """
    file = Path(path) / "adapter_config.json"
    if not file.is_file():
        return path
    base = str(load_json(file, Values)["base_model_name_or_path"])
    if base.endswith(".ckpt"):
        raise DataError(
            f"{file}: its base is {base}; export that (interventune export), and name the folder "
            "here"
        )
    return base


def read_config(path: str) -> Any:
    """Read transformers' configuration of a folder, a peft folder's base, or a Hub name; DataError
    without one.
    """
    from transformers import AutoConfig

    base = peft_base(path)
    what = f"{base}: no .ckpt (RUN/checkpoints/best.ckpt), Hugging Face folder or Hub model"
    with as_data_error(what):
        return AutoConfig.from_pretrained(base, trust_remote_code=False)


def base_digest(base: str) -> str:
    """Return a digest that changes with the base: sha256 of a `.ckpt` (whose own base is checked
    when it is read) or of a folder's weights and settings; for a name on the Hub, the revision.
    """
    path = Path(base)
    if path.is_file():
        return file_digest(path)
    if not path.is_dir():
        return str(getattr(read_config(base), "_commit_hash", None) or "")
    below = peft_base(base)
    digests = [
        file_digest(file)
        for file in sorted(path.iterdir())
        if file.suffix in (".safetensors", ".bin") or file.name.endswith("config.json")
    ]
    digests.append(base_digest(below) if below != base else "")
    return text_digest("\n".join(digests))


def requested_adapter(backbone: Backbone) -> Values:
    """Return a checkpoint's record of the adapter that `backbone` asks for. `base` is the full path
    of the base model; empty for random weights, which the checkpoint itself must contain. `config`
    are the settings with which it was trained in place of the base's.
    """
    base = "" if backbone.checkpoint == RANDOM else backbone.checkpoint
    if base and Path(base).exists():
        base = str(Path(base).absolute())
    digest = base and base_digest(base)
    config = backbone.config
    return {"rank": backbone.lora_rank, "base": base, "digest": digest, "config": config}


def add_adapter(model: EncoderModel, adapter: Values) -> None:
    """Freeze everything below the heads and add LoRA (see `requested_adapter`), in float32, to the
    linear layers, in place. DataError: peft is not installed.
    """
    with as_data_error("backbone.lora_rank: needs peft (pip install -e '.[lora]')"):
        from peft import LoraConfig, inject_adapter_in_model
        from peft.tuners.tuners_utils import cast_adapter_dtype
    config = LoraConfig(
        r=adapter["rank"],
        lora_alpha=2 * adapter["rank"],
        target_modules="all-linear",
        fan_in_fan_out=any(type(layer).__name__ == "Conv1D" for layer in model.encoder.modules()),
    )
    inject_adapter_in_model(config, model.encoder)
    cast_adapter_dtype(model.encoder, "default")
    model.adapter = adapter


def adapted_layers(model: nn.Module) -> Values:
    """Return the layers that have an adapter, by name."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    return {
        name: layer for name, layer in model.named_modules() if isinstance(layer, BaseTunerLayer)
    }


def merge_adapter(model: EncoderModel) -> None:
    """Merge the adapter, if any, into the model's weights, in place, and make all weights
    trainable.
    """
    if not model.adapter:
        return
    for name, layer in adapted_layers(model).items():
        layer.merge()
        model.set_submodule(name, layer.get_base_layer())
    del model.encoder.peft_config
    model.adapter = {}
    model.requires_grad_(True)


def merge_folder(model: Any, path: str) -> tuple[Any, bool]:
    """Merge a peft folder's adapter into its base. Return the model, and whether the folder has its
    head.

    Raises:
        DataError: peft is not installed, or the adapter's weights do not fit the base or are not
            finite.
    """
    with as_data_error(f"{path}: needs peft (pip install -e '.[lora]')"):
        from peft import PeftConfig, get_peft_model, load_peft_weights, set_peft_model_state_dict
    with as_data_error(f"{path}: does not fit its base"):
        config = PeftConfig.from_pretrained(path)
        with_adapter: Any = get_peft_model(model, config)
        result = set_peft_model_state_dict(with_adapter, load_peft_weights(path, device="cpu"))
    missing = (key for key in result.missing_keys if ".default" in key)
    if wrong := sorted([*missing, *result.unexpected_keys]):
        raise DataError(
            f"{path}: does not fit its base: {len(wrong)} weights too few or too many, as "
            f"{wrong[0]}"
        )
    model = with_adapter.merge_and_unload()
    refuse_nonfinite(model, path)
    return model, bool(getattr(config, "modules_to_save", None))


def own_weights(model: EncoderModel, weights: Values) -> Values:
    """Select from a state dict, whose names may begin with `model.`, what a checkpoint must
    contain: everything except the frozen weights, which come from the base.
    """
    if not model.adapter.get("base"):
        return weights
    tied = model.named_parameters(remove_duplicate=False)  # an output layer may share its weights
    frozen = {name for name, weight in tied if not weight.requires_grad}
    return {name: x for name, x in weights.items() if name.removeprefix("model.") not in frozen}


def save_adapter(model: EncoderModel, pretrained: Any, folder: Path) -> None:
    """Write a model's adapter, and a head trained with it, into a folder in peft's format;
    `pretrained` is the same model as a class of transformers.
    """
    from safetensors.torch import save_file

    if model.adapter["config"]:
        raise DataError("--adapter: peft's format has no place for backbone.config; leave it out")
    own = {name: weight for name, weight in pretrained.named_parameters() if weight.requires_grad}
    head = sorted({name.partition(".")[0] for name in own if "lora_" not in name})
    replace(
        model.encoder.peft_config["default"],
        target_modules=sorted(adapted_layers(pretrained)),
        modules_to_save=head or None,
        base_model_name_or_path=model.adapter["base"],
        task_type="CAUSAL_LM" if model.heads == "causal" else "QUESTION_ANS",
        inference_mode=True,
    ).save_pretrained(folder)
    weights = {
        f"base_model.model.{name.replace('.default.', '.')}": weight.detach().cpu().contiguous()
        for name, weight in own.items()
    }
    save_file(weights, folder / "adapter_model.safetensors", metadata={"format": "pt"})
