"""losses/group: the authors' numbers, naive loops, symmetries, gradient signs, absent classes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from losses.group import GroupLoss, GroupLossOutput
from losses.span import span_cross_entropy
from models.heads.span import candidate_log_probs

ETHICAL, ADVERSARIAL, IRRELEVANT, NONE = range(4)

# LEI spec 5.1, ex5: eight rows of six positions (shared/oracle/unqover/ex5_lei_loss.json, our own copy).
START_LOGITS = [
    [0, 2, 1, 0, -1, 0.5],
    [1, 0, 0, 3, 0, 0],
    [0, 1, 2, 0, 1, 0],
    [0.5, 0.5, 1.5, 2.5, 0, 0],
    [0, 0, 1, 1, 2, 0],
    [2, 0, 1, 0, 0, 1],
    [0, 3, 0, 0, 0, 0],
    [1, 1, 1, 0, 2, 0],
]
END_LOGITS = [
    [0, 1, 2, 0, 1, 0],
    [0, 1, 0, 2, 0, 0],
    [1, 1, 1, 0, 0, 0],
    [0, 0, 2, 2, 1, 0],
    [1, 0, 0, 3, 0, 0],
    [0, 2, 0, 0, 1, 0],
    [0, 0, 2, 0, 0, 0],
    [0, 1, 0, 1, 0, 0],
]
EX5: dict[str, Any] = {
    "start_logits": START_LOGITS,
    "end_logits": END_LOGITS,
    "start_positions": [[1, 3], [1, 3], [1, 4], [1, 4], [1, 3], [2, 4], [1, -1], [4, -1]],
    "end_positions": [[2, 3], [1, 3], [2, 4], [2, 4], [1, 3], [2, 5], [2, -1], [3, -1]],
    "interventions(0=ethical,1=adversarial,2=irrelevant,3=squad)": [0, 0, 1, 1, 2, 2, 3, 3],
    "start_scores": [
        [0.3, 0.4],
        [0.2, 0.5],
        [0.3, 0.3],
        [0.1, 0.6],
        [0.35, 0.25],
        [0.15, 0.45],
        [-1, -1],
        [-1, -1],
    ],
    "end_scores": [
        [0.3, 0.2],
        [0.25, 0.5],
        [0.2, 0.3],
        [0.3, 0.4],
        [0.1, 0.55],
        [0.2, 0.3],
        [-1, -1],
        [-1, -1],
    ],
    "tomax": [-1, -1, 0, 1, -1, -1, -1, -1],
}
EXPECTED = [
    ((0, 1), "paired", 0.9496031399768139),
    ((2, 3), "paired", 1.703196379181687),
    ((4,), "paired", 0.3135460624664983),
    ((5,), "broadcast", 0.3834028833127773),
    ((4, 5), "broadcast", 1.622133254824218),
    ((4, 5), "paired", 0.6969489457792757),
    ((6, 7), "paired", 0.7121008170125878),
    ((0, 1, 2, 3, 4, 5), "broadcast", 4.274932773982719),
    ((0, 1, 4, 5, 6, 7), "broadcast", 3.2838372118136196),
    (tuple(range(8)), "broadcast", 4.987033590995306),
]


def authors_total(example: dict[str, Any], rows: tuple[int, ...], reduction: Any) -> float:
    """Rows are single questions: groups of one variant."""

    def of(name: str, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.tensor([example[name][row] for row in rows], dtype=dtype)

    start_BT, end_BT = of("start_logits"), of("end_logits")
    start_BS, end_BS = of("start_positions", torch.long), of("end_positions", torch.long)
    class_B = of("interventions(0=ethical,1=adversarial,2=irrelevant,3=squad)", torch.long)
    squad_B = class_B == NONE
    log_prob_BSE = candidate_log_probs(start_BT, end_BT, start_BS.clamp(min=0), end_BS.clamp(min=0))
    reference_BSE = torch.stack((of("start_scores"), of("end_scores")), dim=-1).log()
    span_loss = span_cross_entropy(
        start_BT[squad_B], end_BT[squad_B], start_BS[squad_B, 0], end_BS[squad_B, 0]
    )
    loss = GroupLoss(form="probability", irrelevant_reduction=reduction)
    return loss(
        log_prob_BSE[:, None],
        class_B,
        pushed_BV=of("tomax", torch.long)[:, None],
        reference_BVSE=reference_BSE[:, None],
        span_loss=span_loss,
    ).total.item()


@pytest.mark.parametrize(("rows", "reduction", "expected"), EXPECTED)
def test_probability_form_is_the_authors_loss(rows: tuple[int, ...], reduction: str, expected: float) -> None:
    assert authors_total(EX5, rows, reduction) == pytest.approx(expected, abs=1e-6)


def test_own_copy_of_ex5_is_the_oracle(shared: Path) -> None:
    oracle = json.loads((shared / "oracle/unqover/ex5_lei_loss.json").read_text())
    for name, value in EX5.items():
        assert oracle[name] == value, name
    values = {v for v in oracle["loss_by_subset_of_rows"].values() if isinstance(v, float)}
    assert values == {expected for _, _, expected in EXPECTED} - {0.6969489457792757}


def random_groups(n: int = 12, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    make = torch.Generator().manual_seed(seed)
    log_prob_BVSE = torch.rand(n, 4, 2, 2, generator=make, dtype=torch.float64).log()
    reference_BVSE = torch.rand(n, 4, 2, 2, generator=make, dtype=torch.float64).log()
    class_B = torch.arange(n) % 4
    dominant_B = torch.randint(2, (n,), generator=make)
    pushed_BV = torch.stack((dominant_B, 1 - dominant_B) * 2, dim=1)
    return log_prob_BVSE, class_B, pushed_BV, reference_BVSE


def run(loss: GroupLoss, groups: tuple[Tensor, Tensor, Tensor, Tensor]) -> GroupLossOutput:
    log_prob_BVSE, class_B, pushed_BV, reference_BVSE = groups
    output = loss(log_prob_BVSE, class_B, pushed_BV=pushed_BV, reference_BVSE=reference_BVSE)
    assert isinstance(output, GroupLossOutput)
    return output


def naive_log_terms(groups: tuple[Tensor, Tensor, Tensor, Tensor]) -> list[float]:
    log_prob, classes, pushed, reference = (value.tolist() for value in groups)
    items: list[list[float]] = [[], [], []]
    for b, k in enumerate(classes):
        for v in range(4):
            s = [sum(log_prob[b][v][x]) / 2 for x in (0, 1)]
            r = [sum(reference[b][v][x]) / 2 for x in (0, 1)]
            if k == ETHICAL:
                items[k].append(abs(s[0] - s[1]))
            elif k == ADVERSARIAL:
                items[k].append(-s[pushed[b][v]])
            elif k == IRRELEVANT:
                items[k].append((abs(s[0] - r[0]) + abs(s[1] - r[1])) / 2)
    return [sum(values) / len(values) for values in items]


def test_log_form_equals_naive_loops_and_weights_apply() -> None:
    groups = random_groups()
    loss = GroupLoss(ethical_weight=2.0, adversarial_weight=0.5, irrelevant_weight=3.0)
    output = run(loss, groups)
    naive = naive_log_terms(groups)
    assert [t.item() for t in output[1:4]] == pytest.approx(naive, abs=1e-12)
    assert output.total.item() == pytest.approx(2 * naive[0] + 0.5 * naive[1] + 3 * naive[2])
    assert output.count_K.tolist() == [3, 3, 3]


@pytest.mark.parametrize("form", ["log", "probability"])
def test_swapping_subjects_changes_nothing(form: Any) -> None:
    log_prob_BVSE, class_B, pushed_BV, reference_BVSE = groups = random_groups()
    swapped = (log_prob_BVSE.flip(2), class_B, 1 - pushed_BV, reference_BVSE.flip(2))
    loss = GroupLoss(form=form)
    for one, two in zip(run(loss, groups), run(loss, swapped), strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("form", ["log", "probability"])
def test_limits(form: Any) -> None:
    """No gap, certainty of the pushed subject, and the reference itself cost nothing."""
    log_prob_BVSE, class_B, pushed_BV, _ = random_groups()
    log_prob_BVSE[class_B == ETHICAL, :, 1] = log_prob_BVSE[class_B == ETHICAL, :, 0]
    sure = torch.nn.functional.one_hot(pushed_BV, 2)[..., None].expand(-1, -1, -1, 2).double().log()
    log_prob_BVSE = torch.where((class_B == ADVERSARIAL)[:, None, None, None], sure, log_prob_BVSE)
    output = run(GroupLoss(form=form), (log_prob_BVSE, class_B, pushed_BV, log_prob_BVSE.clone()))
    assert [term.item() for term in output[:4]] == pytest.approx([0, 0, 0, 0], abs=1e-12)


@pytest.mark.parametrize("form", ["log", "probability"])
def test_gradient_signs(form: Any) -> None:
    """A step down the gradient closes the ethical gap, raises the pushed subject, nears the reference."""
    s_SE = torch.tensor([[0.6, 0.6], [0.2, 0.2]], dtype=torch.float64).log()
    reference_SE = torch.tensor([[0.5, 0.5], [0.3, 0.3]], dtype=torch.float64).log()
    log_prob_BVSE = s_SE.expand(3, 4, 2, 2).clone().requires_grad_()
    pushed_BV = torch.tensor([[0, 1, 0, 1]] * 3)
    output = GroupLoss(form=form)(
        log_prob_BVSE, torch.arange(3), pushed_BV=pushed_BV, reference_BVSE=reference_SE.expand(3, 4, 2, 2)
    )
    output.total.backward()
    assert log_prob_BVSE.grad is not None
    sign_BVS = log_prob_BVSE.grad.sum(-1).sign()
    assert sign_BVS[ETHICAL].tolist() == [[1, -1]] * 4
    assert sign_BVS[ADVERSARIAL].tolist() == [[-1, 0], [0, -1]] * 2
    assert sign_BVS[IRRELEVANT].tolist() == [[1, -1]] * 4


@pytest.mark.parametrize(
    ("form", "reduction"), [("log", "paired"), ("probability", "paired"), ("probability", "broadcast")]
)
def test_absent_classes_are_zero_and_leave_no_nan(form: Any, reduction: Any) -> None:
    log_prob_BVSE = torch.full((2, 4, 2, 2), -1.0, requires_grad=True)
    reference_BVSE = torch.full((2, 4, 2, 2), math.nan)
    reference_BVSE[0] = -math.inf
    loss = GroupLoss(form=form, irrelevant_reduction=reduction)
    output = loss(log_prob_BVSE, torch.tensor([NONE, ETHICAL]), reference_BVSE=reference_BVSE)
    output.total.backward()
    assert output.count_K.tolist() == [1, 0, 0]
    assert output.adversarial.item() == 0
    assert output.irrelevant.item() == 0
    assert log_prob_BVSE.grad is not None
    assert log_prob_BVSE.grad.isfinite().all()
    nothing = loss(log_prob_BVSE[:0], torch.zeros(0, dtype=torch.long))
    assert nothing.total.item() == 0


def test_one_group_does_not_see_another() -> None:
    """Values of other classes, even broken ones, reach neither term nor gradient."""
    log_prob_BVSE, class_B, pushed_BV, reference_BVSE = random_groups()
    alone = class_B == ETHICAL
    expected = run(
        GroupLoss(), (log_prob_BVSE[alone], class_B[alone], pushed_BV[alone], reference_BVSE[alone])
    )
    together = run(GroupLoss(), (log_prob_BVSE, class_B, pushed_BV, reference_BVSE))
    torch.testing.assert_close(together.ethical, expected.ethical)


def test_bf16_comes_out_in_float32() -> None:
    log_prob_BVSE, class_B, pushed_BV, reference_BVSE = random_groups()
    output = run(GroupLoss(), (log_prob_BVSE.bfloat16(), class_B, pushed_BV, reference_BVSE.bfloat16()))
    assert output.total.dtype == torch.float32


def test_the_reference_gets_no_gradient() -> None:
    log_prob_BVSE, class_B, pushed_BV, reference_BVSE = random_groups()
    reference_BVSE.requires_grad_()
    run(GroupLoss(), (log_prob_BVSE.requires_grad_(), class_B, pushed_BV, reference_BVSE)).total.backward()
    assert reference_BVSE.grad is None


def test_wrong_use_is_told() -> None:
    log_prob_BVSE, class_B, pushed_BV, reference_BVSE = random_groups()
    loss = GroupLoss()
    for call in (
        lambda: GroupLoss(ethical_weight=-1),
        lambda: GroupLoss(irrelevant_reduction="broadcast"),
        lambda: GroupLoss(form="probability", mass_weight=1.0),
        lambda: GroupLoss(mass_weight=1.0)(log_prob_BVSE[:1], torch.tensor([ETHICAL])),
        lambda: loss(log_prob_BVSE, class_B, reference_BVSE=reference_BVSE),
        lambda: loss(log_prob_BVSE, class_B, pushed_BV=pushed_BV),
        lambda: loss(log_prob_BVSE, class_B[:1]),
    ):
        with pytest.raises(ValueError, match=r"_weight|reduction|_BV|class_B"):
            call()
