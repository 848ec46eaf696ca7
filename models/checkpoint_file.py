"""The file of a checkpoint: one of Lightning with a part of ours, read without unpickling anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

KEY = "interventune"
"""Where our part of a Lightning checkpoint lies."""
FORMAT = 1


class CheckpointError(ValueError):
    """A checkpoint that is missing, truncated, not ours, or of another architecture."""


def read_ckpt(path: Path, *, mmap: bool = False) -> dict[str, Any]:
    """A Lightning checkpoint as a dict, read with `weights_only=True`; `mmap` leaves the weights on disk."""
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such checkpoint") from error
    except Exception as error:  # what an unpickler makes of bytes that are no checkpoint: a dozen types
        raise CheckpointError(
            f"{path}: not a readable checkpoint (truncated, or not written by `python -m training`): "
            f"{(str(error) or type(error).__name__).splitlines()[0][:120]}"
        ) from error
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get(KEY), dict):
        raise CheckpointError(f"{path}: not a checkpoint of this project (it has no {KEY!r} entry)")
    if (found := checkpoint[KEY].get("format")) != FORMAT or isinstance(found, bool):
        raise CheckpointError(f"{path}: of format {found!r}; this version reads format {FORMAT}")
    _check_parts(checkpoint, path)
    return checkpoint


_PARTS: dict[str, tuple[type, ...]] = {
    "architecture": (str,),
    "config": (str,),
    "tokenizer": (dict, str),
    "encoding": (dict,),
}
"""What our part must hold; `heads` and `head_options` came later and may be absent."""


def _check_parts(checkpoint: dict[str, Any], path: Path) -> None:
    about = checkpoint[KEY]
    wrong = [name for name, kinds in _PARTS.items() if not isinstance(about.get(name), kinds)]
    wrong += [] if isinstance(about.get("heads", ""), str) else ["heads"]
    wrong += [] if isinstance(about.get("head_options", {}), dict) else ["head_options"]
    if isinstance(files := about.get("tokenizer"), dict) and not all(
        isinstance(text, str) for text in files.values()
    ):
        wrong.append("tokenizer")
    wrong += [] if isinstance(checkpoint.get("state_dict"), dict) else ["state_dict"]
    if wrong:
        raise CheckpointError(f"{path}: damaged: {wrong[0]!r} is absent or of a wrong type")
