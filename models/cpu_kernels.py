"""Attention and dropout for training on CPUs, several times faster than torch's own there; linear
layers for inference in float32.

Operands of products are contiguous (otherwise they miss the fast bfloat16 path), one 64-bit draw
covers four elements of a dropout mask, and masks are applied as bits. On other devices torch's own
kernels run.

Shape letters: B batch, H heads, T tokens, D size of a head.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

ATTENTION = "cpu"
"""The name under which `attention_forward` is registered with transformers."""
_STEPS = 1 << 15


def keep_probability(p: float) -> float:
    """The share of elements that dropout `p` keeps here: `1 - p`, to the nearest 2**-15."""
    return round((1 - p) * _STEPS) / _STEPS


def keep_bits(shape: torch.Size, p: float) -> Tensor:
    """Random int16 of `shape`: -1 (all bits set) with `keep_probability(p)`, else 0; by torch's
    generator.
    """
    count = math.prod(shape)
    # random_ fills 63 bits of each int64; the highest bit of each of its four int16 is cleared.
    draws = torch.empty(-(-count // 4), dtype=torch.int64).random_()
    bits = draws.view(torch.int16)[:count].view(shape)
    bits.bitwise_and_(_STEPS - 1).sub_(round((1 - p) * _STEPS))
    return bits.bitwise_right_shift_(15)


class _Masked(torch.autograd.Function):
    """Values where bits are set, 0 elsewhere; with the same mask for the gradient."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, bits: Tensor) -> Tensor:
        ctx.save_for_backward(bits)
        as_int = torch.int16 if values.element_size() == 2 else torch.int32
        return values.view(as_int).bitwise_and(bits.to(as_int)).view(values.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _Masked.apply(gradient.contiguous(), *ctx.saved_tensors), None


class Dropout(nn.Dropout):
    """nn.Dropout with faster mask generation on CPUs; it is plain nn.Dropout on other devices and
    for types other than float32, bfloat16 and float16.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Zero elements at random during training, and scale up the others."""
        if not self.training or not 0 < self.p < 1 or not _has_kernel(input):
            return super().forward(input)
        dropped = _Masked.apply(input.contiguous(), keep_bits(input.shape, self.p))
        return dropped.mul_(1 / keep_probability(self.p))


def cpu_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    p: float = 0.0,
    scaling: float,
) -> Tensor:
    """softmax(scaling * query key^T + mask) value, with dropout `p` on the weights.

    Args:
        query, key, value: (B, H, T, D), of one dtype.
        mask: broadcastable to (B, H, T, T): True for visible tokens, or values added to the scores.
        p: share of the weights that is dropped.
        scaling: factor of the scores, commonly D ** -0.5.
    """
    query, key, value = (x.contiguous() for x in (query * scaling, key, value))
    score = query @ key.transpose(2, 3)
    if mask is not None:
        if mask.stride(2) == 0:
            mask = mask[:, :, :1]  # every query sees the same keys
        if mask.dtype == torch.bool:
            lowest = torch.finfo(query.dtype).min
            mask = torch.zeros(mask.shape, dtype=query.dtype).masked_fill_(~mask, lowest)
        score = score.add_(mask.to(query.dtype))
    weight = score.softmax(-1)
    if p:
        weight = _Masked.apply(weight, keep_bits(weight.shape, p))
    return (weight @ value).mul_(1 / keep_probability(p))


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, None]:
    """An attention function for transformers' encoders, to (B, T, H, D): this project's where
    faster, else theirs.
    """
    p, scaling = options["dropout"], options["scaling"]
    # Measured: torch's fused kernel is faster in float32 without dropout.
    if not _has_kernel(query) or (query.dtype == torch.float32 and not p):
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    mixed = cpu_attention(query, key, value, attention_mask, p=p, scaling=scaling)
    return mixed.transpose(1, 2).contiguous(), None


def _has_kernel(values: Tensor) -> bool:
    return values.device.type == "cpu" and values.element_size() <= 4


def replace_dropout(model: nn.Module) -> None:
    """Make every nn.Dropout a `Dropout`."""
    for parent in model.modules():
        for name, child in parent.named_children():
            if type(child) is nn.Dropout:
                setattr(parent, name, Dropout(child.p, child.inplace).train(child.training))


class Linear(nn.Linear):
    """nn.Linear by oneDNN; torch's own with gradients, on other devices and in other types.

    Torch uses MKL for float32 products, which takes twice as long on AMD (SmolLM2's layers, one
    core: 80 against 160 to 180 GFLOP/s).
    """

    def forward(self, input: Tensor) -> Tensor:
        """Compute input weight^T + bias, (..., in) to (..., out)."""
        usable = input.device.type == "cpu" and input.dtype == self.weight.dtype == torch.float32
        if not usable or torch.is_grad_enabled() or not input.numel():
            return super().forward(input)
        return torch.ops.mkldnn._linear_pointwise(
            input.contiguous(), self.weight, self.bias, "none", [], ""
        )


def use_linear_kernels(model: nn.Module) -> None:
    """Make every nn.Linear a `Linear`, if torch was built with oneDNN."""
    if hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        for layer in model.modules():
            if type(layer) is nn.Linear:
                layer.__class__ = Linear


AttentionInterface.register(ATTENTION, attention_forward)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
