"""LoRA (Hu et al. 2021) by peft: small trainable matrices beside the frozen weights of a model.

A fresh adapter adds exactly nothing, and one that is switched off neither: the model is then its base, of
which no second copy is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from models.backbones import RANDOM, Backbone, CheckpointError, EncoderModel


def adapter_of(backbone: Backbone) -> dict[str, Any]:
    """What a checkpoint records of the adapter that a backbone asks for; empty where it asks for none. `base`
    is empty for random weights, which a checkpoint has to hold itself."""
    if not backbone.lora_rank:
        return {}
    return {
        "rank": backbone.lora_rank,
        "alpha": backbone.lora_alpha or 2.0 * backbone.lora_rank,
        "dropout": backbone.lora_dropout,
        "targets": list(backbone.lora_targets),
        "base": "" if backbone.checkpoint == RANDOM else backbone.checkpoint,
    }


def add_adapter(model: EncoderModel, adapter: dict[str, Any]) -> None:
    """Freeze all below the heads and put LoRA beside its linear layers, in place.

    Args:
        model: without adapters.
        adapter: see `adapter_of`.

    Raises:
        CheckpointError: peft is not installed, or refuses an option.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise CheckpointError("backbone.lora_rank: needs peft (pip install 'interventune[lora]')") from error
    head = model.encoder.get_output_embeddings()
    linear = [
        name
        for name, layer in model.encoder.named_modules()
        if type(layer).__name__ in ("Linear", "Conv1D") and layer is not head
    ]
    try:
        config = LoraConfig(
            r=adapter["rank"],
            lora_alpha=adapter["alpha"],
            lora_dropout=adapter["dropout"],
            target_modules=adapter["targets"] or linear,
            fan_in_fan_out=any(type(layer).__name__ == "Conv1D" for layer in model.encoder.modules()),
        )
        inject_adapter_in_model(config, model.encoder)
    except ValueError as error:
        raise CheckpointError(f"backbone.lora_targets: {' '.join(str(error).split())[:300]}") from error
    model.adapter = adapter


def adapted_layers(model: nn.Module) -> dict[str, Any]:
    """Layers with an adapter, by name."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    return {name: layer for name, layer in model.named_modules() if isinstance(layer, BaseTunerLayer)}


@contextmanager
def adapter_disabled(model: EncoderModel) -> Iterator[None]:
    """The base alone, to the bit."""
    layers = adapted_layers(model).values() if model.adapter else ()
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def merge_adapter(model: EncoderModel) -> None:
    """Add the adapter to the weights and take it away, in place; all can be trained again."""
    if not model.adapter:
        return
    for name, layer in adapted_layers(model).items():
        layer.merge()
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, layer.get_base_layer())
    if hasattr(model.encoder, "peft_config"):
        del model.encoder.peft_config
    model.adapter = {}
    model.requires_grad_(True)


def own_weights(model: EncoderModel, weights: dict[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
    """Of a state dict, what a checkpoint has to hold: not the frozen weights, which come from the base.

    Args:
        model: with an adapter, or none.
        weights: by name.
        prefix: of the names.
    """
    if not model.adapter.get("base"):
        return weights
    tied = model.named_parameters(remove_duplicate=False)  # an output layer may share its weights
    frozen = {prefix + name for name, weight in tied if not weight.requires_grad}
    return {name: weight for name, weight in weights.items() if name not in frozen}
