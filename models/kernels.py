"""Kernels that are faster than those torch chooses: attention of encoders, dropout for training on
CPUs, linear layers for inference in float32 on CPUs; compiled layers.

On CPUs, operands of products are contiguous (otherwise they miss the fast bfloat16 path), one
64-bit draw covers four elements of a dropout mask, and masks are applied as bits. On GPUs, torch's
flash kernel takes no mask, so torch uses a slower one for padded batches. Here a row's tokens and
its padding are two separate sequences: nothing is copied, and the CPU never waits to learn the
lengths.

Shape letters: B batch, H heads, T tokens, D size of a head.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import bidirectional_mask_function, sdpa_mask

from .backbones import EncoderModel, encoder_layers

ATTENTION = "interventune"
"""The name under which `attention_forward` is registered with transformers."""
_STEPS = 1 << 15


def use_kernels(model: EncoderModel) -> None:
    """Replace attention by this project's, and on CPUs dropout, where the architecture and the
    device allow it. Nothing changes for decoders: torch's kernels suit causal attention.
    """
    on_gpu = torch.cuda.is_available()
    if model.heads == "causal" or (on_gpu and not has_flash_attention()):
        return
    if not on_gpu:
        replace_layers(model, Dropout)
    if model.config._attn_implementation == "sdpa" and model.encoder._can_set_attn_implementation():
        model.encoder.set_attn_implementation(ATTENTION)


def has_flash_attention() -> bool:
    """Whether the GPU and torch have the kernel."""
    return (
        torch.cuda.get_device_capability()[0] >= 8
        and torch.backends.cuda.is_flash_attention_available()
    )


def use_linear_kernels(model: nn.Module) -> None:
    """Make every nn.Linear a `Linear`, if torch was built with oneDNN."""
    if hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        replace_layers(model, Linear)


def replace_layers(model: nn.Module, kind: type[nn.Module]) -> None:
    """Give every layer of the class of torch that `kind` extends the class `kind`."""
    for layer in model.modules():
        if type(layer) is kind.__base__:
            layer.__class__ = kind


def compile_layers(model: EncoderModel) -> None:
    """Compile every layer for any batch size and length, on a GPU; one compilation serves all
    layers.
    """
    if torch.cuda.is_available():
        for layer in encoder_layers(model.encoder):
            layer.compile(dynamic=True)


def mask_of(
    *, attention_mask: Tensor | None = None, dtype: torch.dtype, **options: Any
) -> Tensor | None:
    """A mask function for transformers. For the flash kernel, which needs half precision and
    attention to all tokens of the row: where sequences begin in the flattened batch, and its end,
    int32, (2B + 1). A row is two sequences: its tokens, and the padding after them, which may be
    empty. Otherwise transformers' own mask.
    """
    half = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else dtype
    plain = options["mask_function"] is bidirectional_mask_function
    if not (plain and half.itemsize == 2 and attention_mask is not None and attention_mask.is_cuda):
        return sdpa_mask(attention_mask=attention_mask, dtype=dtype, **options)
    rows, width = attention_mask.shape
    begin_B = torch.arange(rows, device=attention_mask.device) * width
    bounds_BE = torch.stack((begin_B, begin_B + (attention_mask != 0).sum(1)), 1)
    return pad(bounds_BE.flatten(), (0, 1), value=rows * width).int()


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, None]:
    """An attention function for transformers' encoders, (B, H, T, D) to (B, T, H, D): the flash
    kernel with a mask for it, `cpu_attention` where it is faster than torch's, else torch's.
    """
    p = options["dropout"]
    scaling = options["scaling"]
    if attention_mask is not None and attention_mask.ndim == 1:
        rows, _, width, _ = query.shape
        flat = (states.transpose(1, 2).flatten(0, 1) for states in (query, key, value))
        mixed, *_ = torch.ops.aten._flash_attention_forward(
            *flat, attention_mask, attention_mask, width, width, p, False, False, scale=scaling
        )
        return mixed.unflatten(0, (rows, width)), None
    # Measured: torch's fused kernel is faster in float32 without dropout.
    if not _has_kernel(query) or (query.dtype == torch.float32 and not p):
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    mixed = cpu_attention(query, key, value, attention_mask, p=p, scaling=scaling)
    return mixed.transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, attention_forward)
AttentionMaskInterface.register(ATTENTION, mask_of)


def cpu_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, p: float, scaling: float
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


def _has_kernel(values: Tensor) -> bool:
    return values.device.type == "cpu" and values.element_size() <= 4


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
