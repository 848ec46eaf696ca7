"""Models from their files: `start` returns the model to train, `load` the one to evaluate.

Both read a `.ckpt` of this project, a Hugging Face folder, a folder of a peft adapter, or a Hub
name. A function calls only those below it, except that the base of an adapter is a checkpoint too
(`fill`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch

from interventune.models.adapters import (
    add_adapter,
    asked_for,
    base_digest,
    merge_adapter,
    merge_folder,
    own_weights,
)
from interventune.models.backbones import (
    ARCHITECTURES,
    RANDOM,
    ArchitectureName,
    Backbone,
    EncoderModel,
)
from interventune.models.checkpoint import (
    CheckpointInfo,
    architecture_of,
    heads_class,
    is_file,
    peft_base,
    read_checkpoint,
    read_config,
    read_info,
)
from interventune.models.language.likelihood import reads_side_by_side
from interventune.models.language.writing import end_tokens
from interventune.models.weights import refuse_nonfinite
from interventune.storage.errors import DataError, as_data_error

if TYPE_CHECKING:  # transformers is imported where a model is built
    from transformers import PreTrainedConfig, PreTrainedModel

log = logging.getLogger(__name__)
M = TypeVar("M", bound=EncoderModel)

START_FROM = {
    "span": ("rationale",),
    "rationale": ("span",),
    "xlnet": ("span",),
    "choice": ("span", "rationale", "xlnet"),
    "causal": (),
}
"""Heads of checkpoints from which a model with other heads can start: it takes over the encoder
and, except for `choice`, the span head.
"""


def start(backbone: Backbone, kind: type[M], **options: Any) -> M:
    """Return the model to train, in training mode, with an adapter if `lora_rank` is set. An
    adapter of the same kind in the checkpoint is trained further; any other is merged first.

    Weights missing from `backbone.checkpoint` are random, from torch's global seed. `START_FROM`
    lists what a checkpoint of this project provides; any other provides encoder and span head.
    DataError: nothing usable is found, or this model cannot start from the checkpoint's heads or
    their options.

    Args:
        options: of the heads, see the constructor of `kind`.
    """
    from interventune.models.kernels import (  # imports transformers, needed only here
        compile_layers,
        use_kernels,
    )

    if backbone.causal != (kind.heads == "causal"):
        what = f"{backbone.architecture} is {'a decoder' if backbone.causal else 'an encoder'}"
        raise DataError(f"backbone.architecture: {what}, on which {kind.heads!r} heads do not go")
    # The files of an encoder include a head, which is trained.
    dtype = backbone.frozen_weights if backbone.causal else "float32"
    model = open_model(backbone, kind, options, dtype=dtype)
    if backbone.causal and not reads_side_by_side(model.encoder):
        raise DataError(
            f"backbone: a {model.config.model_type!r} model does not read two candidates after "
            "one prompt as it reads each alone; it can be evaluated, but not trained here"
        )
    if backbone.lora_rank:
        if backbone.checkpoint == RANDOM:
            log.warning(
                "backbone.lora_rank: the random base is not trained, so the model learns little"
            )
        if not model.adapter:
            add_adapter(model, asked_for(backbone))
        for weight in model.encoder.parameters():
            if not weight.requires_grad:
                weight.data = weight.data.to(getattr(torch, backbone.frozen_weights))
    if backbone.gradient_checkpointing:
        with as_data_error("backbone.gradient_checkpointing"):
            model.encoder.gradient_checkpointing_enable()
    use_kernels(model)
    if backbone.compile:
        compile_layers(model)
    return model.train()


def load(path: str, kind: type[M], dtype: str = "float32") -> tuple[M, CheckpointInfo]:
    """Load a model in evaluation mode: from this project's `.ckpt`, a Hugging Face folder, or a Hub
    name.

    Args:
        kind: the model class that the caller needs, such as `QAModel` for any model that answers
            questions about a text. A folder gives a span model, a decoder's folder a causal one;
            for `ChoiceModel`, its encoder with a head of fixed random weights, as an untrained
            baseline.
        dtype: of a folder's weights, see `load_pretrained`; a `.ckpt` keeps its own.

    Raises:
        DataError: nothing usable is found.
    """
    info, new_head = read_info(path), logging.WARNING
    backbone = Backbone(architecture=cast(ArchitectureName, info.architecture), checkpoint=path)
    found, options = (
        heads_class(info.heads or ("causal" if backbone.causal else "span")),
        info.head_options,
    )
    if not issubclass(found, kind):
        if info.heads or backbone.causal:
            raise DataError(f"{path}: a checkpoint with {found.heads!r} heads cannot be asked here")
        found, options, new_head = (
            kind,
            {"generator": torch.Generator().manual_seed(0)},
            logging.INFO,
        )
        info = replace(info, encoding={})  # it belongs to other heads
    return open_model(backbone, found, options, dtype=dtype, new_head=new_head).eval(), info


def from_pretrained(pretrained: Any, path: str) -> EncoderModel:
    """Put this project's heads on a transformers model for span answers or a causal one. DataError
    for any other kind; the message names `path`.
    """
    architecture = architecture_of(pretrained.config, path, type(pretrained).__name__)
    row = ARCHITECTURES[architecture]
    head = (
        pretrained.get_output_embeddings() if row.causal else hasattr(pretrained, row.span_head[-1])
    )
    if not head:
        wanted = "causal language model" if row.causal else "model for question answering"
        raise DataError(f"{path}: a {type(pretrained).__name__} is no {wanted}")
    return cast(
        EncoderModel, heads_class("causal" if row.causal else "span")(pretrained, architecture)
    )


def open_model(
    backbone: Backbone,
    kind: type[M],
    options: dict[str, Any],
    *,
    dtype: str = "float32",
    new_head: int = logging.INFO,
) -> M:
    """Return a model of this kind with the weights of the checkpoint. A `.ckpt` with the same heads
    gives them too, and its adapter stays apart if it has the rank of `backbone`; any other adapter
    is merged.

    Args:
        options: of the heads, see the constructor of `kind`.
        dtype, new_head: see `load_pretrained`.
    """
    path = backbone.checkpoint
    if is_file(path):
        info = read_info(path).require(architecture=backbone.architecture)
        if info.heads == kind.heads:
            _, model = fill(info, backbone, kind, options, dtype)
            if (wanted := model.head_options) != info.head_options:
                raise DataError(
                    f"{path}: heads with {info.head_options}, but {wanted} are asked for"
                )
            return (
                model if model.adapter.get("rank") == backbone.lora_rank else merge_adapter(model)
            )
        known = (kind.heads, *START_FROM[kind.heads])
        if info.heads not in known:
            raise DataError(
                f"{path}: the checkpoint has {info.heads!r} heads, from which {kind.heads!r} "
                f"heads cannot start; give one with {' or '.join(map(repr, known))} heads"
            )
        log.info("%s: only what %r and %r heads share is taken over", path, info.heads, kind.heads)
    pretrained = load_pretrained(backbone, dtype=dtype, new_head=new_head)
    return kind(pretrained, backbone.architecture, **options)


def load_pretrained(
    backbone: Backbone, *, dtype: str = "float32", new_head: int = logging.INFO
) -> PreTrainedModel:
    """Load transformers' extractive-QA or causal language model of `backbone`, in training mode;
    all weights are trainable, and adapters are merged.

    Args:
        dtype: of a folder's weights; `auto` is that of its files. An adapter is merged in float32.
        new_head: level of the log line about a randomly initialised span head, which is normal in
            training.

    Raises:
        DataError: there is no such checkpoint, it is of another architecture, its weights do not
            fit its configuration or are not finite, or `backbone.config` does not suit it.
    """
    path, row = backbone.checkpoint, ARCHITECTURES[backbone.architecture]
    if path == RANDOM:
        if not row.model_type:
            raise DataError(
                "backbone.checkpoint: random weights need an architecture with sizes, as llama"
            )
        model = build_empty({"model_type": row.model_type, **row.tiny}, backbone)
        if backbone.reading_init:
            from interventune.models.tiny_init import reading_init_  # used only by tests and demos

            reading_init_(model)
        return model
    if is_file(path):
        info = read_info(path).require(architecture=backbone.architecture)
        model, own = fill(info, backbone, heads_class(info.heads), info.head_options)
        merge_adapter(own)
        return model
    config, base = read_config(path), peft_base(path)
    if row.model_type and config.model_type != row.model_type:
        raise DataError(
            f"backbone.checkpoint: {path!r} is a {config.model_type!r} model, but "
            f"backbone.architecture is {backbone.architecture!r} (model type {row.model_type!r})"
        )
    model, has_head = read_folder(
        model_class(backbone),
        base,
        own_head=backbone.causal,
        config=configured(config.to_dict(), backbone),
        dtype=dtype if base == path else "float32",
    )
    if base != path:
        model, brings_head = merge_folder(model, path)
        has_head = has_head or brings_head
        refuse_nonfinite(model.state_dict(), path)
    if not has_head:
        log.log(
            new_head, "%s: span head starts random; answers and scores by it mean nothing yet", path
        )
    if backbone.causal:
        model.config.eos_token_id = (
            end_tokens(model) or None
        )  # a checkpoint has no generation_config.json
    return model.requires_grad_(True).train()


def fill(
    info: CheckpointInfo,
    backbone: Backbone,
    kind: type[M],
    options: dict[str, Any],
    dtype: str = "float32",
) -> tuple[PreTrainedModel, M]:
    """Load a `.ckpt` with its adapter, if any, apart. Return transformers' model, and the model
    with heads on the same modules.

    Args:
        kind, options: the model with the heads of the checkpoint, and their options.
        dtype: of an adapter's base, unless the adapter is to be merged.
    """
    path, base = info.path, info.adapter.get("base")
    try:
        if base:
            if base_digest(base) != info.adapter["digest"]:
                raise DataError("its weights have changed since the training; restore them")
            below = replace(backbone, checkpoint=base, lora_rank=0)
            apart = info.adapter["rank"] == backbone.lora_rank
            pretrained = load_pretrained(below, dtype=dtype if apart else "float32")
        else:
            pretrained = build_empty(info.config, backbone)
    except (ValueError, OSError) as error:  # OSError: the Hub cannot be reached
        needs = f"its adapter needs {base!r}: " if base else ""
        raise DataError(f"{path}: {needs}{error}") from error
    model = kind(pretrained, info.architecture, **options)
    if info.adapter:
        add_adapter(model, info.adapter)
    weights = read_checkpoint(path)["state_dict"]
    weights = {name.removeprefix("model."): weight for name, weight in weights.items()}
    needed = own_weights(model, model.state_dict())
    try:
        unexpected = model.load_state_dict(weights, strict=False).unexpected_keys
    except RuntimeError as error:  # another shape
        raise DataError(f"{path}: {str(error).splitlines()[-1].strip()}") from error
    if missing := sorted(needed.keys() - weights.keys()):
        raise DataError(f"{path}: {len(missing)} weights are missing (first: {missing[0]})")
    if more := sorted(name for name in unexpected if name.startswith("encoder.")):
        raise DataError(
            f"{path}: its configuration has no place for {len(more)} weights, as {more[0]}"
        )
    refuse_nonfinite(model.state_dict(), path)
    return pretrained, model


def read_folder(
    kind: Any, path: str, *, own_head: bool = True, **options: Any
) -> tuple[PreTrainedModel, bool]:
    """Load a model of a class of transformers from a folder or the Hub, in evaluation mode. Return
    it, and whether the checkpoint has its head.

    Args:
        own_head: whether the checkpoint must have the head of `kind`, and no other.
        options: of `from_pretrained`.

    Raises:
        DataError: the checkpoint is unreadable; weights are missing, of another shape, not finite,
            or such as the model does not have. Pooling layers are ignored where the head may be
            another.
    """
    from transformers.utils.logging import get_verbosity, set_verbosity, set_verbosity_error

    verbosity = get_verbosity()
    set_verbosity_error()  # missing or mismatched weights are reported below
    options |= {
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,
        "trust_remote_code": False,
    }
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
            raise DataError(
                f"{path}: does not fit its configuration: weights {problem}, as {first}"
            )
    refuse_nonfinite(model.state_dict(), path)
    return model, all(".pooler." in key for key in info["missing_keys"])


def build_empty(values: Mapping[str, Any], backbone: Backbone) -> PreTrainedModel:
    """Build a model with random weights; DataError if the configuration contradicts itself."""
    config = configured(values, backbone)
    with as_data_error("backbone"):
        model: PreTrainedModel = model_class(backbone).from_config(config, dtype=torch.float32)
    return model


def configured(values: Mapping[str, Any], backbone: Backbone) -> PreTrainedConfig:
    """Return a transformers configuration of these values, overridden by the architecture's and the
    user's. DataError for a key or value in `backbone.config` that the architecture does not accept.
    """
    from transformers import AutoConfig

    known = AutoConfig.for_model(values["model_type"])
    for key in backbone.config:
        if not hasattr(known, key):
            raise DataError(f"backbone.config: {known.model_type!r} has no setting {key!r}")
    settings = ARCHITECTURES[backbone.architecture].settings
    with as_data_error("backbone.config"):
        return AutoConfig.for_model(**{**values, **settings, **backbone.config})


def model_class(backbone: Backbone) -> Any:
    """Return the class of transformers that a backbone becomes."""
    from transformers import AutoModelForCausalLM, AutoModelForQuestionAnswering

    return AutoModelForCausalLM if backbone.causal else AutoModelForQuestionAnswering
