"""Models from their files: `start` returns the model to train, `load` the one to evaluate.

Both read a `.ckpt` of this project, a Hugging Face folder, a folder of a peft adapter, or a Hub
name. A function calls only those below it; `fill` also reads the base of an adapter.
"""

import logging
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from interventune.storage.documents import DataError, Values, as_data_error, load_json

from .adapters import (
    add_adapter,
    base_digest,
    merge_adapter,
    merge_folder,
    own_weights,
    peft_base,
    read_config,
    requested_adapter,
)
from .backbones import (
    ARCHITECTURES,
    RANDOM,
    Backbone,
    EncoderModel,
    Pretrained,
    architecture_of,
    reading_init_,
)
from .checkpoint import (
    RECORD,
    CheckpointInfo,
    heads_class,
    read_checkpoint,
    read_record,
    refuse_nonfinite,
)
from .language.model_calls import end_tokens, reads_side_by_side

log = logging.getLogger(__name__)
M = TypeVar("M", bound=EncoderModel)


def start(backbone: Backbone, kind: type[M], **options: Any) -> M:
    """Return the model to train, in training mode, with an adapter if `lora_rank` is set. An
    adapter of the same kind in the checkpoint is trained further; any other is merged first.

    Weights missing from `backbone.checkpoint` are random, from torch's global seed.

    Args:
        options: of the heads, see the constructor of `kind`; by default those of the checkpoint.

    Raises:
        DataError: nothing usable is found, or this model cannot start from the checkpoint's heads
            or their options.
    """
    from .kernels import compile_layers, use_kernels  # imports transformers

    _, model = open_model(backbone, kind, options)
    if backbone.causal and not reads_side_by_side(model.encoder.eval()):
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
            add_adapter(model, requested_adapter(backbone))
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


def load(path: str, kind: type[M], dtype: Any = "float32") -> tuple[M, CheckpointInfo]:
    """Load a model in evaluation mode. DataError: nothing usable is found.

    Args:
        kind: the model class that the caller needs, such as `QAModel` for any model that answers
            questions about a text. A folder gives a span model, a decoder's folder a causal one;
            for `ChoiceModel`, its encoder with a head of fixed random weights, as an untrained
            baseline.
        dtype: of a decoder's folder, `auto` is that of its files; all other models are float32.
    """
    info = read_info(path)
    backbone = Backbone(architecture=info.architecture, checkpoint=path, frozen_weights=dtype)
    heads = heads_class(info.heads or ("causal" if backbone.causal else "span"))
    options = info.head_options
    if not issubclass(heads, kind):
        if info.heads or backbone.causal:
            raise DataError(f"{path}: a checkpoint with {heads.heads!r} heads cannot be asked here")
        heads = kind
        options = {"generator": torch.Generator().manual_seed(0)}
        info = replace(info, encoding={})  # it belongs to other heads
    _, model = open_model(backbone, heads, options, warn=heads.heads == "span")
    return model.eval(), info


def from_pretrained(pretrained: Any, path: str) -> EncoderModel:
    """Put this project's heads on a transformers model for span answers or a causal one. DataError
    for any other kind; the message names `path`.
    """
    architecture = architecture_of(pretrained.config, path, type(pretrained).__name__)
    row = ARCHITECTURES[architecture]
    if row.causal:
        what = "causal language model"
        head = pretrained.get_output_embeddings()
    else:
        what = "model for question answering"
        head = hasattr(pretrained, row.span_head[-1])
    if not head:
        raise DataError(f"{path}: a {type(pretrained).__name__} is no {what}")
    return heads_class("causal" if row.causal else "span")(pretrained, architecture)


