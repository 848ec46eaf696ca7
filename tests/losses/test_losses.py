"""All losses: the authors' numbers, naive loops, limits, gradients, absent classes."""

import json
import math
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy

from interventune.losses import answers
from interventune.losses.answers import (
    choice_gap,
    choice_loss,
    joint_answer_loss,
    position_cross_entropy,
    rationale_tagging_loss,
    span_cross_entropy,
    with_share,
    written_answer_loss,
    xlnet_answer_loss,
)
from interventune.losses.group import TERMS, Form, GroupLoss, lost_mass, planted_cross_entropy
from interventune.models.heads.span import candidate_log_probs

LOW = torch.finfo(torch.float32).min
START, END = torch.tensor([1, 5, 5, 0]), torch.tensor([2, 5, 5, 4])
KIND = torch.tensor([answers.SPAN, answers.YES, answers.UNKNOWN, answers.NO])
NUMBER, OPTION = torch.tensor([4, 0, 0, 11]), torch.tensor([0, 2, 0, 1])
TARGETS = (START, END, KIND, NUMBER, OPTION)
TAGS = torch.tensor([[True, False, False, True, False, True]] * 4)


def nats(logits: list[float], at: int) -> float:
    top = max(logits)
    return math.log(sum(math.exp(x - top) for x in logits)) + top - logits[at]


def normal(*shape: int, seed: int = 0) -> Tensor:
    make = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(*shape, generator=make, dtype=torch.float64)


def logits(extra: int = 0) -> list[Tensor]:
    """Of starts, ends, types, numbers and options; the first two end in `extra` padding."""
    start_BT, end_BT = (torch.cat((x, torch.full((4, extra), LOW)), dim=1) for x in normal(2, 4, 6))
    return [start_BT, end_BT, *(normal(4, size, seed=size) for size in (3, 12, 3))]


