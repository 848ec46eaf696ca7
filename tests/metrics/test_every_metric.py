"""What holds for every metric: it sums over batches, copies, processes, and stays exact in a bf16
model.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from interventune.metrics.answers import AnswerScores
from interventune.metrics.bias.group_bias import GroupBias
from interventune.metrics.choices import ChoiceScores
from interventune.metrics.cka import LinearCKA
from interventune.metrics.shift import EmbeddingShift
from interventune.metrics.sum_metric import SumMetric
from tests.metrics.batches import answers_batch, embeddings, random_batch, shift_batch, shift_part

N = 31
Arguments = tuple[Any, ...]


def rows(arguments: Arguments, chosen: list[int]) -> Arguments:
    """Some of the examples, where every argument holds them along its first axis."""
    return tuple(x[chosen] if isinstance(x, Tensor) else [x[i] for i in chosen] for x in arguments)


def columns(arguments: Arguments, chosen: list[int]) -> Arguments:
    return tuple(x[:, chosen] for x in arguments)


class Case(NamedTuple):
    make: Callable[[], SumMetric]
    whole: Arguments
    """Of one update with all examples."""
    part: Callable[[Any, list[int]], Arguments] = rows


def cases() -> dict[str, Case]:
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(N, 3, generator=generator), torch.arange(N) % 3
    losses = torch.rand(N, generator=generator)
    return {
        "bias": Case(lambda: GroupBias(3, 5, 4), tuple(random_batch(N, 3, 5, 4))),
        "answers": Case(lambda: AnswerScores(["yes", "no", "span", "x", "y"]), answers_batch(0, N)),
        "choices": Case(ChoiceScores, (logits, labels, losses.double())),
        "shift": Case(lambda: EmbeddingShift(3), tuple(shift_batch(N)), shift_part),
        "cka": Case(lambda: LinearCKA(2, 4, 3), embeddings(N, 4, 3), columns),
    }


CASES = cases()


def value(metric: SumMetric) -> list[Tensor]:
    result = metric.compute()
    return [result] if isinstance(result, Tensor) else list(result)


def fed(case: Case, *parts: list[int]) -> SumMetric:
    metric = case.make()
    for part in parts:
        metric.update(*case.part(case.whole, part))
    return metric


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=10)
@given(order=st.permutations(range(N)), cuts=st.lists(st.integers(0, N), max_size=3))
def test_any_split_and_order_gives_the_same(name: str, order: list[int], cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), N]
    parts = [order[a:b] for a, b in itertools.pairwise(edges)]
    assert_same(value(fed(CASES[name], *parts)), value(fed(CASES[name], list(range(N)))))


@pytest.mark.parametrize("name", CASES)
def test_merge_reset_nothing_and_a_bf16_model(name: str) -> None:
    case = CASES[name]
    expected = value(fed(case, list(range(N))))
    one, two = fed(case, list(range(0, N, 2))), fed(case, list(range(1, N, 2)))
    one.merge_state(two)
    assert_same(value(one), expected)
    model = torch.nn.Module()
    model.metric = one
    model.to(torch.bfloat16)
    assert_same(value(model.metric), expected)
    one.reset()
    one.update(*case.part(case.whole, []))
    for result in value(one):  # no examples are NaN with n = 0
        assert bool(result.isnan().all() if result.is_floating_point() else (result == 0).all())
    one.update(*case.whole)
    assert_same(value(one), expected)
