"""LoRA through the command line: small checkpoints on a frozen base, gone on with, in any precision. Merged
and exported they are evaluated in test_runs.py."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from models.__main__ import export
from models.checkpoint import read_info
from models.heads.span import QAModel, SpanModel
from models.loading import load, start
from tests.models.tiny import at
from tests.support.finished_runs import same
from tests.training.conftest import Commands, failing, lei

pytest.importorskip("peft")
LORA = "--backbone.lora_rank=4"
IDS = {"input_ids": torch.arange(5, 17)[None], "attention_mask": torch.ones(1, 12, dtype=torch.long)}


@pytest.mark.parametrize(("architecture", "precision"), [("gpt2", "32-true"), ("bert", "bf16-true")])
def test_an_adapter_alone_is_kept_and_resumed(
    architecture: str, precision: str, commands: Commands, tmp_path: Path
) -> None:
    plain = lei(commands, "base", "--trainer.max_steps=1", architecture=architecture)
    export(str(plain / "checkpoints/last.ckpt"), folder := tmp_path / "folder")
    flags = [LORA, f"--backbone.checkpoint={folder}", "--backbone.config={}", "--run.save_every_n_steps=1"]
    flags += [f"--backbone.tokenizer={folder}", f"--trainer.precision={precision}"]
    whole = lei(commands, "whole", *flags, architecture=architecture) / "checkpoints/last.ckpt"
    with pytest.raises(KeyError, match="no luck"):
        lei(commands, "cut", *flags, failing(), architecture=architecture)
    flags += ["--ckpt_path=auto"]
    with pytest.raises(ValueError, match=r"backbone.lora_rank 2 \(before: 4\)"):
        lei(commands, "cut", *flags, "--backbone.lora_rank=2", architecture=architecture)
    cut = lei(commands, "cut", *flags, architecture=architecture) / "checkpoints/last.ckpt"
    saved = [torch.load(path, weights_only=True) for path in (whole, cut)]
    kept, again = (checkpoint["state_dict"] for checkpoint in saved)
    assert same(kept, again)
    assert all("lora_" in name or "span_head" in name for name in kept)
    moments = [state["exp_avg"] for state in saved[0]["optimizer_states"][0]["state"].values()]
    assert {weight.dtype for weight in (*kept.values(), *moments)} == {torch.float32}
    assert read_info(str(whole)).adapter["base"] == str(folder)
    if precision == "bf16-true":
        half = at(whole, lora_rank=4, frozen_weights="bfloat16")
        rounded, merged = start(half, SpanModel).eval(), load(str(whole), QAModel)[0]
        assert {w.dtype for w in rounded.encoder.parameters() if not w.requires_grad} == {torch.bfloat16}
        torch.testing.assert_close(rounded.encode(IDS).float(), merged.encode(IDS), rtol=0.02, atol=0.05)
