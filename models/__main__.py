"""interventune export CHECKPOINT FOLDER: write a checkpoint as a Hugging Face folder."""

import json
import logging
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

from interventune.storage.command_line import run
from interventune.storage.documents import atomic

log = logging.getLogger(__name__)


def export(checkpoint: str, folder: Annotated[Path, "folder"], *, adapter: bool = False) -> None:
    """Write a checkpoint as a Hugging Face folder: weights, configuration, tokenizer, and the text
    encoding used in training (interventune.json). Evaluating the folder gives the checkpoint's
    numbers, except those of rationale heads, which are left out, because transformers has no class
    for them: without them, a model does not say what training on interventions taught it.

    An adapter (LoRA) is merged into its base, unless --adapter is given.

    Example: interventune export runs/squad/version_0/checkpoints/best.ckpt my_model

    Args:
        checkpoint: a .ckpt written by `interventune train`.
        folder: the folder to write; it must not exist.
        adapter: write only the adapter, and an encoder's span head, as a peft folder that names its
            base.
    """
    from safetensors import SafetensorError

    from interventune.storage.documents import DataError

    from .adapters import save_adapter
    from .backbones import Backbone
    from .checkpoint import RECORD, heads_class
    from .loading import open_model, read_info

    if folder.exists():
        raise DataError(f"{folder}: already exists; name a new folder")
    info = read_info(checkpoint)
    if info.heads not in ("span", "rationale", "causal"):
        reason = "no .ckpt of ours"
        if info.heads:
            reason = f"{info.heads!r} heads have no counterpart in transformers"
        raise DataError(f"{checkpoint}: {reason}; use it as it is")
    base = info.adapter.get("base", "")
    if adapter and (not base or info.heads == "rationale"):
        raise DataError(
            f"{checkpoint}: --adapter needs LoRA on a pretrained base, and no rationale heads; "
            "export the whole model, without --adapter"
        )
    if info.heads == "rationale":
        log.warning(
            "%s: transformers has no class for the 'rationale' heads; the folder gets encoder "
            "and span head only, so its answers are not those of the checkpoint",
            checkpoint,
        )
    tokenizer: Any = info.tokenizer
    rank = info.adapter["rank"] if adapter else 0
    backbone = Backbone(architecture=info.architecture, checkpoint=checkpoint, lora_rank=rank)
    pretrained, model = open_model(backbone, heads_class(info.heads), {})
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic(folder) as staged:
            staged.mkdir()
            if adapter:
                save_adapter(model, pretrained, staged)
            else:
                pretrained.save_pretrained(staged)
            for name, text in tokenizer.items():
                (staged / Path(name).name).write_text(text, encoding="utf-8")
            record = {"encoding": info.encoding, "heads": {"name": info.heads}}
            (staged / RECORD).write_text(json.dumps(record))
            for weights in staged.glob("*.safetensors"):  # only their owner may read these
                shutil.copymode(staged / RECORD, weights)
    except (OSError, SafetensorError) as error:  # safetensors has its own type for a full disk
        raise DataError(f"{folder}: cannot be written: {' '.join(str(error).split())}") from error
    load = f"{type(pretrained).__name__}.from_pretrained({str(folder)!r})"
    if adapter:
        below = f"an export of {base}" if Path(base).is_file() else base
        load = f"PeftModel.from_pretrained(base, {str(folder)!r}), where base is {below}"
    print(f"{folder}: load it with {load}")


def main(argv: list[str] | None = None) -> int:
    """Return 0 after writing the folder, 2 for a mistake that the user can fix."""
    return run(export, "interventune export", argv)


if __name__ == "__main__":
    sys.exit(main())
