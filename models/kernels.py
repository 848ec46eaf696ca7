"""Kernels that are faster than those torch chooses, on the device of this machine;
compiled layers.
"""

import torch

from . import cpu_kernels, gpu_kernels
from .backbones import EncoderModel, encoder_layers


def use_kernels(model: EncoderModel) -> None:
    """Replace attention by this project's, and on CPUs dropout, where the architecture and the
    device allow it. Nothing changes for decoders: torch's kernels suit causal attention.
    """
    attention = cpu_kernels.ATTENTION
    if model.heads == "causal":
        return
    if not torch.cuda.is_available():
        cpu_kernels.replace_dropout(model)
    elif gpu_kernels.has_flash_attention():
        attention = gpu_kernels.ATTENTION
    else:
        return
    if model.config._attn_implementation == "sdpa" and model.encoder._can_set_attn_implementation():
        model.encoder.set_attn_implementation(attention)


def compile_layers(model: EncoderModel) -> None:
    """Compile every layer for any batch size and length, on a GPU; one compilation serves all
    layers.
    """
    if torch.cuda.is_available():
        for layer in encoder_layers(model.encoder):
            layer.compile(dynamic=True)
