"""LoRA through the command line: small checkpoints on a frozen base, gone on with, evaluated, merged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from models.__main__ import export
from models.adapters import adapted_layers
from models.backbones import Backbone
from models.checkpoint import read_info
from models.heads.causal import CausalModel
from models.heads.span import QAModel, SpanModel
from models.loading import load, start
from tests.support.finished_runs import same
from tests.training.conftest import Commands, failing, lei
from training.cli import main as train

pytest.importorskip("peft")
LESS = ("--backbone.lora_rank=2",)
LORA = ("--backbone.lora_rank=4",)
IDS = {"input_ids": torch.arange(5, 17)[None], "attention_mask": torch.ones(1, 12, dtype=torch.long)}


@pytest.mark.parametrize(("architecture", "precision"), [("gpt2", "32-true"), ("bert", "bf16-true")])
def test_an_adapter_alone_is_kept_resumed_and_merged(
    architecture: str, precision: str, commands: Commands, tmp_path: Path
) -> None:
    plain = lei(commands, "base", "--trainer.max_steps=1", architecture=architecture)
    export(str(plain / "checkpoints/last.ckpt"), folder := tmp_path / "folder")
    flags = [*LORA, f"--backbone.checkpoint={folder}", "--backbone.config={}", "--run.save_every_n_steps=1"]
    flags += [f"--backbone.tokenizer={folder}", f"--trainer.precision={precision}"]
    whole = lei(commands, "whole", *flags, architecture=architecture) / "checkpoints/last.ckpt"
    with pytest.raises(KeyError, match="no luck"):
        lei(commands, "cut", *flags, failing(), architecture=architecture)
    cut = (
        lei(commands, "cut", *flags, "--ckpt_path=auto", architecture=architecture) / "checkpoints/last.ckpt"
    )
    saved = [torch.load(path, weights_only=True) for path in (whole, cut)]
    kept, again = (checkpoint["state_dict"] for checkpoint in saved)
    if architecture == "gpt2":
        with pytest.raises(ValueError, match=r"backbone.lora_rank 2 \(before: 4\)"):
            lei(commands, "cut", *flags, *LESS, "--ckpt_path=auto", architecture=architecture)
    assert same(kept, again)
    assert all("lora_" in name or "span_head" in name for name in kept)
    moments = [state["exp_avg"] for state in saved[0]["optimizer_states"][0]["state"].values()]
    assert {weight.dtype for weight in (*kept.values(), *moments)} == {torch.float32}
    assert read_info(str(whole)).adapter["base"] == str(folder)

    merged, _ = load(str(whole), QAModel)
    export(str(whole), tmp_path / "merged")
    theirs, _ = load(str(tmp_path / "merged"), QAModel)
    torch.testing.assert_close(theirs.encode(IDS), merged.encode(IDS), rtol=0, atol=1e-6)
    kind = SpanModel if architecture == "bert" else CausalModel
    adapted = Backbone(architecture=architecture, checkpoint=str(whole), lora_rank=4)  # type: ignore[arg-type]
    if precision == "bf16-true":
        rounded = start(replace(adapted, frozen_weights="bfloat16"), kind).eval()
        assert {w.dtype for w in rounded.encoder.parameters() if not w.requires_grad} == {torch.bfloat16}
        torch.testing.assert_close(rounded.encode(IDS).float(), merged.encode(IDS), rtol=0.02, atol=0.05)
    trained, below = start(adapted, kind).eval(), load(str(folder), QAModel)[0]
    torch.testing.assert_close(trained.encode(IDS), merged.encode(IDS), rtol=0, atol=1e-6)
    assert not torch.equal(trained.encode(IDS), below.encode(IDS))
    for layer in adapted_layers(trained).values():
        layer.enable_adapters(False)
    assert torch.equal(trained.encode(IDS), below.encode(IDS))

    export(str(whole), tmp_path / "peft", adapter=True)
    flags = [f"--backbone.checkpoint={tmp_path}/peft", "--backbone.config={}", "--run.version=0"]
    flags += [f"--backbone.tokenizer={folder}", "--trainer.max_steps=2", "--model.warmup_ratio=0"]
    train(commands.of("fit", "squad", architecture, *flags))
    last = commands.root / "squad" / "0" / "checkpoints" / "last.ckpt"
    weights = [load(str(path), QAModel)[0].state_dict() for path in (tmp_path / "peft", last)]
    moved = [not torch.equal(weights[0][name], weights[1][name]) for name in weights[0]]
    assert sum(moved) > 0.9 * len(moved), "an adapter's folder is a whole model to train"


def test_precisions_that_do_not_go_with_adapters(commands: Commands) -> None:
    with pytest.raises(ValueError, match="take bf16-true or 16-mixed"):
        lei(commands, "none", *LORA, "--trainer.precision=16-true")
    with pytest.raises(ValueError, match=r"set backbone\.lora_rank"):
        lei(commands, "none", "--backbone.frozen_weights=bfloat16")
