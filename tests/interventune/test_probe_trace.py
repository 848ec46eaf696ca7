"""A probe leaves no trace: trainings with and without it are equal in every bit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from datasets import Dataset
from transformers import Trainer, TrainingArguments

import interventune
from tests.interventune.test_probe import STORIES, opened, small

STEPS = 3
HOW: dict[str, Any] = {
    "max_steps": STEPS,
    "eval_steps": 1,
    "logging_steps": 1,
    "save_strategy": "no",
}
HOW |= {"use_cpu": True, "report_to": [], "eval_strategy": "steps", "disable_tqdm": True}
HOW |= {
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "activation_checkpointing": True,
}
Trained = tuple[list[Any], dict[str, torch.Tensor]]


def with_transformers(kind: str, folders: dict[str, Path], out: str, probes: list[Any]) -> Trained:
    torch.manual_seed(1)
    model, tokenizer = opened(folders["bert" if kind == "trainer" else "llama"])
    if kind == "trainer":
        rows = [
            dict(tokenizer("a", "red b c"), start_positions=i % 3, end_positions=3)
            for i in range(12)
        ]
        trainer = Trainer(
            model, TrainingArguments(out, **HOW), None, rows, rows[:2], tokenizer, callbacks=probes
        )
    else:
        trl, peft = pytest.importorskip("trl"), pytest.importorskip("peft")
        lora = peft.LoraConfig(
            r=4, target_modules="all-linear", lora_dropout=0.3, task_type="CAUSAL_LM"
        )
        answers = [["completion"], ["chosen", "rejected"]][kind == "dpo"]
        rows = [
            {"prompt": "Is it", **{name: f" {name[: i % 3 + 1]}" for name in answers}}
            for i in range(12)
        ]
        data, name = Dataset.from_list(rows), kind.upper()
        arguments = getattr(trl, f"{name}Config")(out, **HOW, bf16=kind == "dpo")
        given: dict[str, Any] = {"train_dataset": data, "eval_dataset": data.select([0])}
        given |= {"processing_class": tokenizer, "peft_config": lora, "callbacks": probes}
        trainer = getattr(trl, f"{name}Trainer")(model, args=arguments, **given)
    trainer.train()
    losses = [(row["loss"], row["grad_norm"]) for row in trainer.state.log_history if "loss" in row]
    return losses, trainer.model.state_dict()


class Tuning(pl.LightningModule):
    """A user's module."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.model, self.tokenizer = opened(folder)
        self.model.activation_checkpointing_enable()
        self.losses: list[float] = []

    def training_step(self, ids_BT: torch.Tensor, batch_idx: int) -> torch.Tensor:
        loss: torch.Tensor = self.model(ids_BT, labels=ids_BT).loss
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None: ...

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def lightning(callbacks: list[Any], steps: int, root: Path, **how: Any) -> pl.Trainer:
    off = ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")
    quiet: Any = dict.fromkeys(off, False) | {"accelerator": "cpu", "default_root_dir": root}
    return pl.Trainer(callbacks=callbacks, max_steps=steps, **quiet | how)


def loader(rows: int, batch: int = 2) -> Any:
    ids_NT = torch.randint(3, 300, (rows, 6), generator=torch.Generator().manual_seed(0))
    return torch.utils.data.DataLoader(ids_NT, batch, shuffle=True)


def with_lightning(folders: dict[str, Path], out: str, probes: list[Any]) -> Trained:
    pl.seed_everything(1, verbose=False)
    module = Tuning(folders["llama"])
    often: Any = {"accumulate_grad_batches": 2, "val_check_interval": 1, "precision": "bf16-mixed"}
    lightning(probes, STEPS, Path(out), **often).fit(module, loader(12), loader(2))
    return module.losses, module.state_dict()


