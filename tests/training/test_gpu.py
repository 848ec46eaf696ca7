"""On a GPU: what the CPU computes, runs that resume bit for bit, and kernels of our own."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import interventune
from interventune.metrics.bias.group_bias import group_rows
from interventune.metrics.cka import LinearCKA
from interventune.metrics.shift import distance_sums
from interventune.models.kernels import ATTENTION, compile_layers
from tests.losses.test_losses import means_and_counts, normal
from tests.metrics.batches import embeddings, shift_batch
from tests.models import tiny
from tests.training.conftest import Commands, curves, launch
from tests.training.stopping import test_resume as resume

without = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
pytestmark = [pytest.mark.gpu, without]
ON_GPU = "--trainer.accelerator=gpu --trainer.devices=1"
NO_DROPOUT = resume.DROPOUT.replace("0.1", "0.0")


@pytest.mark.parametrize("form", ["score", "log", "probability"])
def test_losses_and_gradients_equal_the_cpu_s(form: Any) -> None:
    results = []
    for device in ("cpu", "cuda"):
        x = normal(7, 4, 2, 4).to(device).requires_grad_()
        losses = {name: loss for name, (loss, _) in means_and_counts(x, 16, slice(7), form).items()}
        of = partial(torch.autograd.grad, inputs=x, retain_graph=True)
        results.append({name: (loss, *of(loss)) for name, loss in losses.items()})
    torch.testing.assert_close(results[1], results[0], check_device=False)


def test_metrics_equal_the_cpu_s_and_do_not_wait_for_the_device() -> None:
    row_B, pair_BS = torch.arange(30), torch.tensor([[0, 1]] * 30)
    scores = (normal(30, 4, 2).sigmoid(), row_B % 3, pair_BS, row_B % 5)
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
    same = f"{ON_GPU} {NO_DROPOUT} --trainer.max_epochs=1"
    plain = resume.fit(commands, "plain", same)
    launch(resume.arguments(commands, "other", same, f"--trainer.strategy={flags}"))
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
