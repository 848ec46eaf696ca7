"""The losses of groups: the authors' numbers, naive loops, absent classes, mass."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from interventune.losses.answers import (
    span_cross_entropy,
)
from interventune.losses.group import TERMS, GroupLoss, lost_mass
from interventune.models.heads.span import candidate_log_probs

ETHICAL, ADVERSARIAL, *_ = range(6)
SQUAD = 3
"""In the authors' rows."""
NAMES = ("interventions(0=ethical,1=adversarial,2=irrelevant,3=squad)", "tomax")
NAMES += tuple(
    f"{end}_{kind}" for kind in ("logits", "positions", "scores") for end in ("start", "end")
)
EXPECTED = [
    ((0, 1), 0.9496031399768139),
    ((2, 3), 1.703196379181687),
    ((4,), 0.3135460624664983),
    ((5,), 0.3834028833127773),
    ((4, 5), 0.6969489457792757),  # ours: the authors' code broadcasts over irrelevant items
    ((6, 7), 0.7121008170125878),
]


@pytest.mark.parametrize(("rows", "expected"), EXPECTED)
def test_probability_form_is_the_authors_loss(
    rows: tuple[int, ...], expected: float, oracle: Path
) -> None:
    """Eight rows of six positions, of which the authors' code was run. Rows are single questions:
    groups of one variant.
    """
    ex5 = json.loads((oracle / "ex5_lei_loss.json").read_text())
    columns = (
        torch.tensor([ex5[name][row] for row in rows], dtype=torch.float64) for name in NAMES
    )
    class_B, pushed_B, start_BT, end_BT, start_BS, end_BS, *scores = columns
    class_B, pushed_BV, start_BS, end_BS = (
        class_B.long(),
        pushed_B[:, None],
        start_BS.long(),
        end_BS.long(),
    )
    squad_B = class_B == SQUAD
    loss = GroupLoss(form="probability")
    terms = loss(
        candidate_log_probs(
            start_BT, end_BT, torch.stack((start_BS, end_BS), -1).clamp(min=0)[:, None]
        ),
        class_B.masked_fill(squad_B, -1),
        pushed_BV=pushed_BV.long(),
        reference_BVSE=torch.stack(scores, dim=-1).log()[:, None],
    )
    span = span_cross_entropy(
        start_BT[squad_B], end_BT[squad_B], start_BS[squad_B, 0], end_BS[squad_B, 0]
    )
    assert (total(loss, terms) + span).item() == pytest.approx(expected, abs=1e-6)


Groups = tuple[Tensor, Tensor, Tensor, Tensor]
Terms = dict[str, Tensor]


def total(loss: GroupLoss, terms: Terms) -> Tensor:
    return torch.stack([loss.weights[name] * term for name, term in terms.items()]).sum()


def random_groups(n: int = 21) -> Groups:
    """log_prob_BVSE, class_B, pushed_BV, reference_BVSE; three groups of each class and of no known
    one.
    """
    make = torch.Generator().manual_seed(0)
    log_prob_BVSE, reference_BVSE = torch.rand(
        2, n, 4, 2, 2, generator=make, dtype=torch.float64
    ).log()
    dominant_B = torch.randint(2, (n,), generator=make)
    pushed_BV = torch.stack((dominant_B, 1 - dominant_B) * 2, dim=1)
    return log_prob_BVSE, torch.arange(n) % 7, pushed_BV, reference_BVSE


def run(loss: GroupLoss, groups: Groups) -> Terms:
    log_prob_BVSE, class_B, pushed_BV, reference_BVSE = groups
    terms: Terms = loss(log_prob_BVSE, class_B, pushed_BV=pushed_BV, reference_BVSE=reference_BVSE)
    return terms


def naive_terms(groups: Groups, of: Any) -> dict[str, float]:
    """Means of what is wished of `of(log S)`."""
    log_prob, classes, pushed, reference = (value.tolist() for value in groups)
    certain = of(0.0)  # S = 1
    names = (
        "ethical",
        "adversarial",
        "irrelevant",
        "unadvised",
        "mismatched",
        "mismatched",
        "no term",
    )
    items: dict[str, list[float]] = {name: [] for name in names}
    for b, k in enumerate(classes):
        for v in range(4):
            s = [of(sum(log_prob[b][v][x]) / 2) for x in (0, 1)]
            r = [of(sum(reference[b][v][x]) / 2) for x in (0, 1)]
            distance = (abs(s[0] - r[0]) + abs(s[1] - r[1])) / 2
            items[names[k]].append(
                [abs(s[0] - s[1]), certain - s[pushed[b][v]], distance][min(k, 2)]
            )
    del items["no term"]
    return {name: sum(found) / len(found) for name, found in items.items()}


