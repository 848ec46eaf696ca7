"""Probes compare with the start of this training, also after it was resumed, and no other model."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from transformers import PreTrainedTokenizerFast, Trainer

import interventune
from interventune.storage.documents import read_archive
from tests.interventune.test_probe import GROUPS, STORIES, Folders, Tuning, opened, small, tuned
from tests.interventune.test_probe_trace import QUIET, lightning, loader, span_trainer

Build, Numbers, Log = Callable[..., Trainer], dict[str, float], pytest.LogCaptureFixture
MEAN, CKA = "val/shift/cls/start/mean", "val/shift/tokens/start/cka"
CHANGES = ("val/qa/f1/change", "val/bias/ethical/mu/change", f"{MEAN}/change")
LOST = "the checkpoint has no start of this probe: changes since the start are undefined"


def probe(*sources: str, **options: Any) -> Any:
    return interventune.TransformersProbe(*(sources or (GROUPS, STORIES)), limit=3, **options)


@pytest.fixture
def trainer(folders: Folders, tmp_path: Path) -> Build:
    def build(*probes: Any, steps: int = 2) -> Trainer:
        how: Any = {"learning_rate": 1e-2, "lr_scheduler_type": "constant", "max_steps": steps}
        how |= QUIET | {"eval_strategy": "steps", "eval_steps": 2, "save_steps": 2}
        trainer = span_trainer(folders["bert"], tmp_path, [], **how)
        for probe in probes:
            probe.attach(trainer)
        return trainer

    return build


def probed(trainer: Trainer) -> list[Numbers]:
    """All probes of a training."""
    rows = [row for row in trainer.state.log_history if "eval_val/qa/f1" in row]
    return [{name.removeprefix("eval_"): value for name, value in row.items()} for row in rows]


def warnings(caplog: Log) -> list[str]:
    """What the project warned of."""
    return [row.message for row in caplog.records if row.name.startswith("interventune.probe")]


def is_start(numbers: Numbers) -> bool:
    differences = numbers[MEAN] - 1, *(numbers[name] for name in CHANGES)
    return max(map(abs, differences)) < 1e-6


def test_each_training_has_its_own_start(trainer: Build) -> None:
    first = trainer(probe())
    tuned(first.model)
    first.evaluate()
    tuned(first.model)  # what was probed before is not the start
    first.train()
    assert [is_start(numbers) for numbers in probed(first)[-2:]] == [True, False]
    first.train()
    assert [is_start(numbers) for numbers in probed(first)] == [True, False]


def test_a_resumed_training_keeps_its_start(trainer: Build, tmp_path: Path, caplog: Log) -> None:
    every, other = probe(), probe(STORIES, measures=["qa"])
    whole = trainer(every, other, steps=4)
    whole.train()
    on = trainer(probe(STORIES, measures=["qa"]), probe(), steps=4)
    on.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert not warnings(caplog)
    assert len(probed(whole)) == 6
    for ours, theirs in zip(probed(on)[-2:], probed(whole)[-2:], strict=True):
        same = [name for name in theirs if name in ours and name.startswith("val/")]
        assert same
        for name in same:
            assert ours[name] == pytest.approx(theirs[name], nan_ok=True)
    resumed = [numbers for numbers in probed(on)[-4:] if MEAN in numbers]
    assert not any(map(is_start, resumed))
    read_archive(tmp_path / "checkpoint-4" / every.key)  # runs no code


def test_a_lost_start_is_said_once(trainer: Build, tmp_path: Path, caplog: Log) -> None:
    trainer().train()
    on = trainer(probe(score={MEAN: 1.0}), steps=4)
    on.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    numbers = probed(on)[-1]
    assert all(math.isnan(numbers[name]) for name in (*CHANGES, MEAN, CKA, "val/score"))
    assert warnings(caplog) == [LOST]
    assert math.isfinite(numbers["val/qa/f1"])


def test_a_start_is_of_no_other_training_there(trainer: Build, tmp_path: Path, caplog: Log) -> None:
    trainer(probe()).train()
    moved = (tmp_path / "checkpoint-2").rename(tmp_path / "moved")
    other = trainer(probe())
    other.args.learning_rate = 1e-3
    other.train()  # its checkpoint-2 is where the first one was
    on = trainer(probe(), steps=4)
    on.train(resume_from_checkpoint=str(moved))
    assert warnings(caplog) == [LOST]
    on = trainer(probe(), steps=4)
    on.args.resume_from_checkpoint = str(moved)
    on.train(resume_from_checkpoint=str(moved))
    assert warnings(caplog) == [LOST]


def test_lightning_resumes_with_the_start(folders: Folders, tmp_path: Path, caplog: Log) -> None:
    def fit(probes: Any, steps: int, module: Any = None, **more: Any) -> tuple[Any, Numbers]:
        torch.manual_seed(0)
        keep = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=1, save_top_k=-1)
        how: Any = {"enable_checkpointing": True, "val_check_interval": 2, "limit_val_batches": 1}
        fitted = lightning([*probes, keep], steps, tmp_path, **how)
        module = module or Tuning(folders["llama"])
        fitted.fit(module, loader(6), loader(2), **more)
        return module, {name: float(value) for name, value in fitted.callback_metrics.items()}

    def new() -> Any:
        return interventune.LightningProbe(STORIES, limit=4)

    alone = interventune.LightningProbe(STORIES, measures=["qa"], limit=2)
    module, first = fit([every := new(), alone], 2)
    assert first[MEAN] < 0.99
    checkpoint = torch.load(path := tmp_path / "step=1.ckpt", weights_only=True)
    assert {every.key, alone.key} <= checkpoint.keys()
    begun = torch.load(path, weights_only=True)[every.key]
    for state in begun[0]["states"].values():
        state.neg_()
    torch.save(checkpoint | {every.key: begun}, turned := tmp_path / "turned.ckpt")
    _, numbers = fit([again := new()], 2, ckpt_path=str(turned))  # in the middle of an epoch
    assert numbers[MEAN] == pytest.approx(-first[MEAN], abs=0.1)  # the start is the checkpoint's
    assert not warnings(caplog)
    _, second = fit([again], 2, module)  # another training, with another trainer
    assert second[MEAN] > 0.5
    fit([other := interventune.LightningProbe(STORIES, limit=3)], 2, ckpt_path=str(path))
    assert warnings(caplog) == [LOST]
    assert math.isnan(other.table.loc[MEAN, "value"])


def test_shift_with_another_tokenizer(folders: Folders, caplog: Log) -> None:
    model, tokenizer = opened(folders["bert"])
    first = small(STORIES)
    first.ask(model, tokenizer)
    same = first.ask(model, opened(folders["bert"])[1])
    assert is_start({CHANGES[1]: 0} | same)
    assert not warnings(caplog)
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    words = state["model"]["vocab"]
    swapped = [word for word in words if word.isalpha()]
    backwards = sorted((words[word] for word in swapped), reverse=True)
    words |= zip(swapped, backwards, strict=True)
    backend = type(tokenizer.backend_tokenizer).from_str(json.dumps(state))
    other = PreTrainedTokenizerFast(tokenizer_object=backend, **tokenizer.special_tokens_map)
    numbers = first.ask(model, other)
    assert math.isnan(numbers[MEAN])
    assert math.isnan(numbers[CKA])
    assert math.isfinite(numbers[CHANGES[0]])
    assert warnings(caplog)[0].startswith("tokens or width are not those of the start: shift")
    fresh = small(STORIES)
    fresh.ask(model, other)
    assert numbers["val/qa/f1"] == fresh.table.loc["val/qa/f1", "value"]


def squad(path: Path, *questions: tuple[str, str]) -> str:
    """A file of (question, answer) about one sentence, which leaves nothing if it is deleted."""
    qas = []
    for i, (question, text) in enumerate(questions):
        answers = [{"text": text, "answer_start": 0}] if text else []
        qas.append({"id": str(i), "question": question, "answers": answers})
    rows = {"data": [{"paragraphs": [{"context": "Ann saw it.", "qas": qas}]}]}
    path.write_text(json.dumps(rows))
    return str(path)


NEEDS: list[tuple[list[str] | None, str, set[str]]] = [
    (["qa"], "answerable", {"qa"}),
    (["qa"], "unanswerable", {"qa", "abstention"}),
    (["abstention"], "unanswerable", {"qa", "abstention"}),
    (None, "answerable", {"bias", "qa", "shift"}),
    (None, "unanswerable", {"bias", "qa", "abstention", "shift"}),
    (["bias"], "answerable", {"bias"}),
]


@pytest.mark.parametrize(("measures", "kind", "families"), NEEDS)
def test_a_probe_needs_only_what_its_measures_need(
    measures: Any, kind: str, families: set[str], folders: Folders, tmp_path: Path
) -> None:
    answer = "Ann" if kind == "answerable" else ""
    source = squad(tmp_path / "a.json", ("Who?", answer), ("Who saw it?", answer))
    numbers = small(GROUPS, source, measures=measures).ask(*opened(folders["bert"]))
    assert {key.split("/")[1] for key in numbers} == families


@pytest.mark.parametrize("measure", ["abstention", "shift"])
def test_what_a_measure_needs_and_lacks_is_an_error(measure: str, tmp_path: Path) -> None:
    source = squad(tmp_path / "a.json", ("Who?", "Ann"))
    with pytest.raises(ValueError, match=r"a\.json: no question is left in variant ts"):
        small(source, measures=[measure])
