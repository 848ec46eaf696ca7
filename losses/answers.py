"""Cross entropy of answers: of the two ends of a span, of the answer types yes, no and unknown, of
the tokens that a decoder writes, and of choices; and of rationale tagging.

Shape letters: B questions or windows, T positions, C answer types (yes, no, unknown), N number
classes or choices of a question, O option classes.
"""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

Losses = dict[str, Tensor]
"""Losses by name: scalars."""
IGNORE_INDEX = -100
"""A start or end position that the losses ignore, such as an answer outside the window."""


def full_precision(values: Tensor) -> Tensor:
    """Convert to float32; float64 stays float64."""
    return values if values.dtype == torch.float64 else values.float()


def with_share(mean: Tensor, share: float) -> Tensor:
    """Multiply the gradient of a batch's mean by `share`, and keep the value, which is logged.

    Of a step that averages the gradients of m batches with N items, a batch of n items has the
    share m n / N. The step then has the gradient of the mean over all N items. The share of a sum
    over items is m.
    """
    return mean.detach() + share * (mean - mean.detach())


def position_cross_entropy(logits_BT: Tensor, position_B: Tensor) -> Tensor:
    """Mean of -log softmax(logits)[position] over the positions that are not ignored, in nats; a
    scalar.

    Exactly 0, with zero gradients, if every position is ignored.
    """
    logits_BT = full_precision(logits_BT)
    nats = cross_entropy(logits_BT, position_B, ignore_index=IGNORE_INDEX, reduction="sum")
    return nats / (position_B != IGNORE_INDEX).sum().clamp(min=1)


def span_cross_entropy(
    start_logits_BT: Tensor, end_logits_BT: Tensor, start_B: Tensor, end_B: Tensor
) -> Tensor:
    """Half the sum of the start's and the end's mean cross entropy, in nats; a scalar.

    Source: extractive SQuAD fine-tuning (Devlin et al. 2019, section 4.2). LEI's authors add the
    two means and halve the total of all their losses, which is equivalent.

    Args:
        start_logits_BT, end_logits_BT: shape (B, T).
        start_B, end_B: positions of the answer's first and last token, shape (B,), or
            `IGNORE_INDEX`.
    """
    start = position_cross_entropy(start_logits_BT, start_B)
    end = position_cross_entropy(end_logits_BT, end_B)
    return (start + end) / 2


def written_answer_loss(total_B: Tensor, count_B: Tensor) -> Tensor:
    """Cross entropy of written answers: minus the mean log-probability over all their tokens, in
    nats.

    Args:
        total_B: sum of the log-probabilities of each answer's tokens.
        count_B: number of tokens of each answer.
    """
    return -total_B.sum() / count_B.sum()


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
    """Half the sum of two mean cross entropies, each over the answer types and the positions, in
    nats.

    Source: the authors' code of Chaturvedi et al. 2023. Start and end each have one softmax over
    [yes, no, unknown, position 0, ...]; the types have the same scores in both.

    Args:
        start_BT, end_BT: logits of positions, shape (B, T), low at padding.
        type_BC: logits of yes, no, unknown, shape (B, 3).
        start_B, end_B: positions of the answer's first and last token, shape (B,); ignored unless
            the answer is a span.
        answer_type_B: 0 yes, 1 no, 2 unknown, 3 span, shape (B,).
    """
    is_span_B = answer_type_B == SPAN
    nats = []
    for logits_BT, position_B in ((start_BT, start_B), (end_BT, end_B)):
        joint = torch.cat((full_precision(type_BC), full_precision(logits_BT)), dim=1)
        nats.append(cross_entropy(joint, torch.where(is_span_B, position_B + SPAN, answer_type_B)))
    return (nats[0] + nats[1]) / 2


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
) -> Losses:
    """The seven terms of XLNet's answer heads by name: batch means in nats, all of weight 1.

    Source: the code that Chaturvedi et al. 2023, section 4.2, name.

    Args:
        start_BT, end_BT: logits of positions; the end's are conditional on the gold start.
        type_BC, number_BN, option_BO: logits of yes, no, unknown; of 12 number classes; of 3 option
            classes.
        start_B, end_B: positions of the answer's first and last token, shape (B,); the
            classification token for yes, no and unknown.
        answer_type_B: 0 yes, 1 no, 2 unknown, 3 span; the first three are separate decisions.
        number_B, option_B: classes, 0 = none of them; shape (B,).
    """
    yes, no, unknown = (
        binary_cross_entropy_with_logits(logits_B, (answer_type_B == kind).to(logits_B.dtype))
        for kind, logits_B in enumerate(full_precision(type_BC).unbind(1))
    )
    return {
        "start": position_cross_entropy(start_BT, start_B),
        "end": position_cross_entropy(end_BT, end_B),
        "unknown": unknown,
        "yes": yes,
        "no": no,
        "number": cross_entropy(full_precision(number_BN), number_B),
        "option": cross_entropy(full_precision(option_BO), option_B),
    }


