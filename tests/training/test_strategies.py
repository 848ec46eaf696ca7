"""DDP and FSDP on two gloo processes, compared with each other; metrics with one process's."""

from pathlib import Path
from typing import Any

import pytest
import torch

from interventune.models.backbones import encoder_layers
from interventune.models.heads.span import SpanModel
from interventune.models.loading import start
from interventune.training.cli import main as train
from tests.models.tiny import at
from tests.training.conftest import Commands, SmallData, failing, launch, metrics_of, small_folder
from tests.training.stopping.test_resume import arguments, assert_equal_runs, fit

TWO = "--trainer.devices=2 --trainer.max_epochs=2 --data.eval_batch_size=5"
"""13 questions in batches of 5: one process gets two batches, the other one."""


def run(commands: Commands, version: str, strategy: str, *flags: str, code: int = 0) -> str:
    """What `fit` prints on two processes."""
    command = arguments(commands, version, TWO, f"--trainer.strategy={strategy}", *flags)
    return launch(command, processes=2, code=code)


def assert_metrics_of_one_process(commands: Commands, home: Path) -> None:
    """Of the same weights: to 1e-5, each example counted once."""
    flags = f"--run.version=one --ckpt_path={home}/checkpoints/last.ckpt"
    train(commands.of("validate", "lei_few_shot", "roberta", flags))
    one, two = metrics_of(home.parent / "one"), metrics_of(home)
    assert one["val/qa/n"] == two["val/qa/n"] == 13
    assert sum(two[f"val/bias/{c}/n"] for c in ("ethical", "adversarial", "irrelevant")) == 9
    for key, value in one.items():
        if key.startswith("val/"):
            assert two[key] == pytest.approx(value, abs=1e-5), key


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, small_data: SmallData) -> Path:
    """DDP to the end."""
    commands = Commands(tmp_path_factory.mktemp("whole") / "runs", small_data)
    run(commands, "whole", "ddp")
    return commands.root / "lei_few_shot" / "whole"


def test_a_signal_to_one_process_stops_both(commands: Commands, undisturbed: Path) -> None:
    home = commands.root / "lei_few_shot" / "cut"
    stop = failing(at="batch", rank=1, kind="SIGTERM", batch=2)
    assert run(commands, "cut", "ddp", stop, code=143).count("stopped at step") == 1
    stopped_at = torch.load(home / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]
    assert 1 <= stopped_at < 4
    run(commands, "cut", "ddp")
    assert_equal_runs(undisturbed, home)
    assert_metrics_of_one_process(commands, home)


def assert_close_together(one: dict[Any, Any], other: dict[Any, Any], relative: float) -> None:
    """By the norm of all tensors."""
    first, second = (torch.cat([part[key].flatten() for key in one]) for part in (one, other))
    assert (second - first).norm() <= relative * first.norm()


def test_fsdp_is_ddp_to_rounding_in_one_file(commands: Commands, undisturbed: Path) -> None:
    home = commands.root / "lei_few_shot"
    run(commands, "fsdp", "fsdp", failing(kind="SIGINT", batch=3), code=130)
    run(commands, "fsdp", "fsdp")
    paths = (folder / "checkpoints" / "last.ckpt" for folder in (undisturbed, home / "fsdp"))
    one, other = (torch.load(path, weights_only=True) for path in paths)
    assert one["state_dict"].keys() == other["state_dict"].keys()
    optimizers = [checkpoint["optimizer_states"][0] for checkpoint in (one, other)]
    for a, b in zip(*(state["param_groups"] for state in optimizers), strict=True):
        assert {**a, "betas": tuple(a["betas"])} == {**b, "betas": tuple(b["betas"])}
    # A gradient that is only rounding (of the biases of keys, say, which softmax ignores) is
    # another one on another processor, and Adam makes as long a step of it: so all are judged
    # together, and weights loosely.
    for moment in ("exp_avg", "exp_avg_sq", "step"):
        moments = [{i: x[moment] for i, x in state["state"].items()} for state in optimizers]
        assert_close_together(*moments, relative=1e-5)
    assert_close_together(one["state_dict"], other["state_dict"], relative=3e-5)
    assert_metrics_of_one_process(commands, home / "fsdp")

    # Another run is refused by every process; one process goes on from what two have written.
    said = run(commands, "fsdp", "fsdp", "--seed_everything=4", code=2)
    assert "error: seed_everything 4 (before: 0)" in said
    same_batch = "--trainer.accumulate_grad_batches=2 --data.eval_batch_size=5"
    fit(commands, "fsdp", "--trainer.max_epochs=3", same_batch)
    assert metrics_of(home / "fsdp")["epoch"] == 3


def test_fsdp_trains_adapters_of_decoders_as_ddp_does(commands: Commands, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    base = small_folder(tmp_path / "base", "llama")
    flags = f"--backbone.checkpoint={base} --backbone.lora_rank=4 --data.groups_per_class=2"
    flags += " --model.learning_rate=1e-3"
    saved = []
    for strategy in ("ddp", "fsdp"):
        own = f"--run.version={strategy} --trainer.strategy={strategy} --trainer.max_epochs=1"
        launch(commands.of("fit", "lei_few_shot", "llama", flags, TWO, own), processes=2)
        path = commands.root / "lei_few_shot" / strategy / "checkpoints/last.ckpt"
        saved.append(torch.load(path, weights_only=True)["state_dict"])
    assert all("lora_" in name for name in saved[0])
    torch.testing.assert_close(saved[1], saved[0], atol=1e-4, rtol=1e-3)


def test_the_layers_of_every_encoder_are_found() -> None:
    for name in ("bert", "roberta", "xlnet", "distilbert", "electra", "deberta-v3"):
        model = start(at("random", name), SpanModel)
        assert len(encoder_layers(model.encoder)) == model.config.num_hidden_layers == 2
