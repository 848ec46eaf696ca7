"""On a GPU: what the CPU computes, runs that resume bit for bit, and kernels of our own."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import interventune
from interventune.losses import answers
from interventune.losses.group import GroupLoss
from interventune.metrics.bias.group_bias import group_rows
from interventune.metrics.cka import LinearCKA
from interventune.metrics.shift import distance_sums
from interventune.models.kernels import ATTENTION, compile_layers
from tests.metrics.batches import embeddings, shift_batch
from tests.models import tiny
from tests.training.conftest import Commands, curves, launch
from tests.training.stopping import test_resume as resume

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
ON_GPU = "--trainer.accelerator=gpu --trainer.devices=1"
NO_DROPOUT = f"--backbone.config={resume.DROPOUT.replace('0.1', '0.0')}"


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def of_groups(form: Any, log_prob_BVSE: Tensor, *targets: Tensor) -> Tensor:
    class_B, pushed_BV, reference_BVSE = targets
    others = {"pushed_BV": pushed_BV, "reference_BVSE": reference_BVSE}
    return torch.stack([*GroupLoss(form=form)(log_prob_BVSE, class_B, **others).values()]).sum()


def of_xlnet(start_BT: Tensor, *others: Tensor) -> Tensor:
    return torch.stack([*answers.xlnet_answer_loss(start_BT, *others).values()]).sum()


LOGITS, AT, TYPE = drawn(6, 9), torch.arange(6), torch.tensor([0, 1, 2, 3, 3, 3])
GROUPS = (AT, torch.tensor([[0, 1, 0, 1]] * 6), drawn(6, 4, 2, 2, seed=1).sigmoid().log())
LOSSES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "span": (answers.span_cross_entropy, (LOGITS, LOGITS + 1, AT, AT + 1)),
    "joint": (answers.joint_answer_loss, (LOGITS, LOGITS * 2, drawn(6, 3), AT, AT + 2, TYPE)),
    "xlnet": (
        of_xlnet,
        (LOGITS, -LOGITS, drawn(6, 3), drawn(6, 12), drawn(6, 3), AT, AT, TYPE, AT, AT % 3),
    ),
    "tags": (answers.rationale_tagging_loss, (LOGITS, LOGITS > 0, LOGITS < 1)),
    "written": (answers.written_answer_loss, (LOGITS[:, 0], AT + 1)),
    "choices": (partial(answers.choice_loss, gap_weight=0.5), (LOGITS, AT, AT > 2)),
}
for form in ("score", "log", "probability"):
    LOSSES[form] = (partial(of_groups, form), (drawn(6, 4, 2, 2).sigmoid().log(), *GROUPS))


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_gradients_equal_the_cpu_s(name: str) -> None:
    loss, inputs = LOSSES[name]
    results = []
    for device in ("cpu", "cuda"):
        first, *others = (value.clone().to(device) for value in inputs)
        value = loss(first.requires_grad_(), *others)
        value.backward()
        results.append((value.cpu(), first.grad.cpu()))
    torch.testing.assert_close(results[1], results[0])


def test_metrics_equal_the_cpu_s_and_do_not_wait_for_the_device() -> None:
    row_B, pair_BS = torch.arange(30), torch.tensor([[0, 1]] * 30)
    scores = (drawn(30, 4, 2).sigmoid(), row_B % 3, pair_BS, row_B % 5)
    metrics = LinearCKA(2, 4, 3), LinearCKA(2, 4, 3, "cuda")
    cases: list[tuple[Any, tuple[Tensor, ...]]] = [
        (group_rows, scores),
        (distance_sums, shift_batch(40)),
        (lambda x, y: metrics[x.is_cuda].update(x, y), embeddings(20, 4, 3)),
    ]
    for measure, batch in cases:
        expected, on_gpu = measure(*batch), [value.cuda() for value in batch]
        torch.cuda.set_sync_debug_mode("error")
        try:
            rows = measure(*on_gpu)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        if expected is not None:
            torch.testing.assert_close(rows.cpu(), expected, rtol=1e-9, atol=1e-9)
    cka, on_gpu = (metric.compute().cpu() for metric in metrics)
    torch.testing.assert_close(on_gpu, cka, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["bert", "roberta", "electra", "distilbert", "modernbert"])
@pytest.mark.parametrize("compiled", [False, True])
def test_kernels_and_compiled_layers_equal_torch_s_attention(name: str, compiled: bool) -> None:
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
    flags = f"{ON_GPU} --trainer.precision=bf16-mixed --trainer.deterministic=true"
    flags += f" {resume.BY_STEP}"
    resume.cut(commands, flags, kind="bug", batch=7)
    whole, cut = (resume.fit(commands, name, flags) for name in ("whole", "cut"))
    resume.assert_equal_runs(whole, cut)


@pytest.mark.parametrize("flags", ["ddp", "fsdp", "fsdp --backbone.compile=true"])
def test_one_process_of_a_strategy_trains_as_without(flags: str, commands: Commands) -> None:
    """By NCCL, in a process of its own."""
    same = f"{ON_GPU} {NO_DROPOUT} --trainer.max_epochs=1"
    plain = resume.fit(commands, "plain", same)
    code, said = launch(resume.arguments(commands, "other", same, f"--trainer.strategy={flags}"))
    assert code == 0, said[-3000:]
    homes = (plain, plain.parent / "other")
    one, other = (dict(curves(home, "train/loss/total")) for home in homes)
    assert other == pytest.approx(one, rel=5e-2)


def test_an_evaluation_equals_the_cpu_s(commands: Commands, tmp_path: Path) -> None:
    home, frames = resume.fit(commands, "gpu", ON_GPU, "--trainer.max_epochs=1"), []
    flags: Any = {"checkpoint": [str(home / "checkpoints/last.ckpt")], "data": ["stories:heldout"]}
    for device in ("cpu", "cuda"):
        report = interventune.evaluate("bias", **flags, limit=20, device=device)
        frames.append(report.results.frame)
    numbers = [frame.select_dtypes("number").to_numpy() for frame in frames]
    np.testing.assert_allclose(*numbers, rtol=1e-3, atol=1e-4)
