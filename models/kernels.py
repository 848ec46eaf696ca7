"""Kernels that are faster than those torch chooses, on the device of this machine;
compiled layers.
"""

from __future__ import annotations

import torch

from interventune.models import cpu_kernels, gpu_kernels
from interventune.models.backbones import EncoderModel, encoder_layers


def use_kernels(model: EncoderModel) -> None:
    """Replace attention, and on CPUs dropout, where the architecture allows it."""
    kernels = gpu_kernels if torch.cuda.is_available() else cpu_kernels
    kernels.use_kernels(model)


def compile_layers(model: EncoderModel) -> None:
    """Compile every layer for any batch size and length, on a GPU; one compilation serves all
    layers.
    """
    if torch.cuda.is_available():
        for layer in encoder_layers(model.encoder):
            layer.compile(dynamic=True)
