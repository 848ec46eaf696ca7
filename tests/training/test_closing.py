"""What commands say when they end."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from interventune.command import main as interventune
from tests.data_modules.fixtures.coqa_rows import save_file, save_hub_rows
from tests.training.conftest import Commands, curves, metrics_of
from training.cli import main as train
from training.closing import next_command, print_metrics

KINDS = {
    "lei_few_shot": ("bias", "val/bias/selection"),
    "squad": ("bias", "val/qa/f1"),
    "stories_ibt": ("faithfulness", "val/qa/f1"),
    "multiple_choice": ("confusion", "val/choices/accuracy"),
}
EXTRA = {
    "stories_ibt": (
        "--data.train_qa=stories:conversation_train",
        "--data.limit_train_qa=30",
        "--data.val_qa=stories:conversation_dev",
        "--data.limit_val_qa=8",
    ),
    "multiple_choice": (
        "--data.train_choices=[stories:choices_train]",
        "--data.val_choices=stories:choices_dev",
        "--data.choices.limit_train=20",
        "--data.choices.limit_val=8",
    ),
}


@pytest.mark.parametrize("experiment", KINDS)
def test_fit_ends_with_what_to_do_next(
    experiment: str, commands: Commands, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    flags = (f"--model.reference_cache={tmp_path}",) * experiment.startswith("lei")
    train(commands.of("fit", experiment, "bert", "--trainer.max_steps=1", *flags, *EXTRA.get(experiment, ())))
    run, metrics, following = capsys.readouterr().out.splitlines()[-3:]
    home = commands.root / experiment / "version_0"
    protocol, monitor = KINDS[experiment]
    assert run == f"run: {home}, 1 steps"
    assert metrics.startswith(f"metrics: {monitor} ")
    # Ended before its first validation, it has metrics and a best checkpoint all the same.
    assert metrics_of(home)[monitor] is not None
    assert (home / "checkpoints" / "best.ckpt").exists()
    command = shlex.split(following.removeprefix("next: "))
    assert command[:3] == ["interventune", "evaluate", protocol]
    command[command.index("--output") + 1] = str(tmp_path / "report")
    few = ["--limit", "24", "--trials", "1", "--choices", "3", "--instances", "10"]
    limit = {"faithfulness": ["--limit", "4"], "confusion": few}
    assert interventune([*command[1:], *limit.get(protocol, [])]) == 0
    assert (tmp_path / "report" / "report.md").exists()


def test_bbq_is_probed_by_bbq(tmp_path: Path) -> None:
    row = {"context": "A met B.", "question": "Who?", "label": 0, "example_id": 1}
    row |= {f"ans{i}": name for i, name in enumerate(("A", "B", "Unknown"))}
    (tmp_path / "Age.jsonl").write_text(json.dumps(row) + "\n")
    sets = {"val": {"main": str(tmp_path / "Age.jsonl")}, "test": {}}
    data = SimpleNamespace(kinds=["choices"], choice_sources=sets, train_choices=[])
    command = next_command(Path("last.ckpt"), Path("runs/bbq/0"), data)
    assert command[2] == "bbq"
    assert command[command.index("--metadata") + 1] == str(tmp_path / "additional_metadata.csv")


def test_what_max_steps_ends_is_validated_each_time(commands: Commands) -> None:
    fit = commands.of("fit", "squad", "bert", "--ckpt_path=auto", "--data.qa_batch_size=4")
    home = commands.root / "squad" / "version_0"
    train([*fit, "--trainer.max_steps=3"])
    train([*fit, "--trainer.max_steps=6", "--trainer.max_epochs=2"])
    validated = [row["step"] for row in curves(home) if row["val/qa/f1"]]
    assert validated == ["2", "5"]
    assert metrics_of(home)["step"] == 6


def test_a_test_adds_to_the_metrics_of_its_run(commands: Commands) -> None:
    home = commands.root / "squad" / "lr[1e-4]"  # a version's name is no pattern
    here = "--run.version=lr[1e-4]"
    train(commands.of("fit", "squad", "bert", "--trainer.max_steps=2", here))
    before = metrics_of(home)
    train(
        commands.of(
            "test", "squad", "bert", f"--data.test_qa={commands.data.qa_dev}", "--ckpt_path=last", here
        )
    )
    after = metrics_of(home)
    assert {key: after[key] for key in before} == before
    assert after["test/qa/f1"] == pytest.approx(before["val/qa/f1"], abs=1e-6)


def test_nothing_goes_on_from_weights_alone(commands: Commands) -> None:
    train(commands.of("fit", "squad", "bert", "--trainer.max_steps=2", "--checkpoint.save_weights_only=true"))
    best = commands.root / "squad" / "version_0" / "checkpoints" / "best.ckpt"
    with pytest.raises(ValueError, match=r"--backbone\.checkpoint"):
        train(commands.of("fit", "squad", "bert", "--trainer.max_steps=4", f"--ckpt_path={best}"))


def test_a_run_without_sets_to_validate_on(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    train(commands.of("fit", "squad", "bert", "--trainer.max_steps=2", "--data.val_qa={}"))
    assert capsys.readouterr().out.splitlines()[-2].startswith("metrics: train/loss/span ")


@pytest.mark.parametrize("command", ["validate", "test"])
def test_metrics_are_told_once(
    command: str, commands: Commands, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    sets = (f"--data.test_qa={commands.data.qa_dev}",)
    train(commands.of(command, "squad", "bert", *sets))
    said = capsys.readouterr().out
    stage = "val" if command == "validate" else "test"
    assert said.count(f"{stage}/qa") == 1
    assert "Test metric" not in said
    assert "Validate metric" not in said
    assert said.splitlines()[1].split()[-1] == "13"


def test_one_reference_is_said_with_the_metrics(
    commands: Commands, capsys: pytest.CaptureFixture[str], tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """Of CoQA's rows on the Hub; its own file has additional answers."""
    sizes = ("--data.encoding.max_length=160", "--data.interventions.watch=[os]")
    for source in (save_hub_rows(tmp_path / "hub.jsonl"), save_file(tmp_path / "file.json")):
        sets = (f"--data.val_qa={{main: {source}}}", "--data.interventions.shift=[]", *sizes)
        train(commands.of("validate", "stories_ot", "bert", *sets))
        notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
        warned = [str(w.message) for w in recwarn.list if "one reference" in str(w.message)]
        assert notes == [f"note: {text}" for text in warned]
        assert len(notes) == (source.suffix == ".jsonl")
        assert not notes or notes[0].startswith("note: val/qa/f1: EM and F1 of CoQA against one reference")
        recwarn.clear()


def test_tables_fit_80_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = ("mu", "eta", "theta", "mean_abs_c", "mu_normalised", "mass", "delta", "eps", "n")
    metrics: dict[str, float | None] = {
        f"val/bias/{where}{name}": 0.123456
        for where in ("ethical/", "adversarial/", "unseen_advice/irrelevant/")
        for name in names
    }
    metrics |= {"val/bias/selection": None, "val/qa/f1": math.nan, "val/qa/n": 1300.0, "epoch": 1.0}
    print_metrics(metrics)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("0.123" in line for line in lines) >= 3
    assert "1300" in "".join(lines)
    assert "nan" not in "".join(lines)
