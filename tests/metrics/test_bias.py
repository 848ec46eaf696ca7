"""metrics/bias against worked examples, naive loops, symmetries, and ways to cut a batch."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from interventune.metrics.bias.group_bias import group_measures, group_rows
from interventune.metrics.bias.group_scores import preference, pushed_subject, score_groups
from interventune.metrics.bias.intervals import ClassGroups, maxima
from tests.metrics.batches import Batch, naive_c, naive_class, naive_delta, naive_eps, random_batch

NAMES = ("mu", "eta", "theta", "mu_normalised")
EX1 = torch.tensor([[[0.56, 0.30], [0.45, 0.20], [0.28, 0.36], [0.15, 0.56]]], dtype=torch.float64)
"""A worked example: subjects (alpha, beta)."""

eight = st.lists(st.floats(0, 1), min_size=8, max_size=8)
scores = eight.map(lambda values: torch.tensor(values, dtype=torch.float64).view(1, 4, 2))


def measures_of(batch: Batch, k: int) -> dict[str, float]:
    row_NF = group_rows(*batch)
    return group_measures(row_NF[row_NF[:, 0] == k])


@given(scores)
def test_group_values_equal_naive_loops_and_have_their_symmetries(score_NVS: Tensor) -> None:
    plain, found = score_NVS[0].tolist(), score_groups(score_NVS)
    c, delta, eps = (value.item() for value in (found.c_N, found.delta_N, found.eps_N))
    expected = naive_c(plain), naive_delta(plain), naive_eps(plain)
    assert (c, delta, eps) == pytest.approx(expected, abs=1e-12)
    assert max(abs(c), delta, eps, abs(found.c_normalised_N.item()), found.mass_N.item() / 2) <= 1
    assert min(delta, eps, found.mass_N.item()) >= 0
    roles, negation = score_NVS.flip(2), score_NVS[:, [1, 0, 3, 2]]
    orders = score_NVS[:, [2, 3, 0, 1]]
    for changed_NVS, sign in ((roles, -1), (negation, -1), (orders, 1)):
        torch.testing.assert_close(score_groups(changed_NVS).c_N, sign * found.c_N)


def test_aggregates_equal_naive_loops() -> None:
    batch = random_batch(200, 3, 5, 4)
    for k in range(3):
        measures, naive = measures_of(batch, k), naive_class(batch, k)
        assert measures == pytest.approx({name: naive[name] for name in measures}, abs=1e-12)


def test_unseen_cells_do_not_count() -> None:
    ids = torch.tensor([1]), torch.tensor([[3, 7]]), torch.tensor([5])
    measures = measures_of(Batch(EX1, *ids), 1)
    assert measures["mu"] == measures["theta"] == pytest.approx(0.085)
    assert measures["eta"] == 1


def test_dominant_subject_and_what_is_pushed() -> None:
    score_MVS = torch.cat((EX1.expand(2, 4, 2), EX1.flip(2)))
    subject_MS = torch.tensor([[1, 0], [2, 3], [2, 3]])  # 1 is preferred; 2 and 3 tie
    asked_NS = torch.tensor([[0, 1], [1, 0], [2, 3], [0, 3]])
    zero = torch.zeros(4, dtype=torch.long)
    found_N = preference(score_groups(score_MVS).c_N, subject_MS, zero[:3], asked_NS, zero)
    assert found_N.sign().tolist()[:3] == [-1, 1, 0]
    assert found_N[3].isnan()
    assert pushed_subject(torch.tensor([1, 0])).tolist() == [[1, 0, 1, 0], [0, 1, 0, 1]]


def groups_of(batch: Batch) -> ClassGroups:
    scores, n = score_groups(batch.score_NVS), len(batch.class_N)
    numbers = (scores.c_N, scores.c_normalised_N, batch.subject_NS, batch.attribute_N)
    return ClassGroups(*(values.numpy() for values in numbers), np.arange(n))


def test_maxima_and_their_changes_are_those_of_the_metric() -> None:
    one, two = (random_batch(60, 1, 5, 4, seed=seed) for seed in (0, 1))
    two = one._replace(score_NVS=two.score_NVS)
    first, second = [groups_of(one)], [groups_of(two)]
    found, change = maxima(NAMES, first), maxima(NAMES, first, second)
    before, after = (naive_class(batch, 0) for batch in (one, two))
    for name in NAMES:
        assert found[name][0][0] == pytest.approx(before[name])
        value, low, high, *_ = change[name][0]
        assert value == pytest.approx(after[name] - before[name])
        assert low < value < high
        assert -low == pytest.approx(maxima([name], second, first)[name][0][2])
    assert np.isnan(maxima(["mu"], first, first)["mu"][0][1])  # all is equal


def test_the_value_by_chance_is_that_of_groups_whose_subjects_swap() -> None:
    batch, draw = random_batch(40, 1, 5, 2), np.random.default_rng(1)
    values = []
    for _ in range(400):
        swap_N = torch.from_numpy(draw.random(40) < 0.5)
        score_NVS = torch.where(swap_N[:, None, None], batch.score_NVS.flip(2), batch.score_NVS)
        values.append(naive_class(batch._replace(score_NVS=score_NVS), 0)["mu"])
    mean, low, high, *_ = maxima(["mu"], [groups_of(batch)])["mu"][1]
    assert (mean, low) == (pytest.approx(np.mean(values), rel=0.05), 0)
    assert high == pytest.approx(np.quantile(values, 0.95), rel=0.05)


def test_groups_of_a_unit_have_the_same_noise() -> None:
    """Copies under a group's unit say nothing new; fewer than ten units have no interval."""
    batch = random_batch(25, 1, 4, 3)
    one, twice = groups_of(batch), groups_of(Batch(*(torch.cat([value, value]) for value in batch)))
    together = twice._replace(unit_N=np.tile(np.arange(25), 2))
    for name in ("mu", "eta", "theta"):
        np.testing.assert_allclose(*(maxima([name], [each])[name] for each in (one, together)))
    ends, apart = (maxima(["mu"], [each])["mu"][0][1:3] for each in (one, twice))
    assert apart[1] - apart[0] < ends[1] - ends[0]
    assert np.isnan(maxima(["mu"], [groups_of(random_batch(9, 1, 4, 3))])["mu"][0][1:3]).all()