def rationale_tagging_loss(rationale_BT: Tensor, target_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Binary cross entropy summed over the tagged tokens of a batch and divided by their number, in
    nats; a scalar, 0 for a batch without tokens.

    Source: Chaturvedi et al. 2023, equation 3. The authors' code divides by batch x 512 positions,
    tags padding too (as no rationale) and adds 1e-8 to each probability, which caps a token at 18.4
    nats. Here padding is left out, so that the loss does not depend on the padded length of a
    batch.

    Args:
        rationale_BT: logits, shape (B, T).
        target_BT: True at rationale tokens.
        mask_BT: 0 or False at tokens to leave out.
    """
    token_BT = mask_BT != 0
    # A masked logit must not put infinity or NaN into the gradient.
    logits_BT = torch.where(token_BT, full_precision(rationale_BT), 0.0)
    target_BT = target_BT.to(logits_BT.dtype)
    weight_BT = token_BT.to(logits_BT.dtype)
    nats = binary_cross_entropy_with_logits(logits_BT, target_BT, weight_BT, reduction="sum")
    return nats / token_BT.sum().clamp(min=1)


def choice_cross_entropy(logits_BN: Tensor, label_B: Tensor) -> Tensor:
    """Cross-entropy (B,) of every question, in nats, float32.

    Args:
        logits_BN: one logit per choice.
        label_B: index of the right choice.

    Source: the authors' code of Shen and Kejriwal 2022.
    """
    return cross_entropy(logits_BN.float(), label_B, reduction="none")


def choice_gap(logits_BN: Tensor, label_B: Tensor) -> Tensor:
    """Spread of the other choices of every question: log p of the likeliest minus log p of the
    least likely, (B,) float32, in nats; 0 if there is only one other choice.

    Where the label is "unknown", this is |log p(x1) - log p(x2)| of the two people: LEI's ethical
    loss (Zhao et al. 2021, appendix B.2, in logarithms) applied to BBQ's ambiguous questions.
    Source: this project.
    """
    is_label_BN = torch.arange(logits_BN.shape[1], device=logits_BN.device) == label_B[:, None]
    logits_BN = logits_BN.float()  # the softmax's denominator cancels
    largest_B = logits_BN.masked_fill(is_label_BN, -torch.inf).amax(1)
    return largest_B - logits_BN.masked_fill(is_label_BN, torch.inf).amin(1)


def choice_loss(
    logits_BN: Tensor, label_B: Tensor, unknown_B: Tensor, *, gap_weight: float = 0.0
) -> Tensor:
    """Mean of `choice_cross_entropy`, plus `gap_weight` times `choice_gap` for questions in
    `unknown_B`.
    """
    loss_B = choice_cross_entropy(logits_BN, label_B)
    if gap_weight:
        loss_B = loss_B + gap_weight * unknown_B * choice_gap(logits_BN, label_B)
    return loss_B.mean()
