"""The Python interface: the commands as functions, for notebooks and other programs.

    import interventune as it

    model = it.load_checkpoint("runs/run/version_0/checkpoints/best.ckpt")
    groups = it.read_groups("stories:heldout")
    it.group_bias(groups, it.score_groups(model, groups)).groupby("class").c.mean()

Functions are loaded on first use, so importing this package is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import (
        answer,
        evaluate,
        group_bias,
        load_checkpoint,
        read_groups,
        read_questions,
        score_groups,
        train,
    )
    from .probe import LightningProbe, Probe, TransformersProbe

__all__ = [
    "LightningProbe",
    "Probe",
    "TransformersProbe",
    "answer",
    "evaluate",
    "group_bias",
    "load_checkpoint",
    "read_groups",
    "read_questions",
    "score_groups",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "interventune.probe" if name.endswith("Probe") else "interventune.api"
    return getattr(import_module(module), name)
