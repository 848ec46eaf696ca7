"""A run that resumes is still the run that its config.yaml describes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interventune.storage.documents import load_yaml, read_text
from interventune.storage.json_files import load_json

MAY_CHANGE = re.compile(
    r"(ckpt_path|run|checkpoint|(data|model)(\.init_args)?\.(num_workers|cache|reference_cache)"
    r"|trainer\.(logger|callbacks|devices|accelerator|num_nodes|strategy|max_time|log_every_n_steps"
    r"|enable_progress_bar))(\.|$)"
)
"""Settings, or sections, that may change. docs/scale.md lists them too."""
LIMITS = ("trainer.max_epochs", "trainer.max_steps")
"""They may change if one of them grows: from epochs to more steps, for example."""
BATCH = "trainer.accumulate_grad_batches"
"""May change with the number of processes, so that a step takes as many questions as before."""
ANEW = "or start anew with another --run.version, from its weights with --backbone.checkpoint"


def run_folder(checkpoint: str) -> Path:
    """Return the folder of the run that wrote a checkpoint."""
    return Path(checkpoint).resolve().parent.parent


def changes(config: dict[str, Any], folder: Path, step: int) -> list[str]:
    """Return a comment for every setting that differs from those of the run in `folder`, after the
    comments in its config.yaml. ValueError for one that must not, or without that file.
    """
    from transformers.utils.generic import flatten_dict  # takes a second, needed only here

    saved = folder / "config.yaml"
    now, before = flatten_dict(config), flatten_dict(load_yaml(saved, dict[str, Any]))
    comments = [line for line in read_text(saved).splitlines() if line.startswith("#")]
    longer = any(_number(now.get(key)) > _number(before.get(key)) for key in LIMITS)
    others = any(
        now.get(key) != before.get(key) for key in ("trainer.devices", "trainer.num_nodes")
    )
    for key in {**now, **before}:
        if (new := now.get(key)) != (old := before.get(key)):
            flag, was = key.replace(".init_args", ""), json.dumps(old, default=str)
            change = f"{flag} {json.dumps(new, default=str)} (before: {was})"
            comments.append(f"# from step {step}: {change}")
            if not (
                MAY_CHANGE.match(key) or (longer and key in LIMITS) or (others and key == BATCH)
            ):
                raise ValueError(
                    f"{change}: differs from {saved}; resume with the old value, {ANEW}"
                )
    return comments


def refuse_other_data(digests: Mapping[str, str], folder: Path) -> None:
    """ValueError if a file is not the one that the run in `folder` has read."""
    before = load_json(folder / "environment.json", dict[str, Any]).get("data", {})
    if changed := [source for source in digests if digests[source] != before.get(source)]:
        raise ValueError(f"{changed[0]}: has changed since {folder} began; restore it, {ANEW}")


def _number(limit: int | None) -> float:
    return math.inf if limit in (None, -1) else limit
