"""Losses of multiple choice, against torch's own cross-entropy and cases worked by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from losses.choices import choice_cross_entropy, choice_loss

LOGITS = torch.tensor([[2.0, 0.0, -1.0], [0.5, 1.5, 0.0], [0.3, 0.3, 0.3]])
LABELS = torch.tensor([0, 2, 1])
NONE = torch.zeros(3, dtype=torch.bool)


def test_labelled_questions_have_torchs_cross_entropy() -> None:
    found = choice_cross_entropy(LOGITS, LABELS, NONE)
    torch.testing.assert_close(found, cross_entropy(LOGITS, LABELS, reduction="none"))
    torch.testing.assert_close(choice_loss(LOGITS, LABELS, NONE), cross_entropy(LOGITS, LABELS))


def test_uniform_targets_are_class_probabilities() -> None:
    found = choice_cross_entropy(LOGITS, LABELS, ~NONE)
    target = torch.full_like(LOGITS, 1 / 3)
    torch.testing.assert_close(found, cross_entropy(LOGITS, target, reduction="none"))
    assert found[2].item() == pytest.approx(math.log(3))
    assert (found[:2] > math.log(3)).all()


def test_the_uniform_gradient_points_at_equal_choices() -> None:
    logits = LOGITS.clone().requires_grad_()
    choice_loss(logits, LABELS, ~NONE).backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, (LOGITS.softmax(-1) - 1 / 3) / 3)


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0, 4.0])
def test_the_weight_of_questions_without_a_right_choice(weight: float) -> None:
    uniform = torch.tensor([False, True, False])
    a, b, c = choice_cross_entropy(LOGITS, LABELS, uniform).tolist()
    found = choice_loss(LOGITS, LABELS, uniform, weight).item()
    assert found == pytest.approx((a + weight * b + c) / (2 + weight))


def test_nothing_that_weighs_anything_costs_nothing() -> None:
    logits = LOGITS.clone().requires_grad_()
    loss = choice_loss(logits, LABELS, ~NONE, 0.0)
    loss.backward()
    assert loss.item() == 0
    assert logits.grad is not None
    assert not logits.grad.any()


def test_low_precision_is_summed_in_float32() -> None:
    assert choice_cross_entropy(LOGITS.bfloat16(), LABELS, NONE).dtype == torch.float32
