"""Bias and shift during somebody else's training: the same numbers as our own validation."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from transformers import PreTrainedModel, TrainerControl, TrainerState, TrainingArguments

from data_modules.groups_data import GroupsDataModule
from data_modules.questions_data import Interventions
from models.backbones import Backbone
from models.pretrained import load_pretrained
from tests.support.processes import on_two_ranks
from training.probe import LightningProbe, TransformersProbe, probe

TINY = {"vocab_size": 320, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "type_vocab_size": 1}


def tiny_model() -> PreTrainedModel:
    torch.manual_seed(0)
    backbone = Backbone(architecture="roberta", checkpoint="random", tokenizer="stories", config=TINY)
    return load_pretrained(backbone)


def tiny_data() -> GroupsDataModule:
    return GroupsDataModule(
        tokenizer="stories",
        architecture="roberta",
        val_groups={"main": "stories:heldout"},
        val_qa={"main": "stories:conversation_dev"},
        limit_val_groups=6,
        limit_val_qa=12,
        interventions=Interventions(shift=["ts_r"]),
        cache="",
    )


@pytest.fixture(scope="module")
def expected() -> dict[str, float]:
    return probe(tiny_model(), tiny_data())


class Somebodys(pl.LightningModule):
    """A module that knows nothing of us."""

    def __init__(self) -> None:
        super().__init__()
        self.qa = tiny_model()

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None: ...


def test_names_and_mode_are_those_of_our_own_runs(expected: dict[str, float]) -> None:
    assert {"val/bias/ethical/mu", "val/shift/cls/ts_r/mean", "val/qa/f1"} <= expected.keys()
    model = tiny_model().train()
    assert probe(model, tiny_data()) == pytest.approx(expected, nan_ok=True)  # without dropout
    assert model.training


def probed_trainer(**options: Any) -> pl.Trainer:
    """Lightning's, with the probe and nothing else to see."""
    probed = LightningProbe(tiny_data(), lambda module: module.qa)
    silent = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar"), False)
    return pl.Trainer(callbacks=[probed], accelerator="cpu", **silent, **options)


def probe_on_rank(rank: int, folder: str) -> None:
    """What users of transformers and of Lightning see in one of two processes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/rendezvous", timedelta(minutes=1), 2, rank)
    state, metrics = TrainerState(is_world_process_zero=rank == 0), dict[str, float]()
    arguments = TrainingArguments(folder, use_cpu=True, report_to=[]), state, TrainerControl()
    TransformersProbe(tiny_data()).on_evaluate(*arguments, model=tiny_model(), metrics=metrics)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCAL_RANK", str(rank))  # as a launcher does
        trainer = probed_trainer(strategy="ddp", devices=2)
        trainer.validate(Somebodys(), torch.utils.data.DataLoader([0.0, 0.0]), verbose=False)
    logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
    torch.save((metrics, logged, state.log_history), Path(folder) / f"{rank}.pt")


def test_two_processes_share_the_sets_and_know_all_numbers(
    expected: dict[str, float], tmp_path: Path
) -> None:
    pytest.importorskip("accelerate")
    on_two_ranks(probe_on_rank, tmp_path)
    for rank in (0, 1):
        metrics, logged, history = torch.load(tmp_path / f"{rank}.pt")
        assert metrics == pytest.approx(expected, abs=1e-7, nan_ok=True)
        assert {name: logged[name] for name in expected} == pytest.approx(expected, abs=1e-7, nan_ok=True)
        assert len(history) == (rank == 0)


def test_lightning_users_find_them_in_their_logs(expected: dict[str, float]) -> None:
    trainer = probed_trainer()
    (logged,) = trainer.validate(Somebodys(), torch.utils.data.DataLoader([0.0]), verbose=False)
    assert {name: logged[name] for name in expected} == pytest.approx(expected, nan_ok=True)


def test_transformers_trainer_finds_them_in_its_metrics(expected: dict[str, float], tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    from transformers import Trainer, TrainingArguments

    row = {"input_ids": [5] * 8, "attention_mask": [1] * 8, "start_positions": 2, "end_positions": 3}
    arguments: Any = {"report_to": [], "use_cpu": True, "save_strategy": "no", "eval_strategy": "epoch"}
    callback = TransformersProbe(tiny_data())
    trainer = Trainer(
        tiny_model(),
        TrainingArguments(str(tmp_path), num_train_epochs=1, disable_tqdm=True, **arguments),
        train_dataset=[row] * 4,
        eval_dataset=[row],
        callbacks=[callback],
    )
    untrained = trainer.evaluate()
    assert {name: untrained[name] for name in expected} == pytest.approx(expected, nan_ok=True)
    trainer.train()
    assert callback.latest.keys() == expected.keys()
    assert callback.latest != expected
