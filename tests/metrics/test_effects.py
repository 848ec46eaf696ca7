"""metrics/bias/effects: against naive loops over questions, and the ways in which groups can be arranged."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import pytest
import torch

from metrics.bias.effects import advice_effects, of_means
from metrics.bias.group_scores import score_groups
from metrics.bias.intervals import ClassGroups, estimate_bias
from metrics.intervals import mean_interval, percentiles, resamples
from tests.metrics.batches import random_batch

UNADVISED, ETHICAL, MISMATCHED = range(3)


def groups(questions: int = 30, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """|C|, cell and question: each question bare, most with ethical advice, some with mismatched, twice."""
    make = np.random.default_rng(seed)
    rows = []
    for question in make.permutation(questions):
        level = make.uniform(0.5, 0.9)
        rows.append((level, UNADVISED, question))
        if question % 5:
            rows.append((level * make.uniform(0, 0.2), ETHICAL, question))
        rows += [(level * make.uniform(0.7, 1), MISMATCHED, question)] * (2 * (question % 3 == 0))
    value, cell, question = zip(*rows, strict=True)
    return np.array(value), np.array(cell), np.array(question)


def naive_effects(rows: list[tuple[float, int, int]]) -> list[float]:
    carry, kept = (
        fmean(c for c, cell, _ in rows if cell == wanted)
        / fmean(c for c, cell, _ in rows if cell == UNADVISED)
        for wanted in (ETHICAL, MISMATCHED)
    )
    return [carry, kept, kept - carry]


def test_carry_kept_and_gap_equal_naive_loops_that_draw_whole_questions() -> None:
    value, cell, question = groups()
    found = advice_effects(value, cell, question, [ETHICAL, MISMATCHED], [UNADVISED] * 2, [(1, 0)])
    rows = list(zip(value, cell, question, strict=True))
    assert found.value_J.tolist() == pytest.approx(naive_effects(rows), abs=1e-12)
    (drawn,) = resamples(30)
    resampled = np.array(
        [naive_effects([row for row in rows for _ in range(int(counts[row[2]]))]) for counts in drawn]
    )
    for j in range(3):
        ends = percentiles(resampled[:, j])
        assert (found.low_J[j], found.high_J[j]) == pytest.approx(tuple(ends), abs=1e-12)
    apart = advice_effects(value, cell, np.arange(len(value)), [ETHICAL], [UNADVISED])
    assert apart.high_J[0] - apart.low_J[0] > 1.1 * (found.high_J[0] - found.low_J[0])  # pairs know more


def test_order_and_names_of_questions_do_not_matter_and_0_has_no_ratio() -> None:
    value, cell, question = groups()
    one = advice_effects(value, cell, question, [ETHICAL], [UNADVISED])
    two = advice_effects(value[::-1], cell[::-1], question[::-1] + 7, [ETHICAL], [UNADVISED])
    np.testing.assert_allclose(one, two)
    assert np.isnan(advice_effects(value * (cell > 0), cell, question, [ETHICAL], [UNADVISED])).all()
    assert np.isnan(of_means(value[:1], cell[:1] * 0, question[:1], 1).low_J).all()


def test_means_are_those_of_a_cell_on_its_own() -> None:
    value, _, question = groups()
    found = of_means(value, np.zeros(len(value), dtype=int), question, 1)
    order = np.argsort(question, kind="stable")
    mean, interval, _ = mean_interval(value[order].tolist(), question[order].tolist())
    assert [end.item() for end in found] == pytest.approx([mean, *interval])


def test_ids_that_leave_out_who_does_not_occur_change_nothing() -> None:
    batch = random_batch(20, 1, 3, 2)
    wide = ClassGroups(score_groups(batch.score_NVS), 5 * batch.subject_NS + 4, 3 * batch.attribute_N, 50, 9)
    for one, two in zip(estimate_bias(wide)[:3], estimate_bias(wide.renumbered())[:3], strict=True):
        for field in ("mu_K", "mean_abs_c_K", "delta_K", "eps_K", "mass_K", "theta_K"):
            torch.testing.assert_close(getattr(one, field), getattr(two, field))
