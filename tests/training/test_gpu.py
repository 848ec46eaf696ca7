"""On a GPU: what the CPU computes, runs that resume bit for bit, and kernels of our own."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import interventune
from interventune.losses import answers, choices
from interventune.losses.group import GroupLoss
from interventune.metrics.bias.group_bias import GroupBias
from interventune.metrics.cka import LinearCKA
from interventune.metrics.shift import EmbeddingShift
from interventune.models.kernels import ATTENTION, compile_layers
from tests.metrics.batches import SHIFT_LAYERS, ShiftBatch, embeddings, shift_batch
from tests.models import tiny
from tests.training.conftest import Commands, curves, launch
from tests.training.stopping.test_resume import (
    BY_STEP,
    DROPOUT,
    arguments,
    assert_equal_runs,
    cut,
    fit,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
ON_GPU = ("--trainer.accelerator=gpu", "--trainer.devices=1")
MIXED = "--trainer.precision=bf16-mixed"
NO_DROPOUT = f"--backbone.config={DROPOUT.replace('0.1', '0.0')}"


def on(device: str, value: Any) -> Any:
    return value.to(device) if isinstance(value, Tensor) else value


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def of_groups(form: Any, log_prob_BVSE: Tensor, *targets: Tensor) -> Tensor:
    class_B, pushed_BV, reference_BVSE = targets
    terms = GroupLoss(form=form)(
        log_prob_BVSE, class_B, pushed_BV=pushed_BV, reference_BVSE=reference_BVSE
    )
    return torch.stack([*terms.values()]).sum()


def of_xlnet(start_BT: Tensor, *others: Tensor) -> Tensor:
    return torch.stack([*answers.xlnet_answer_loss(start_BT, *others).values()]).sum()


LOGITS, AT, TYPE = drawn(6, 9), torch.arange(6), torch.tensor([0, 1, 2, 3, 3, 3])
GROUPS = (
    torch.arange(6),
    torch.tensor([[0, 1, 0, 1]] * 6),
    drawn(6, 4, 2, 2, seed=1).sigmoid().log(),
)
LOSSES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "span": (answers.span_cross_entropy, (LOGITS, LOGITS + 1, AT, AT + 1)),
    "joint": (answers.joint_answer_loss, (LOGITS, LOGITS * 2, drawn(6, 3), AT, AT + 2, TYPE)),
    "xlnet": (
        of_xlnet,
        (LOGITS, -LOGITS, drawn(6, 3), drawn(6, 12), drawn(6, 3), AT, AT, TYPE, AT, AT % 3),
    ),
    "tags": (answers.rationale_tagging_loss, (LOGITS, LOGITS > 0, LOGITS < 1)),
    "written": (answers.written_answer_loss, (LOGITS[:, 0], AT + 1)),
    "choices": (partial(choices.choice_loss, gap_weight=0.5), (LOGITS, AT, AT > 2)),
    **{
        form: (partial(of_groups, form), (drawn(6, 4, 2, 2).sigmoid().log(), *GROUPS))
        for form in ("score", "log", "probability")
    },
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_gradients_equal_the_cpu_s(name: str) -> None:
    loss, inputs = LOSSES[name]
    found = []
    for device in ("cpu", "cuda"):
        first, *others = (on(device, value.clone()) for value in inputs)
        value = loss(first.requires_grad_(), *others)
        value.backward()
        found.append((value.cpu(), first.grad.cpu()))
    torch.testing.assert_close(found[1], found[0])


def test_metrics_equal_the_cpu_s_and_do_not_wait_for_the_device() -> None:
    scores = (
        drawn(30, 4, 2).sigmoid(),
        torch.arange(30) % 3,
        torch.tensor([[0, 1]] * 30),
        torch.arange(30) % 5,
    )
    cases: list[tuple[Any, tuple[Tensor, ...]]] = [
        (partial(GroupBias, 3, 2, 5), scores),
        (partial(LinearCKA, 2, 4, 3), embeddings(20, 4, 3)),
        (partial(EmbeddingShift, SHIFT_LAYERS), ShiftBatch(*shift_batch(40))),
    ]
    for build, batch in cases:
        expected, metric = build(), build().to("cuda")
        expected.update(*batch)
        there = [value.cuda() for value in batch]
        torch.cuda.set_sync_debug_mode("error")
        try:
            metric.update(*there)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        for one, other in zip(metric.compute(), expected.compute(), strict=True):
            torch.testing.assert_close(one.cpu(), other, rtol=1e-9, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("name", ["bert", "roberta", "electra", "distilbert", "modernbert"])
@pytest.mark.parametrize("compiled", [False, True])
def test_the_flash_kernel_and_compiled_layers_compute_what_torch_s_attention_does(
    name: str, compiled: bool
) -> None:
    """Several shapes, with padding; in bfloat16, against float32."""
    model = tiny.model(name).cuda()
    if compiled:
        compile_layers(model)
    assert model.config._attn_implementation == ATTENTION
    for rows, width in ((3, 24), (5, 40), (1, 16)):
        ids_BT = torch.randint(5, 60, (rows, width), device="cuda")
        lengths_B1 = torch.tensor([[width], [9], [1], [5], [13]], device="cuda")[:rows]
        mask_BT = (torch.arange(width, device="cuda") < lengths_B1).long()
        inputs = {"input_ids": ids_BT, "attention_mask": mask_BT, "token_type_ids": 0 * ids_BT}
        found = []
        for mixed in (False, True):
            model.zero_grad()
            with torch.autocast("cuda", torch.bfloat16, enabled=mixed):
                start_BT = model(inputs).start_BT
            start_BT.masked_fill(mask_BT == 0, 0).square().mean().backward()
            weight = next(model.encoder.parameters())
            found.append((start_BT * mask_BT, weight.grad))
        logits_BT, exact_BT = found[1][0], found[0][0]
        assert (logits_BT - exact_BT).norm() < 0.03 * exact_BT.norm()
        gradients = [gradient.flatten() for _, gradient in found]
        assert torch.cosine_similarity(*gradients, dim=0) > 0.99


def test_a_resumed_run_is_equal_bit_for_bit(commands: Commands) -> None:
    flags = (*ON_GPU, MIXED, "--trainer.deterministic=true", BY_STEP)
    cut(commands, *flags, kind="bug", batch=7)
    assert_equal_runs(fit(commands, "whole", *flags), fit(commands, "cut", *flags))


@pytest.mark.parametrize("flags", ["ddp", "fsdp", "fsdp --backbone.compile=true"])
def test_one_process_of_a_strategy_trains_as_without(flags: str, commands: Commands) -> None:
    """By NCCL, in a process of its own."""
    same = (*ON_GPU, NO_DROPOUT, "--trainer.max_epochs=1")
    plain = fit(commands, "plain", *same)
    strategy = f"--trainer.strategy={flags}".split()
    code, said = launch(arguments(commands, "other", *same, *strategy))
    assert code == 0, said[-3000:]
    one, other = (
        dict(curves(home, "train/loss/total")) for home in (plain, plain.parent / "other")
    )
    assert other == pytest.approx(one, rel=5e-2)


def test_an_evaluation_equals_the_cpu_s(commands: Commands, tmp_path: Path) -> None:
    home = fit(commands, "asked", *ON_GPU, "--trainer.max_epochs=1")
    checkpoint, frames = str(home / "checkpoints/last.ckpt"), []
    for device in ("cpu", "cuda"):
        asked = {
            "checkpoint": [checkpoint],
            "data": ["stories:heldout"],
            "limit": 20,
            "device": device,
        }
        frames.append(interventune.evaluate("bias", **asked).results.frame)
    numbers = [frame.select_dtypes("number").to_numpy() for frame in frames]
    torch.testing.assert_close(
        *map(torch.from_numpy, numbers), rtol=1e-3, atol=1e-4, equal_nan=True
    )
