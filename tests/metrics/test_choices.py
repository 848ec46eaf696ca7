"""metrics/choices: sums against naive means."""

from __future__ import annotations

import doctest

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import metrics.choices
from metrics.choices import ChoiceScores, picks


def test_docstring_examples() -> None:
    assert doctest.testmod(metrics.choices, extraglobs={"torch": torch}).failed == 0


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 99))
def test_batches_add_up_to_the_mean(sizes: list[int], seed: int) -> None:
    """Batches may have different numbers of choices."""
    generator = torch.Generator().manual_seed(seed)
    metric, right, losses = ChoiceScores(), [], []
    for i, size in enumerate(sizes):
        logits = torch.randn(size, 2 + i, generator=generator)
        labels = torch.randint(2 + i, (size,), generator=generator)
        loss = torch.rand(size, generator=generator)
        metric.update(logits, labels, loss)
        right += [max(range(2 + i), key=row.__getitem__) == y for row, y in zip(logits, labels, strict=True)]
        losses += loss.tolist()
    result = metric.compute()
    assert result.n.item() == len(right)
    assert result.accuracy.item() == pytest.approx(sum(right) / len(right))
    assert result.loss.item() == pytest.approx(sum(losses) / len(losses))


def test_of_equal_logits_the_first_is_picked() -> None:
    assert picks(torch.tensor([[1.0, 1.0], [0.0, 2.0], [3.0, 3.0]])).tolist() == [0, 1, 0]


def test_the_loss_stays_exact_beside_a_bfloat16_model() -> None:
    metric = ChoiceScores().to(torch.bfloat16)
    for _ in range(300):
        metric.update(torch.zeros(1, 2), torch.tensor([0]), torch.tensor([1.0]))
    assert metric.compute().loss.item() == 1
    assert metric.compute().loss.dtype == torch.float64
