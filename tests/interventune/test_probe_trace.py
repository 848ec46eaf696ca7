"""A probe leaves no trace: trainings with and without it are equal in every bit."""

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
from tests.interventune.test_probe import STORIES, Folders, Patch, Tuning, opened, small

STEPS = 3
QUIET: dict[str, Any] = {"use_cpu": True, "report_to": [], "disable_tqdm": True}
HOW = QUIET | {"max_steps": STEPS, "eval_steps": 1, "logging_steps": 1, "save_strategy": "no"}
HOW |= {"eval_strategy": "steps", "per_device_train_batch_size": 2}
HOW |= {"gradient_accumulation_steps": 2, "activation_checkpointing": True}
Trained = tuple[list[Any], dict[str, torch.Tensor]]


def span_trainer(folder: Path, out: object, probes: list[Any], **how: Any) -> Trainer:
    """Transformers' Trainer of a span model."""
    torch.manual_seed(1)
    model, tokenizer = opened(folder)
    row = {**tokenizer("a", "red b c"), "end_positions": 3}
    rows = [row | {"start_positions": i % 3} for i in range(12)]
    arguments = TrainingArguments(str(out), **how)
    return Trainer(model, arguments, None, rows, rows[:2], tokenizer, callbacks=probes)


def preference_trainer(folder: Path, out: str, probes: list[Any]) -> Trainer:
    """TRL's, with LoRA."""
    trl, peft = pytest.importorskip("trl"), pytest.importorskip("peft")
    torch.manual_seed(1)
    model, tokenizer = opened(folder)
    lora: Any = {"target_modules": "all-linear", "task_type": "CAUSAL_LM", "lora_dropout": 0.3}
    texts = [{name: f" {name[: i % 3 + 1]}" for name in ("chosen", "rejected")} for i in range(12)]
    data = Dataset.from_list([{"prompt": "Is it", **row} for row in texts])
    options: dict[str, Any] = {"train_dataset": data, "eval_dataset": data.select([0])}
    options |= {"processing_class": tokenizer, "peft_config": peft.LoraConfig(r=4, **lora)}
    options |= {"args": trl.DPOConfig(out, **HOW, bf16=True), "callbacks": probes}
    trainer: Trainer = trl.DPOTrainer(model, **options)
    return trainer


def with_transformers(kind: str, folders: Folders, out: str, probes: list[Any]) -> Trained:
    if kind == "trainer":
        trainer = span_trainer(folders["bert"], out, probes, **HOW)
    else:
        trainer = preference_trainer(folders["llama"], out, probes)
    trainer.train()
    losses = [(row["loss"], row["grad_norm"]) for row in trainer.state.log_history if "loss" in row]
    return losses, trainer.model.state_dict()


def lightning(callbacks: list[Any], steps: int, root: Path, **how: Any) -> pl.Trainer:
    off = ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")
    quiet: Any = dict.fromkeys(off, False) | {"accelerator": "cpu", "default_root_dir": root}
    return pl.Trainer(callbacks=callbacks, max_steps=steps, **quiet | how)


def loader(rows: int, batch: int = 2) -> Any:
    ids_NT = torch.randint(3, 300, (rows, 6), generator=torch.Generator().manual_seed(0))
    return torch.utils.data.DataLoader(ids_NT, batch, shuffle=True)


def with_lightning(folders: Folders, out: str, probes: list[Any]) -> Trained:
    pl.seed_everything(1, verbose=False)
    module = Tuning(folders["llama"])
    often: Any = {"accumulate_grad_batches": 2, "val_check_interval": 1, "precision": "bf16-mixed"}
    lightning(probes, STEPS, Path(out), **often).fit(module, loader(12), loader(2))
    return module.losses, module.state_dict()


@pytest.mark.parametrize("kind", ["trainer", "DPO", "lightning"])
def test_a_training_with_a_probe_is_equal(kind: str, folders: Folders, tmp_path: Path) -> None:
    def train(*probes: Any) -> Trained:
        if kind == "lightning":
            return with_lightning(folders, str(tmp_path), [*probes])
        return with_transformers(kind, folders, str(tmp_path), [*probes])

    probe = interventune.LightningProbe if kind == "lightning" else interventune.TransformersProbe
    (losses, weights), (ours, probed) = train(), train(probe(STORIES, limit=2))
    assert ours == losses
    assert len(losses) >= STEPS
    assert all(torch.equal(probed[name], weight) for name, weight in weights.items())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_so_it_is_on_a_gpu(folders: Folders, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setitem(HOW, "use_cpu", False)
    torch.use_deterministic_algorithms(True)
    try:
        test_a_training_with_a_probe_is_equal("trainer", folders, tmp_path)
    finally:
        torch.use_deterministic_algorithms(False)


def seen(model: Any, tokenizer: Any) -> dict[str, Any]:
    """All that a probe could change."""
    values: dict[str, Any] = {name: type(part) for name, part in model.named_modules()}
    for name, part in model.named_modules():
        values |= {f"{name}.{key}": repr(value) for key, value in vars(part).items()}
    for name, weight in model.state_dict(keep_vars=True).items():
        values[name] = weight.tolist(), weight.dtype, weight.grad
        values[f"{name}, flags"] = weight.requires_grad, weight.is_inference()
    values["tokenizer"] = tokenizer.backend_tokenizer.to_str(), repr(vars(tokenizer))
    configs = model.config, getattr(model, "generation_config", None)
    values["configs"] = [config and config.to_dict() for config in configs]
    values["random"] = torch.get_rng_state().tolist(), random.getstate()
    values["numpy"] = repr(np.random.get_state())
    values["torch"] = torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_dtype()
    return values


@pytest.mark.parametrize("name", ["bert", "llama"])
@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_changed(name: str, fails: bool, folders: Folders, monkeypatch: Patch) -> None:
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


def test_a_probe_within_autocast_has_the_same_numbers(folders: Folders) -> None:
    model, tokenizer = opened(folders["bert"])
    probes = [small(STORIES, dtype="bfloat16"), small(STORIES)]
    expected = [probe.ask(model, tokenizer) for probe in probes]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for probe, numbers in zip(probes, expected, strict=True):
            assert probe.ask(model, tokenizer) == pytest.approx(numbers, abs=1e-6, nan_ok=True)
        model(torch.ones(1, 4, dtype=torch.long)).start_logits.sum().backward()
    assert model.bert.encoder.layer[0].attention.self.query.weight.grad is not None


def test_a_probe_compiles_nothing(folders: Folders) -> None:
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