@pytest.mark.parametrize("kind", ["trainer", "sft", "dpo", "lightning"])
def test_a_training_with_a_probe_is_the_same(
    kind: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    def train(*probes: Any) -> Trained:
        if kind == "lightning":
            return with_lightning(folders, str(tmp_path), [*probes])
        return with_transformers(kind, folders, str(tmp_path), [*probes])

    probe = interventune.LightningProbe if kind == "lightning" else interventune.TransformersProbe
    (losses, weights), (ours, found) = train(), train(probe(STORIES, limit=2))
    assert ours == losses
    assert len(losses) >= STEPS
    assert all(torch.equal(found[name], weight) for name, weight in weights.items())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_so_it_is_on_a_gpu(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(HOW, "use_cpu", False)
    torch.use_deterministic_algorithms(True)
    try:
        test_a_training_with_a_probe_is_the_same("trainer", folders, tmp_path)
    finally:
        torch.use_deterministic_algorithms(False)


def seen(model: Any, tokenizer: Any) -> dict[str, Any]:
    """All that a probe could change."""
    found: dict[str, Any] = {
        "tokenizer": (tokenizer.backend_tokenizer.to_str(), repr(vars(tokenizer)))
    }
    for name, part in model.named_modules():
        found |= {f"{name}.{key}": repr(value) for key, value in vars(part).items()}
        found[name] = type(part)
    for name, weight in model.state_dict(keep_vars=True).items():
        found[name] = (
            weight.tolist(),
            weight.dtype,
            weight.requires_grad,
            weight.grad,
            weight.is_inference(),
        )
    configs = model.config, getattr(model, "generation_config", None)
    found["configs"] = [config and config.to_dict() for config in configs]
    found["random"] = torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())
    found["torch"] = torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_dtype()
    return found


@pytest.mark.parametrize("name", ["bert", "llama"])
@pytest.mark.parametrize("fails", [False, True])
def test_all_that_a_probe_saw_is_as_before(
    name: str, fails: bool, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = opened(folders[name])
    list(model.modules())[5].eval()
    next(model.parameters()).requires_grad = False
    model.forward = lambda *_, **__: pytest.fail("what mixed precision puts over a model")
    model._original_forward = None
    tokenizer("a b", truncation=True, max_length=1)
    if name == "llama":
        tokenizer.pad_token = None

    def caching(part: Any, *_: Any) -> None:  # as models keep positions that they have computed
        part.cached = torch.ones(1)
        part._buffers["positions"] = part.cached + 1

    layer = next(part for part in model.modules() if isinstance(part, torch.nn.ModuleList))[0]
    layer.register_buffer("positions", torch.zeros(1))
    layer.register_forward_pre_hook(caching)
    before = seen(model, tokenizer)
    probe = small(STORIES)
    if fails:
        monkeypatch.setattr("interventune.probe_sources.between", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            probe.ask(model, tokenizer)
    else:
        probe.ask(model, tokenizer)
    after = seen(model, tokenizer)
    assert {key for key in before | after if before.get(key) != after.get(key)} == set()


def test_within_autocast_a_probe_has_the_same_numbers_and_weights_train_on(
    folders: dict[str, Path],
) -> None:
    model, tokenizer = opened(folders["bert"])
    expected = (
        small(STORIES, dtype="bfloat16").ask(model, tokenizer),
        small(STORIES).ask(model, tokenizer),
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = (
            small(STORIES, dtype="bfloat16").ask(model, tokenizer),
            small(STORIES).ask(model, tokenizer),
        )
        model(torch.ones(1, 4, dtype=torch.long)).start_logits.sum().backward()
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6, nan_ok=True)
    assert all(
        weight.grad is not None for name, weight in model.named_parameters() if "query" in name
    )


def test_a_probe_compiles_nothing(folders: dict[str, Path]) -> None:
    model, tokenizer = opened(folders["bert"])
    compiled = []

    def backend(graph: Any, _: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    for layer in model.bert.encoder.layer:
        layer.compile(backend=backend)
    model(torch.ones(1, 4, dtype=torch.long))
    before = len(compiled)
    small(STORIES).ask(model, tokenizer)
    assert 0 < before == len(compiled)
