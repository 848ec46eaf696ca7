"""fit -> checkpoint -> validate -> evaluate -> resume, through the command line, for each paper's model."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
import torch

from evaluation.__main__ import main as evaluate
from tests.evaluation.cells import Cells
from tests.training.conftest import Commands, curves, lei, metrics_of
from training.callbacks.eval_sets import BIAS_NAMES
from training.cli import main as train


@pytest.mark.parametrize("architecture", ["roberta", "xlnet"])
def test_a_run_from_fit_to_resume(architecture: str, commands: Commands, tmp_path: Path) -> None:
    cache = f"--model.reference_cache={tmp_path / 'cache'}"
    fit = commands.of("fit", "lei_few_shot", architecture, cache, "--trainer.max_epochs=1")
    train(fit)
    home = commands.root / "lei_few_shot" / "version_0"
    environment = json.loads((home / "environment.json").read_text())
    assert environment["data"].keys() == {str(path) for path in vars(commands.data).values()}
    after_fit = metrics_of(home)
    assert after_fit["val/qa/n"] == 13
    assert sum(after_fit[f"val/bias/{c}/n"] for c in ("ethical", "adversarial", "irrelevant")) == 9
    last = home / "checkpoints" / "last.ckpt"

    # Another command, another batch size: the same numbers.
    flags = [f"--ckpt_path={last}", "--run.name=again", "--data.eval_batch_size=8", cache]
    train(commands.of("validate", "lei_few_shot", architecture, *flags))
    again = metrics_of(commands.root / "again" / "version_0")
    same = {key: value for key, value in after_fit.items() if key.startswith("val/")}
    assert {key: again[key] for key in same} == pytest.approx(same, abs=1e-5)

    # And a third way to the same numbers: the evaluation room, from the checkpoint file alone.
    report = tmp_path / "report"
    asked, questions = ["--checkpoint", str(last), "--data"], [str(commands.data.qa_dev), "--variants", "os"]
    assert evaluate(["faithfulness", *asked, *questions, "--output", str(tmp_path / "answers")]) == 0
    f1 = Cells(tmp_path / "answers")("f1", checkpoint="last", variant="os")
    assert f1 == pytest.approx(after_fit["val/qa/f1"], abs=1e-6)
    assert evaluate(["bias", *asked, str(commands.data.groups_dev), "--output", str(report)]) == 0
    cells = Cells(report)
    place = {"checkpoint": "last", "data": commands.data.groups_dev.stem}
    for metric, c in product(BIAS_NAMES[:-1], ("ethical", "adversarial", "irrelevant", "none")):
        expected = after_fit[f"val/bias/{c}/{metric}"]
        assert cells(metric, **place, **{"class": c}) == pytest.approx(expected, abs=1e-5), (c, metric)

    train([*fit, "--trainer.max_epochs=2", "--ckpt_path=last"])
    assert metrics_of(home)["step"] == 2 * after_fit["step"]


def test_other_loggers_and_writers_stand_beside_our_own(commands: Commands, tmp_path: Path) -> None:
    other = f"{{class_path: CSVLogger, init_args: {{save_dir: {tmp_path / 'other'}}}}}"
    fit = commands.of(
        "fit",
        "squad",
        "bert",
        *(f"--trainer.logger={other}", "--run.wandb=offline"),
        *("--ckpt_path=auto", "--trainer.log_every_n_steps=1"),
    )
    train([*fit, "--trainer.max_epochs=1"])
    home = commands.root / "squad" / "version_0"
    assert list((home / "wandb").glob("offline-run-*"))
    assert list((tmp_path / "other").rglob("metrics.csv"))
    before = (home / "metrics.csv").read_text()
    train([*fit, "--trainer.max_epochs=2"])
    assert (home / "metrics.csv").read_text().startswith(before)


def test_the_best_checkpoint_is_that_of_the_experiments_metric(commands: Commands) -> None:
    flags = ("--model.learning_rate=1e-2", "--trainer.max_epochs=3")
    home = lei(commands, "mine", *flags, architecture="roberta")
    scores = [(value, step + 1) for step, value in curves(home, "val/bias/selection")]
    assert len(scores) == 3
    best = torch.load(home / "checkpoints" / "best.ckpt", weights_only=True)
    assert best["global_step"] == min(scores)[1]


@pytest.mark.parametrize("unwatched", ["--data.val_groups={}", "--trainer.limit_val_batches=0"])
def test_without_its_metric_best_is_last(unwatched: str, commands: Commands) -> None:
    folder = lei(commands, "mine", unwatched, architecture="roberta") / "checkpoints"
    best, last = (torch.load(folder / f"{name}.ckpt", weights_only=True) for name in ("best", "last"))
    assert best["global_step"] == last["global_step"] > 0


def test_one_seed_rules_all_that_are_not_set(commands: Commands) -> None:
    flags = ("--seed_everything=3", "--trainer.max_steps=1")
    config = train(commands.of("fit", "lei_planted", "bert", *flags)).config.fit
    assert (config.data.init_args.seed, config.model.init_args.planted_seed) == (3, 3)
    config = train(commands.of("fit", "lei_planted", "bert", *flags, "--model.planted_seed=5")).config.fit
    assert (config.data.init_args.seed, config.model.init_args.planted_seed) == (3, 5)
