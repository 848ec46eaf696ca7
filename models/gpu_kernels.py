"""Attention of encoders on GPUs by torch's flash kernel.

The flash kernel takes no mask, so torch uses a slower one for padded batches. Here a row's tokens
and its padding are two separate sequences: nothing is copied, and the CPU never waits to learn the
lengths.

Shape letters: B batch, H heads, T tokens, D size of a head.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import bidirectional_mask_function, sdpa_mask

ATTENTION = "gpu"
"""The name under which `attention_forward` is registered with transformers."""


def sequence_bounds(mask_BT: Tensor) -> Tensor:
    """Return where sequences begin in the flattened batch, and its end: int32, (2B + 1). A row is
    two sequences: its tokens, and the padding after them, which may be empty.
    """
    rows, width = mask_BT.shape
    begin_B = torch.arange(rows, device=mask_BT.device) * width
    bounds_BE = torch.stack((begin_B, begin_B + (mask_BT != 0).sum(1)), 1)
    return pad(bounds_BE.flatten(), (0, 1), value=rows * width).int()


def mask_of(
    *, attention_mask: Tensor | None = None, dtype: torch.dtype, **options: Any
) -> Tensor | None:
    """A mask function for transformers: `sequence_bounds` where the flash kernel can be used, else
    transformers' own mask. The kernel needs half precision and attention to all tokens of the row.
    """
    half = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else dtype
    plain = options["mask_function"] is bidirectional_mask_function
    if plain and half.itemsize == 2 and attention_mask is not None and attention_mask.is_cuda:
        return sequence_bounds(attention_mask)
    return sdpa_mask(attention_mask=attention_mask, dtype=dtype, **options)


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, None]:
    """An attention function for transformers, (B, H, T, D) to (B, T, H, D)."""
    if attention_mask is None or attention_mask.ndim > 1:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    rows, _, width, _ = query.shape
    flat = (states.transpose(1, 2).flatten(0, 1) for states in (query, key, value))
    bounds = (attention_mask, attention_mask, width, width)
    mixed, *_ = torch.ops.aten._flash_attention_forward(
        *flat, *bounds, options["dropout"], False, False, scale=options["scaling"]
    )
    return mixed.unflatten(0, (rows, width)), None


def has_flash_attention() -> bool:
    """Whether the GPU and torch have the kernel."""
    return (
        torch.cuda.get_device_capability()[0] >= 8
        and torch.backends.cuda.is_flash_attention_available()
    )


AttentionInterface.register(ATTENTION, attention_forward)
AttentionMaskInterface.register(ATTENTION, mask_of)