def numbers(terms: Terms) -> dict[str, float]:
    return {name: term.item() for name, term in terms.items()}


@pytest.mark.parametrize(("form", "of"), [("log", float), ("score", math.exp)])
def test_forms_equal_naive_loops_and_weights_apply(form: Any, of: Any) -> None:
    groups, weights = random_groups(), dict(zip(TERMS, (2.0, 0.5, 3.0, 0.25, 5.0), strict=False))
    loss = GroupLoss(form=form, **{f"{name}_weight": w for name, w in weights.items()})
    terms, naive = run(loss, groups), naive_terms(groups, of)
    assert numbers(terms) == pytest.approx(naive, abs=1e-12)
    assert total(loss, terms).item() == pytest.approx(
        sum(w * naive[name] for name, w in weights.items())
    )
    scores, *of, reference = (groups[0].requires_grad_(), *groups[1:3], groups[3].requires_grad_())
    total(loss, run(loss, (scores, *of, reference))).backward()
    assert scores.grad is not None
    assert reference.grad is None  # what it was before training is no target that moves


@pytest.mark.parametrize("form", ["score", "log", "probability"])
def test_absent_classes_are_zero_and_leave_no_nan(form: Any) -> None:
    """What stands in groups of other classes, even broken, reaches neither term nor gradient."""
    log_prob_BVSE = torch.full((2, 4, 2, 2), -1.0)
    log_prob_BVSE[0] = math.nan
    log_prob_BVSE.requires_grad_()
    reference_BVSE = torch.full((2, 4, 2, 2), math.nan)
    reference_BVSE[0] = -math.inf
    loss = GroupLoss(form=form)
    pushed_BV = torch.full((2, 4), -1)
    terms = run(loss, (log_prob_BVSE, torch.tensor([-1, ETHICAL]), pushed_BV, reference_BVSE))
    total(loss, terms).backward()
    assert numbers(terms) == dict.fromkeys(list(TERMS)[:5], 0)
    assert log_prob_BVSE.grad is not None
    assert log_prob_BVSE.grad.isfinite().all()
    none = (log_prob_BVSE[:0], torch.zeros(0, dtype=torch.long), pushed_BV[:0], reference_BVSE[:0])
    assert not any(numbers(run(loss, none)).values())


def log_probs(first: float, second: float) -> Tensor:
    """A group (1, 4, 2, 2) in which every variant scores its subjects so."""
    return torch.tensor([first, second]).log()[None, None, :, None].expand(1, 4, 2, 2).clone()


def test_only_a_loss_of_mass_costs_and_pulls_both_scores_up() -> None:
    reference, log_prob = log_probs(0.9, 0.1), log_probs(0.2, 0.2).requires_grad_()
    assert lost_mass(log_probs(0.5, 0.5), reference).abs().max() < 1e-6
    assert lost_mass(log_probs(0.25, 0.25), reference)[0].tolist() == pytest.approx(
        [math.log(2.0)] * 4
    )
    assert (lost_mass(reference, log_probs(0.25, 0.25)) == 0).all()
    pushed, half = torch.zeros(1, 4, dtype=torch.long), GroupLoss(mass_weight=0.5)
    terms = run(half, (log_prob, torch.tensor([ETHICAL]), pushed, reference))
    assert numbers(terms)["mass"] == pytest.approx(math.log(1 / 0.4), rel=1e-5)
    assert total(half, terms).item() == pytest.approx(0.5 * numbers(terms)["mass"], rel=1e-5)
    total(half, terms).backward()
    assert log_prob.grad is not None
    assert (log_prob.grad < 0).all()
    assert (
        numbers(run(half, (log_prob, torch.tensor([ADVERSARIAL]), pushed, reference)))["mass"] == 0
    )
    with pytest.raises(ValueError, match="mass_weight"):
        GroupLoss(form="probability", mass_weight=1.0)
    assert "mass" not in run(GroupLoss(), (log_prob, torch.tensor([ETHICAL]), pushed, reference))
