"""Processes started by torchrun: joining them, and exchanging values."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from interventune.models.backbones import pick_device

LONGEST_WAIT = timedelta(hours=12)
"""Time limit for a process whose share takes longer than another's."""


@contextmanager
def joined(device: str) -> Iterator[str]:
    """Join the others, if necessary; yield the device of this process. ValueError if it
    is absent.
    """
    device, before = local_device(device), dist.is_initialized()
    if device.startswith("cuda"):
        torch.cuda.set_device(pick_device(device))
    if not before:
        dist.init_process_group(timeout=LONGEST_WAIT)
    yield device
    if not before:  # not after an error, when the others may still wait: torchrun ends them
        dist.destroy_process_group()


def gathered(value: Any) -> list[Any]:
    """Return the value of each process, by rank; ValueError if a process is gone."""
    values: list[Any] = [None] * dist.get_world_size()
    try:
        dist.all_gather_object(values, value)
    except RuntimeError as error:
        raise ValueError(
            "another process has ended, by its own error or for want of memory"
        ) from error
    return values


def local_device(wanted: str) -> str:
    """Return the GPU of this process if `wanted` is `cuda`, or `auto` on a machine with GPUs."""
    if wanted == "cuda" or (wanted == "auto" and torch.cuda.is_available()):
        return f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
    return wanted
