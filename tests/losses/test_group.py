"""The losses of groups: the authors' numbers, naive loops, absent classes, mass."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from interventune.losses.answers import span_cross_entropy
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
def test_probability_is_the_authors_loss(rows: Any, expected: float, oracle: Path) -> None:
    """Rows of six positions on which the authors' code was run; each is a group of one variant."""
    ex5 = json.loads((oracle / "ex5_lei_loss.json").read_text())
    values = ([ex5[name][row] for row in rows] for name in NAMES)
    columns = (torch.tensor(column, dtype=torch.float64) for column in values)
    class_B, pushed_B, start_BT, end_BT, start_BS, end_BS, *scores = columns
    at_BSE = torch.stack((start_BS, end_BS), dim=-1).long()
    squad_B, loss = class_B == SQUAD, GroupLoss(form="probability")
    terms = loss(
        candidate_log_probs(start_BT, end_BT, at_BSE.clamp(min=0)[:, None]),
        class_B.long().masked_fill(squad_B, -1),
        pushed_BV=pushed_B[:, None].long(),
        reference_BVSE=torch.stack(scores, dim=-1).log()[:, None],
    )
    at_BE = at_BSE[squad_B, 0]
    span = span_cross_entropy(start_BT[squad_B], end_BT[squad_B], at_BE[:, 0], at_BE[:, 1])
    assert (total(loss, terms) + span).item() == pytest.approx(expected, abs=1e-6)


def total(loss: GroupLoss, terms: dict[str, Tensor]) -> Tensor:
    return torch.stack([loss.weights[name] * term for name, term in terms.items()]).sum()


def numbers(terms: dict[str, Tensor]) -> dict[str, float]:
    return {name: term.item() for name, term in terms.items()}


def naive_terms(groups: dict[str, Tensor], of: Any) -> dict[str, float]:
    """Means of what is wished of `of(log S)`."""
    log_prob, classes, pushed, reference = (value.tolist() for value in groups.values())
    names = ("ethical", "adversarial", "irrelevant", "unadvised", "mismatched", "mismatched")
    items: dict[str, list[float]] = {name: [] for name in names}
    for b, k in enumerate(classes):
        for v in range(4 if k < len(names) else 0):
            s = [of(sum(log_prob[b][v][x]) / 2) for x in (0, 1)]
            r = [of(sum(reference[b][v][x]) / 2) for x in (0, 1)]
            certain = of(0.0)  # S = 1
            distance = (abs(s[0] - r[0]) + abs(s[1] - r[1])) / 2
            item = [abs(s[0] - s[1]), certain - s[pushed[b][v]], distance][min(k, 2)]
            items[names[k]].append(item)
    return {name: sum(values) / len(values) for name, values in items.items()}


@pytest.mark.parametrize(("form", "of"), [("log", float), ("score", math.exp)])
def test_forms_equal_naive_loops_and_weights_apply(form: Any, of: Any) -> None:
    """Three groups of each class and of no known one."""
    make = torch.Generator().manual_seed(0)
    log_prob_BVSE, reference_BVSE = torch.rand(2, 21, 4, 2, 2, generator=make).double().log()
    dominant_B = torch.randint(2, (21,), generator=make)
    groups = {
        "log_prob_BVSE": log_prob_BVSE.requires_grad_(),
        "class_B": torch.arange(21) % 7,
        "pushed_BV": torch.stack((dominant_B, 1 - dominant_B) * 2, dim=1),
        "reference_BVSE": reference_BVSE.requires_grad_(),
    }
    weights = dict(zip(TERMS, (2.0, 0.5, 3.0, 1.0, 1.0), strict=False))
    loss = GroupLoss(form=form, ethical_weight=2.0, adversarial_weight=0.5, irrelevant_weight=3.0)
    terms, naive = loss(**groups), naive_terms(groups, of)
    assert numbers(terms) == pytest.approx(naive, abs=1e-12)
    expected = sum(weight * naive[name] for name, weight in weights.items())
    assert total(loss, terms).item() == pytest.approx(expected)
    total(loss, terms).backward()
    assert log_prob_BVSE.grad is not None
    assert reference_BVSE.grad is None  # what it was before training is no target that moves


@pytest.mark.parametrize("form", ["score", "log", "probability"])
def test_absent_classes_are_zero_and_leave_no_nan(form: Any) -> None:
    """What stands in groups of other classes, even broken, reaches neither term nor gradient."""
    log_prob_BVSE, reference_BVSE = torch.full((2, 4, 2, 2), -1.0), torch.full((2, 4, 2, 2), -1.0)
    log_prob_BVSE[0], reference_BVSE[0], reference_BVSE[1] = math.nan, -math.inf, math.nan
    class_B, pushed_BV = torch.tensor([-1, ETHICAL]), torch.full((2, 4), -1)
    loss = GroupLoss(form=form)
    log_prob_BVSE.requires_grad_()
    terms = loss(log_prob_BVSE, class_B, pushed_BV=pushed_BV, reference_BVSE=reference_BVSE)
    total(loss, terms).backward()
    assert numbers(terms) == dict.fromkeys(list(TERMS)[:5], 0)
    assert log_prob_BVSE.grad is not None
    assert log_prob_BVSE.grad.isfinite().all()
    nothing = {"pushed_BV": pushed_BV[:0], "reference_BVSE": reference_BVSE[:0]}
    assert not any(numbers(loss(log_prob_BVSE[:0], class_B[:0], **nothing)).values())


def log_probs(first: float, second: float) -> Tensor:
    """A group (1, 4, 2, 2) in which every variant scores its subjects so."""
    return torch.tensor([first, second]).log()[None, None, :, None].expand(1, 4, 2, 2).clone()


def test_only_a_loss_of_mass_costs_and_pulls_both_scores_up() -> None:
    reference, log_prob = log_probs(0.9, 0.1), log_probs(0.2, 0.2).requires_grad_()
    assert lost_mass(log_probs(0.5, 0.5), reference).abs().max() < 1e-6
    assert lost_mass(log_probs(0.25, 0.25), reference).sub(math.log(2.0)).abs().max() < 1e-6
    assert (lost_mass(reference, log_probs(0.25, 0.25)) == 0).all()

    targets: Any = {"pushed_BV": torch.zeros(1, 4, dtype=torch.long), "reference_BVSE": reference}
    ethical_B, half = torch.tensor([ETHICAL]), GroupLoss(mass_weight=0.5)
    terms = half(log_prob, ethical_B, **targets)
    assert numbers(terms)["mass"] == pytest.approx(math.log(1 / 0.4), rel=1e-5)
    assert total(half, terms).item() == pytest.approx(0.5 * numbers(terms)["mass"], rel=1e-5)
    total(half, terms).backward()
    assert log_prob.grad is not None
    assert (log_prob.grad < 0).all()
    assert half(log_prob, torch.tensor([ADVERSARIAL]), **targets)["mass"] == 0
    assert "mass" not in GroupLoss()(log_prob, ethical_B, **targets)
    with pytest.raises(ValueError, match="mass_weight"):
        GroupLoss(form="probability", mass_weight=1.0)
