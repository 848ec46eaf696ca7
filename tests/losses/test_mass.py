"""The term that keeps ethical groups from being answered with something else."""

from __future__ import annotations

import math

import pytest
import torch

from losses.group import GroupLoss, lost_mass_log


def log_probs(first: float, second: float) -> torch.Tensor:
    """A group (1, 4, 2, 2) in which every variant scores its subjects so."""
    return torch.tensor([first, second]).log()[None, None, :, None].expand(1, 4, 2, 2).clone()


def test_only_a_loss_of_mass_costs_and_by_its_logarithm() -> None:
    reference = log_probs(0.9, 0.1)
    assert lost_mass_log(log_probs(0.5, 0.5), reference).abs().max() < 1e-6
    torch.testing.assert_close(
        lost_mass_log(log_probs(0.25, 0.25), reference), torch.full((1, 4), math.log(2.0))
    )
    assert (lost_mass_log(reference, log_probs(0.25, 0.25)) == 0).all()


def test_it_joins_the_total_of_ethical_groups_and_pulls_both_scores_up() -> None:
    log_prob = log_probs(0.2, 0.2).requires_grad_()
    ethical, adversarial = torch.tensor([0]), torch.tensor([1])
    pushed, reference = torch.zeros(1, 4, dtype=torch.long), log_probs(0.9, 0.1)
    loss = GroupLoss(mass_weight=0.5)(log_prob, ethical, pushed_BV=pushed, reference_BVSE=reference)
    assert loss.mass.item() == pytest.approx(math.log(1 / 0.4), rel=1e-5)
    assert loss.total.item() == pytest.approx(0.5 * loss.mass.item(), rel=1e-5)
    loss.total.backward()
    assert log_prob.grad is not None
    assert (log_prob.grad < 0).all()
    other = GroupLoss(mass_weight=0.5)(log_prob, adversarial, pushed_BV=pushed, reference_BVSE=reference)
    without = GroupLoss()(log_prob, ethical, pushed_BV=pushed, reference_BVSE=reference)
    assert other.mass == without.mass == 0
