"""Cross entropy of tagging the rationale.

Shape letters: B windows, T positions.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from losses.span import full_precision


def rationale_tagging_loss(rationale_BT: Tensor, target_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Binary cross entropy summed over the tagged tokens of a batch and divided by their number, in nats; a
    scalar, 0 for a batch without tokens.

    Source: faithfulness spec 2.1. The authors divide by batch x 512 positions, tag padding too (as no
    rationale) and add 1e-8 to each probability, which caps a token at 18.4 nats. Here padding adds nothing,
    as theirs once the tagger has learnt it, so that the loss does not depend on how far a batch is padded.

    Args:
        rationale_BT: logits, shape (B, T).
        target_BT: True at rationale tokens.
        mask_BT: 0 or False at tokens that are not tagged.
    """
    token_BT = mask_BT != 0
    # A masked logit must not bring infinity or NaN into the gradient.
    logits_BT = torch.where(token_BT, full_precision(rationale_BT), 0.0)
    nats_BT = binary_cross_entropy_with_logits(logits_BT, target_BT.to(logits_BT.dtype), reduction="none")
    return torch.where(token_BT, nats_BT, 0.0).sum() / token_BT.sum().clamp(min=1)
