"""Cross entropy of answers that are a span, yes, no or unknown (of what a decoder writes: losses/span.py).

Shape letters: B windows, T positions, C answer types (yes, no, unknown), N number classes, O option classes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from losses.span import full_precision, position_cross_entropy

YES, NO, UNKNOWN, SPAN = range(4)
"""Values of `answer_type_B`; the first three index `type_BC`."""


def joint_answer_loss(
    start_BT: Tensor,
    end_BT: Tensor,
    type_BC: Tensor,
    start_B: Tensor,
    end_B: Tensor,
    answer_type_B: Tensor,
) -> Tensor:
    """Half the sum of two mean cross entropies in which the answer types stand beside the positions, in nats.

    Source: faithfulness spec 2.1. Each boundary has one softmax over [yes, no, unknown, position 0, ...]; the
    scores of the types are the same in both.

    Args:
        start_BT, end_BT: logits of positions, shape (B, T), low at padding.
        type_BC: logits of yes, no, unknown, shape (B, 3).
        start_B, end_B: positions of the answer's first and last token, shape (B,); of spans only, elsewhere
            not looked at.
        answer_type_B: 0 yes, 1 no, 2 unknown, 3 span, shape (B,).
    """
    is_span_B = answer_type_B == SPAN
    nats = []
    for logits_BT, position_B in ((start_BT, start_B), (end_BT, end_B)):
        joint = torch.cat((full_precision(type_BC), full_precision(logits_BT)), dim=1)
        nats.append(cross_entropy(joint, torch.where(is_span_B, position_B + SPAN, answer_type_B)))
    return (nats[0] + nats[1]) / 2


class XLNetAnswerLoss(NamedTuple):
    """Seven means over the batch, in nats, and their sum; scalars."""

    start: Tensor
    end: Tensor
    unknown: Tensor
    yes: Tensor
    no: Tensor
    number: Tensor
    option: Tensor
    total: Tensor


def xlnet_answer_loss(
    start_BT: Tensor,
    end_BT: Tensor,
    type_BC: Tensor,
    number_BN: Tensor,
    option_BO: Tensor,
    start_B: Tensor,
    end_B: Tensor,
    answer_type_B: Tensor,
    number_B: Tensor,
    option_B: Tensor,
) -> XLNetAnswerLoss:
    """The seven terms of XLNet's answer heads, all of weight 1 (faithfulness spec 2.3).

    Args:
        start_BT, end_BT: logits of positions, the end's given the gold start.
        type_BC, number_BN, option_BO: logits of yes, no, unknown, of 12 classes and of 3.
        start_B, end_B: positions of the answer's first and last token, shape (B,); the classification token
            for yes, no and unknown.
        answer_type_B: 0 yes, 1 no, 2 unknown, 3 span; each of the first three is a decision of its own.
        number_B, option_B: classes, 0 = none of them; shape (B,).
    """
    yes, no, unknown = (
        binary_cross_entropy_with_logits(logits_B, (answer_type_B == kind).to(logits_B.dtype))
        for kind, logits_B in enumerate(full_precision(type_BC).unbind(1))
    )
    start = position_cross_entropy(full_precision(start_BT), start_B)
    end = position_cross_entropy(full_precision(end_BT), end_B)
    number = cross_entropy(full_precision(number_BN), number_B)
    option = cross_entropy(full_precision(option_BO), option_B)
    total = start + end + unknown + yes + no + number + option
    return XLNetAnswerLoss(start, end, unknown, yes, no, number, option, total)