def open_model(
    backbone: Backbone, kind: type[M], options: Values, *, warn: bool = False
) -> tuple[Pretrained, M]:
    """Return transformers' model of a checkpoint, and a model of this kind on the same modules. A
    `.ckpt` with the same heads gives them too, and its adapter stays apart if it has the rank of
    `backbone`; any other adapter is merged.

    Args:
        options: of the heads, as in `start`.
        warn: see `load_pretrained`.
    """
    path = backbone.checkpoint
    if not is_file(path):
        pretrained = load_pretrained(backbone, warn=warn)
        return pretrained, kind(pretrained, backbone.architecture, **options)
    info = read_record(path)
    same_heads = info.heads == kind.heads
    usable = (kind.heads, *kind.starts_from)
    if info.heads not in usable:
        raise DataError(
            f"{path}: the checkpoint has {info.heads!r} heads, from which {kind.heads!r} heads "
            f"cannot start; give one with {' or '.join(map(repr, usable))} heads"
        )
    expected = info.head_options | options
    if same_heads and expected != info.head_options:
        raise DataError(f"{path}: heads with {info.head_options}, but {expected} are asked for")
    pretrained, model = fill(info, backbone)
    if not same_heads or model.adapter.get("rank") != backbone.lora_rank:
        merge_adapter(model)
    if not same_heads:
        model = kind(pretrained, backbone.architecture, **options)
    return pretrained, model


def fill(info: CheckpointInfo, backbone: Backbone) -> tuple[Pretrained, Any]:
    """Load a `.ckpt` with its heads and, apart, its adapter, if any; return as `open_model`."""
    from transformers.initialization import no_init_weights

    path, base = info.path, info.adapter.get("base")
    kind = heads_class(info.heads)
    try:
        if base:
            if base_digest(base) != info.adapter["digest"]:
                raise DataError("its files have changed since the training; restore them")
            merges = info.adapter["rank"] != backbone.lora_rank
            dtype = "float32" if merges else backbone.frozen_weights
            config = info.adapter["config"] | backbone.config
            below = replace(
                backbone, checkpoint=base, config=config, lora_rank=0, frozen_weights=dtype
            )
            pretrained, model = open_model(below, kind, info.head_options)
        else:
            with no_init_weights():
                pretrained = build(info.config, backbone)
            pretrained.tie_weights()
            model = kind(pretrained, info.architecture, **info.head_options)
    except ValueError as error:
        needs = f"its adapter needs {base!r}: " if base else ""
        raise DataError(f"{path}: {needs}{error}") from error
    if info.adapter:
        add_adapter(model, info.adapter)
    weights = read_checkpoint(path)["state_dict"]
    weights = {name.removeprefix("model."): weight for name, weight in weights.items()}
    try:
        wrong = model.load_state_dict(weights, strict=False)
    except RuntimeError as error:  # another shape
        raise DataError(f"{path}: {str(error).splitlines()[-1].strip()}") from error
    if missing := sorted(own_weights(model, dict.fromkeys(wrong.missing_keys))):
        raise DataError(f"{path}: {len(missing)} weights are missing (first: {missing[0]})")
    if more := sorted(name for name in wrong.unexpected_keys if name.startswith("encoder.")):
        raise DataError(
            f"{path}: its configuration has no place for {len(more)} weights, as {more[0]}"
        )
    refuse_nonfinite(model, path)
    return pretrained, model


def load_pretrained(backbone: Backbone, *, warn: bool = False) -> Pretrained:
    """Load transformers' extractive-QA or causal language model of a backbone that is no `.ckpt`,
    in training mode; all weights are trainable. A peft folder is merged, in float32; other weights
    of a decoder have the type `backbone.frozen_weights`.

    Args:
        warn: whether to warn of a span head with random weights, which is normal in training.

    Raises:
        DataError: the checkpoint is absent, of another architecture or damaged, or
            `backbone.config` does not suit it.
    """
    path = backbone.checkpoint
    row = ARCHITECTURES[backbone.architecture]
    if path == RANDOM:
        if not row.model_type:
            raise DataError(
                "backbone.checkpoint: random weights need an architecture with sizes, as llama"
            )
        model = build({"model_type": row.model_type, **row.tiny}, backbone)
        if backbone.reading_init:
            reading_init_(model)
        return model
    kind, config = class_and_config(read_config(path).to_dict(), backbone)
    # The files of an encoder include a head, which is trained, in float32.
    dtype = backbone.frozen_weights if row.causal and peft_base(path) == path else "float32"
    model, has_head = read_folder(kind, path, own_head=row.causal, config=config, dtype=dtype)
    if warn and not has_head:
        log.warning("%s: span head starts random; answers and scores by it mean nothing yet", path)
    if row.causal:  # a checkpoint has no generation_config.json
        model.config.eos_token_id = end_tokens(model) or None
    return model.requires_grad_(True).train()