def all_losses(extra: int = 0, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Every loss of one batch."""
    start_BT, end_BT, type_BC, number_BN, option_BO = (x.to(dtype) for x in logits(extra))
    nothing = torch.zeros(4, extra, dtype=torch.bool)
    tags_BT, mask_BT = (torch.cat((x, nothing), dim=1) for x in (TAGS, TAGS | True))
    at_B1SE = torch.tensor([[[[1, 1], [4, 4]]]] * 4)
    log_prob_BSE = candidate_log_probs(start_BT, end_BT[:, None], at_B1SE).squeeze(1)
    return [
        span_cross_entropy(start_BT, end_BT, START, END),
        joint_answer_loss(start_BT, end_BT, type_BC, START, END, KIND),
        *xlnet_answer_loss(start_BT, end_BT, type_BC, number_BN, option_BO, *TARGETS).values(),
        rationale_tagging_loss(start_BT, tags_BT, mask_BT),
        choice_loss(option_BO, OPTION, OPTION == 1, gap_weight=0.5),
        planted_cross_entropy(log_prob_BSE, OPTION % 2, 0.9),
    ]


def test_no_loss_depends_on_padding_and_all_are_float32_in_low_precision() -> None:
    torch.testing.assert_close(all_losses(extra=9), all_losses())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert {loss.dtype for loss in all_losses(dtype=torch.bfloat16)} == {torch.float32}


def test_span_loss_equals_a_naive_loop_and_skips_ignored_positions() -> None:
    rows = normal(2, 4, 6)
    positions = ([0, 5, answers.IGNORE_INDEX, 2], [1, 5, 3, answers.IGNORE_INDEX])
    means = []
    for logits_BT, at in zip(rows.tolist(), positions, strict=True):
        pairs = zip(logits_BT, at, strict=True)
        means.append(fmean(nats(row, t) for row, t in pairs if t != answers.IGNORE_INDEX))
    loss = span_cross_entropy(*rows, *map(torch.tensor, positions))
    assert loss.item() == pytest.approx(fmean(means), abs=1e-12)


@given(batch=st.integers(1, 5), tokens=st.integers(1, 7), seed=st.integers(0, 2**31))
def test_answer_losses_equal_naive_loops(batch: int, tokens: int, seed: int) -> None:
    start_BT, end_BT, tags_BT = normal(3, batch, tokens, seed=seed)
    type_BC = normal(batch, 3, seed=seed + 1)
    make = torch.Generator().manual_seed(seed)
    start_B, end_B = torch.randint(tokens, (2, batch), generator=make)
    answer_type_B = torch.randint(4, (batch,), generator=make)
    rows = []
    for b, kind in enumerate(answer_type_B.tolist()):
        types = type_BC[b].tolist()
        at = [3 + int(start_B[b]), 3 + int(end_B[b])] if kind == answers.SPAN else [kind, kind]
        rows.append(nats(types + start_BT[b].tolist(), at[0]) / 2)
        rows.append(nats(types + end_BT[b].tolist(), at[1]) / 2)
    loss = joint_answer_loss(start_BT, end_BT, type_BC, start_B, end_B, answer_type_B)
    assert loss.item() == pytest.approx(sum(rows) / batch, abs=1e-9)

    target_BT, mask_BT = torch.rand(2, batch, tokens, generator=make) < 0.5
    tagged = zip(tags_BT[mask_BT].tolist(), target_BT[mask_BT].tolist(), strict=True)
    values = [nats([0.0, x], int(target)) for x, target in tagged]
    loss = rationale_tagging_loss(tags_BT, target_BT, mask_BT)
    assert loss.item() == pytest.approx(sum(values) / max(len(values), 1), abs=1e-9)


def test_xlnet_loss_equals_seven_naive_means() -> None:
    output = logits()
    names = ("start", "end", "type", "number", "option")
    expected = {
        name: sum(nats(row, at) for row, at in zip(x.tolist(), at_B.tolist(), strict=True)) / 4
        for name, x, at_B in zip(names, output, TARGETS, strict=True)
        if name != "type"
    }
    for column, name in enumerate(("yes", "no", "unknown")):
        decisions = zip(output[2][:, column].tolist(), KIND.tolist(), strict=True)
        expected[name] = sum(nats([0.0, x], int(kind == column)) for x, kind in decisions) / 4
    terms = {name: term.item() for name, term in xlnet_answer_loss(*output, *TARGETS).items()}
    assert terms == pytest.approx(expected, abs=1e-9)


def test_nothing_to_learn_costs_nothing_and_leaves_no_nan() -> None:
    masked_BT = torch.full((2, 3), LOW, requires_grad=True)
    ignored_B, none_BT = torch.full((2,), answers.IGNORE_INDEX), torch.zeros(2, 3)
    span = span_cross_entropy(masked_BT, masked_BT, ignored_B, ignored_B)
    for loss in (span, rationale_tagging_loss(masked_BT, none_BT, none_BT)):
        (gradient,) = torch.autograd.grad(loss, masked_BT)
        assert loss.item() == 0
        assert gradient.eq(0).all()


def test_the_gap_of_ambiguous_questions_is_that_of_the_other_two_alone() -> None:
    rows = [[2.0, 0.5, -1.0], [0.5, 1.5, 4.0], [3.0, 0.3, 0.2]]
    logits_BN = torch.tensor(rows, requires_grad=True)
    label_B, unknown_B = torch.tensor([0, 2, 0]), torch.tensor([True, True, False])
    gaps = []
    for logits_N, label in zip(logits_BN.softmax(-1).log(), label_B.tolist(), strict=True):
        one, two = (logits_N[i] for i in range(3) if i != label)
        gaps.append((one - two).abs())
    torch.testing.assert_close(choice_gap(logits_BN, label_B), torch.stack(gaps))
    plain = choice_loss(logits_BN, label_B, unknown_B)
    torch.testing.assert_close(plain, cross_entropy(logits_BN, label_B))
    added = choice_loss(logits_BN, label_B, unknown_B, gap_weight=0.5) - plain
    torch.testing.assert_close(added, 0.5 * (gaps[0] + gaps[1]) / 3)
    slope_BN = torch.autograd.grad(added, logits_BN)[0]
    assert (slope_BN.sign() == torch.tensor([[0, 1, -1], [-1, 1, 0], [0, 0, 0]])).all()
    assert choice_gap(torch.tensor([[1.0, 5.0]]), torch.tensor([0])).item() == 0


def test_planted_loss_is_least_at_the_planted_probability() -> None:
    p, n = 0.9, 3
    wanted_SE = torch.tensor([[p, p], [1 - p, 1 - p]]).log().expand(n, 2, 2)
    first_N = torch.zeros(n).long()
    entropy = pytest.approx(-p * math.log(p) - (1 - p) * math.log(1 - p), rel=1e-5)
    assert planted_cross_entropy(wanted_SE, first_N, p).item() == entropy
    assert planted_cross_entropy(wanted_SE.flip(1), 1 - first_N, p).item() == entropy
    assert planted_cross_entropy(wanted_SE, 1 - first_N, p).item() > 2
    # A step down the gradient moves mass to the candidates, most to the preferred one.
    logits_BT, at_B1SE = torch.zeros(1, 6, requires_grad=True), torch.tensor([[[[1, 1], [4, 4]]]])
    log_prob_BSE = candidate_log_probs(logits_BT, logits_BT[:, None], at_B1SE).squeeze(1)
    loss = planted_cross_entropy(log_prob_BSE, torch.tensor([1]), 0.7)
    (gradient,) = torch.autograd.grad(loss, logits_BT)
    assert (gradient[0] < 0).tolist() == [False, True, False, False, True, False]
    assert gradient[0, 4] < gradient[0, 1]


def means_and_counts(inputs_BX: Tensor, seed: int, part: slice, form: Form) -> dict[str, Any]:
    """Every loss of a part of a batch (B, 4, 2, 4), and how many items it averages; 0: a sum."""
    batch, make = len(inputs_BX), torch.Generator().manual_seed(seed)
    drawn = (
        *torch.randint(4, (2, batch), generator=make),
        torch.where(torch.rand(batch, generator=make) < 0.4, answers.IGNORE_INDEX, 1),
        torch.randint(7, (batch,), generator=make),
        *(torch.rand(2, batch, 4, generator=make) < 0.5),
        torch.randn(batch, 4, 2, 2, generator=make, dtype=torch.float64),
    )
    of_part = (values[part].to(inputs_BX.device) for values in drawn)
    at_B, other_B, ignored_B, class_B, tokens_BT, tags_BT, reference_BVSE = of_part
    x_BVSX = inputs_BX[part]
    start_BT, end_BT, (yes_BT, rationale_BT) = *x_BVSX[:, 0].unbind(1), x_BVSX[:, 1].unbind(1)
    n, targets = len(x_BVSX), (at_B, other_B)
    losses = {
        "span": (span_cross_entropy(start_BT, end_BT, *targets), n),
        "ignored": (position_cross_entropy(start_BT, ignored_B), (ignored_B == 1).sum().item()),
        "joint": (joint_answer_loss(start_BT, end_BT, yes_BT[:, :3], *targets, at_B), n),
        "tags": (rationale_tagging_loss(rationale_BT, tags_BT, tokens_BT), int(tokens_BT.sum())),
        "written": (written_answer_loss(yes_BT.sum(1), at_B + 1), int((at_B + 1).sum())),
        "choices": (choice_loss(yes_BT, at_B, other_B == 1, gap_weight=0.5), n),
        "planted": (planted_cross_entropy(x_BVSX[:, 2, :, :2], at_B % 2, 0.9), n),
    }
    scores = start_BT, end_BT, yes_BT[:, :3], yes_BT, rationale_BT[:, :3]
    xlnet = xlnet_answer_loss(*scores, *targets, at_B, other_B, at_B % 3)
    losses |= {f"xlnet {name}": (loss, n) for name, loss in xlnet.items()}
    group_loss = GroupLoss(form=form, mass_weight=float(form != "probability"))
    pushed_BV = (at_B % 2)[:, None].expand(-1, 4)
    others = {"pushed_BV": pushed_BV, "reference_BVSE": reference_BVSE}
    for name, loss in group_loss(x_BVSX[..., :2], class_B, **others).items():
        of_term = sum(int((class_B == code).sum()) for code in TERMS[name])
        losses[f"groups {name}"] = (loss, 0 if form == "probability" else of_term)
    return losses


@given(
    cuts=st.sets(st.integers(1, 6), min_size=1, max_size=3),
    form=st.sampled_from(("score", "log", "probability")),
    seed=st.integers(0, 2**31),
)
def test_parts_have_the_gradient_of_the_batch(cuts: set[int], form: Form, seed: int) -> None:
    """The parts' gradients are averaged, as by accumulation and by several processes."""
    x = normal(7, 4, 2, 4, seed=seed).requires_grad_()
    edges = [0, *sorted(cuts), 7]
    parts = [means_and_counts(x, seed, slice(*ends), form) for ends in pairwise(edges)]
    for name, (loss, total) in means_and_counts(x, seed, slice(None), form).items():
        (whole,) = torch.autograd.grad(loss, x, retain_graph=True)
        shares = [len(parts) * (part[name][1] / total if total else 1) for part in parts]
        losses = [part[name][0] for part in parts]
        shared = torch.stack([*map(with_share, losses, shares)])
        (averaged,) = torch.autograd.grad(shared.mean(), x, retain_graph=True)
        torch.testing.assert_close(averaged, whole, rtol=1e-9, atol=1e-9, msg=name)
        assert shared.tolist() == torch.stack(losses).tolist()


ETHICAL, ADVERSARIAL, *_ = range(6)
SQUAD = 3  # in the authors' rows
NAMES = ("interventions(0=ethical,1=adversarial,2=irrelevant,3=squad)", "tomax")
KINDS = ("logits", "positions", "scores")
NAMES += tuple(f"{end}_{kind}" for kind in KINDS for end in ("start", "end"))
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
        candidate_log_probs(start_BT, end_BT[:, None], at_BSE.clamp(min=0)[:, None]),
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
    names = ("ethical", "adversarial", "irrelevant", "unadvised", "irrelevant", "irrelevant")
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
    make = torch.Generator().manual_seed(0)
    log_prob_BVSE, reference_BVSE = torch.rand(2, 21, 4, 2, 2, generator=make).double().log()
    dominant_B = torch.randint(2, (21,), generator=make)
    groups = {
        "log_prob_BVSE": log_prob_BVSE.requires_grad_(),
        "class_B": torch.arange(21) % 7,
        "pushed_BV": torch.stack((dominant_B, 1 - dominant_B) * 2, dim=1),
        "reference_BVSE": reference_BVSE.requires_grad_(),
    }
    weights = dict(zip(TERMS, (2.0, 0.5, 3.0, 1.0), strict=False))
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
    assert numbers(terms) == dict.fromkeys(list(TERMS)[:4], 0)
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