def read_folder(
    kind: Any, path: str, *, own_head: bool = True, **options: Any
) -> tuple[Pretrained, bool]:
    """Load a model of a class of transformers from a folder or the Hub, in evaluation mode; an
    adapter of peft is merged into its base. Return it, and whether the checkpoint has its head.

    Args:
        own_head: whether the checkpoint must have the head of `kind`, and no other.
        options: of `from_pretrained`.

    Raises:
        DataError: the checkpoint is unreadable; weights are missing, of another shape, not finite,
            or such as the model does not have. Pooling layers are ignored where the head may be
            another.
    """
    from transformers.utils.logging import get_verbosity, set_verbosity, set_verbosity_error

    base, verbosity = peft_base(path), get_verbosity()
    set_verbosity_error()  # missing or mismatched weights are reported below
    try:
        with as_data_error(f"{base}: cannot be loaded"):
            model, info = kind.from_pretrained(
                base,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                trust_remote_code=False,
                **options,
            )
    finally:
        set_verbosity(verbosity)
    body = rf"^{model.base_model_prefix}\.|\b(layers?|h)\.\d"

    def of_interest(key: str) -> bool:
        return own_head or (".pooler." not in key and bool(re.search(body, key)))

    for problem, keys in (
        ("of another shape", [key for key, *_ in info["mismatched_keys"]]),
        ("missing", filter(of_interest, info["missing_keys"])),
        ("that the configuration has no place for", filter(of_interest, info["unexpected_keys"])),
    ):
        if first := min(keys, default=""):
            raise DataError(
                f"{base}: does not fit its configuration: weights {problem}, as {first}"
            )
    refuse_nonfinite(model, base)
    has_head = all(".pooler." in key for key in info["missing_keys"])
    if base != path:
        model, brings_head = merge_folder(model, path)
        has_head |= brings_head
    return model, has_head


def build(values: Values, backbone: Backbone) -> Pretrained:
    """Build a model with random weights, in float32; see `class_and_config`."""
    kind, config = class_and_config(values, backbone)
    with as_data_error("backbone"):  # the configuration may contradict itself
        return kind.from_config(config, dtype=torch.float32)


def class_and_config(values: Values, backbone: Backbone) -> tuple[Any, Any]:
    """Return the class of transformers that a backbone becomes, and its configuration: these
    values, overridden by the architecture's and the user's. DataError: the values are of another
    architecture, or it does not accept a key or value of `backbone.config`.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForQuestionAnswering

    row = ARCHITECTURES[backbone.architecture]
    model_type = values["model_type"]
    if row.model_type and model_type != row.model_type:
        raise DataError(
            f"backbone.checkpoint: {backbone.checkpoint!r} is a {model_type!r} model, but "
            f"backbone.architecture is {backbone.architecture!r} (model type {row.model_type!r})"
        )
    known = AutoConfig.for_model(model_type)
    for key in backbone.config:
        if not hasattr(known, key):
            raise DataError(f"backbone.config: {model_type!r} has no setting {key!r}")
    with as_data_error("backbone.config"):
        config = AutoConfig.for_model(**(values | row.settings | backbone.config))
    return AutoModelForCausalLM if row.causal else AutoModelForQuestionAnswering, config


def read_info(path: str) -> CheckpointInfo:
    """Read what is known of this project's `.ckpt`, a Hugging Face or peft folder, or a Hub name,
    without its weights. DataError if nothing usable is found.
    """
    if is_file(path):
        return read_record(path)
    config = read_config(path)
    file = Path(path) / RECORD
    architecture = architecture_of(config, path, str((config.architectures or [""])[0]))
    record = load_json(file, dict[str, Values]) if file.is_file() else {}
    encoding = record.get("encoding", {})
    if record.get("heads") == {"name": "rationale"}:
        log.warning("%s: was exported without its rationale heads; evaluate its checkpoint", path)
    return CheckpointInfo(path=path, architecture=architecture, tokenizer=path, encoding=encoding)


def is_file(path: str) -> bool:
    """Whether a checkpoint is a `.ckpt`, not a folder or a Hub name."""
    return Path(path).suffix == ".ckpt" or Path(path).is_file()
