"""Wrong flags, experiment files, data and checkpoints of training: refused before a model is trained."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from models.checkpoint import KEY
from tests.evaluation.checkpoints import save_ckpt
from tests.malformed.documents import FORMATS
from tests.malformed.outcome import everything_in, outcome, refused
from training.__main__ import main as training_command

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
SIZES = (
    "{vocab_size: 320, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1, pad_token_id: 1, "
    "bos_token_id: 0, eos_token_id: 2, type_vocab_size: 1}"
)


def fit(root: Path, *flags: str, experiment: Path | str = "lei_few_shot", command: str = "fit") -> list[str]:
    """A small run on files that do not exist but for those that `flags` name."""
    path = experiment if isinstance(experiment, Path) else CONFIGS / "experiments" / f"{experiment}.yaml"
    return [
        *(command, "-c", str(path), "-c", str(CONFIGS / "backbones" / "tiny_roberta.yaml")),
        f"--backbone.config={SIZES}",
        *(f"--run.root={root}", "--run.wandb=off", "--trainer.accelerator=cpu"),
        *(
            "--trainer.precision=32-true",
            "--trainer.enable_progress_bar=false",
            "--trainer.max_steps=2",
            "--trainer.val_check_interval=2",
        ),
        *("--data.train_qa=stories:dev", "--data.train_groups=[stories:heldout]", "--data.limit_train_qa=8"),
        *("--data.val_qa={main: 'stories:dev'}", "--data.val_groups={main: 'stories:heldout'}"),
        *("--data.limit_val_qa=4", "--data.limit_val_groups=2", *flags),
    ]


FLAGS = {
    "--trainer.max_step=3": "max_step",
    "--trainer.max_steps=many": "max_steps",
    "--trainer.devices=0": "devices",
    "--trainer.accelerator=abacus": "abacus",
    "--trainer.accumulate_grad_batches=0": "accumulate_grad_batches",
    "--trainer.val_check_interval=2.5": "val_check_interval",
    "--trainer.callbacks=Magic": "Magic",
    "--model=training.nowhere.Module": "training.nowhere",
    "--model.learning_rate=fast": "learning_rate",
    "--model.learning_rate=-1": "learning rate",
    "--model.warmup_ratio=2": "warmup_ratio",
    "--model.loss.ethical_wieght=2": "ethical_wieght",
    "--model.loss.ethical_weight=-1": "ethical_weight",
    "--data.groups_per_clas=2": "groups_per_clas",
    "--data.groups_per_class=0": "groups_per_class",
    "--data.qa_batch_size=0": "qa_batch_size",
    "--data.qa_every=0": "qa_every",
    "--data.limit_train_qa=-1": "limit_train_qa",
    "--data.random_advice_share=2": "random_advice_share",
    "--data.train_qa=/no/such/file.json": "/no/such/file.json",
    "--data.train_qa=stories:nowhere": "nowhere",
    "--data.train_groups=[/no/such/groups.json]": "/no/such/groups.json",
    "--data.val_qa=[1, 2]": "val_qa",
    "--data.val_groups={main: 'stories:nowhere'}": "nowhere",
    "--data.encoding.stride=999": "stride",
    "--data.encoding.max_length=40": "max_length",
    "--data.interventions.train=[]": "interventions: train",
    "--data.interventions={watch: [os, os_r_aug], generator: gpt}": "gpt",
    "--backbone.checkpoint=/no/such/folder": "/no/such/folder",
    "--backbone.tokenizer=/no/such/tokenizer": "/no/such/tokenizer",
    "--backbone.config={hidden_sizes: 3}": "hidden_sizes",
    "--backbone.config={num_attention_heads: 7}": "hidden",
    "--run.nmae=x": "nmae",
    "--checkpoint.monitor=val/qa/f7": "val/qa/f7",
    "--ckpt_path=/no/such.ckpt": "/no/such.ckpt",
    "-c=/no/such.yaml": "/no/such.yaml",
}


def test_the_run_is_good_without_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = outcome(training_command, fit(tmp_path / "runs"), capsys)
    assert found.code == 0, found.text


def check(arguments: list[str], words: list[str], root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(outcome(training_command, arguments, capsys), *words)
    left = [
        name
        for name in everything_in(root)
        if name != "bad.ckpt" and name.endswith((".ckpt", ".tmp", "metrics.json"))
    ]
    assert left == []


@pytest.mark.parametrize("flag", FLAGS)
def test_a_wrong_flag(flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(fit(tmp_path / "runs", flag), [FLAGS[flag]], tmp_path, capsys)


GOOD = (CONFIGS / "experiments" / "lei_few_shot.yaml").read_text(encoding="utf-8")
EXPERIMENTS = {
    "cut off inside a bracket": (b"data:\n  val_qa: {main: x", "bad.yaml"),
    "a bad indent": (GOOD.encode() + b"\n   x: 1\n y: 2\n", "bad.yaml"),
    "a list": (b"- 1\n- 2\n", "bad.yaml"),
    "an unknown key": (GOOD.encode() + b"\nnonsense: 1\n", "nonsense"),
    "latin-1": (GOOD.encode() + b"\n# caf\xe9\n", "bad.yaml"),
    "nested": (b"[" * 5000, "bad.yaml"),
    "an object that is made": (b"data: !!python/object/apply:os.system ['touch trapped']\n", "bad.yaml"),
    "an unknown class": (b"model: {class_path: training.nowhere.X}\n", "training.nowhere"),
    "a class of another kind": (b"model: {class_path: torch.nn.Linear}\n", "model"),
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_file(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    content, named = EXPERIMENTS[name]
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    check(fit(tmp_path / "runs", "-c", str(path)), [named], tmp_path, capsys)
    assert not (tmp_path / "trapped").exists()


@pytest.mark.parametrize("arguments", [[], ["fti"], ["fit"], ["fit", "-c"], ["validate"], ["--fit"]])
def test_an_incomplete_command(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(arguments, [], tmp_path, capsys)


DATA = ["train_qa=squad.json", "train_qa=rows.jsonl", "train_groups=lei.json", "val_groups=unqover.json"]


@pytest.mark.parametrize("kind", ["a field of another type", "cut off"])
@pytest.mark.parametrize("use", DATA)
def test_data(use: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flag, _, name = use.partition("=")
    (text,) = (form.text for form in FORMATS if form.name == name)
    path = tmp_path / f"bad_{name}"
    changed = text.replace('"context": "', '"context": 7, "x": "')
    path.write_text(text[: len(text) // 3] if kind == "cut off" else changed)
    source = {"train_qa": "{}", "train_groups": "[{}]", "val_groups": "{{main: {}}}"}[flag].format(path)
    check(fit(tmp_path / "runs", f"--data.{flag}={source}"), [path.name], tmp_path, capsys)


@pytest.mark.parametrize("flag", ["--ckpt_path={}", "--backbone.checkpoint={}", "--backbone.tokenizer={}"])
@pytest.mark.parametrize("kind", ["cut off", "empty", "of another program", "without weights", "a folder"])
def test_a_checkpoint(kind: str, flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.ckpt"
    if kind == "a folder":
        path.mkdir()
    else:
        save_ckpt(path, "roberta")
    raw = path.read_bytes() if path.is_file() else b""
    if kind == "cut off":
        path.write_bytes(raw[: len(raw) // 2])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "of another program":
        torch.save({"state_dict": {}}, path)
    elif kind == "without weights":
        found = torch.load(path, weights_only=True)
        found[KEY]["tokenizer"] = {}
        torch.save({KEY: found[KEY]}, path)
    check(fit(tmp_path / "runs", flag.format(path)), [path.name], tmp_path, capsys)


@pytest.mark.parametrize("command", ["validate", "test", "predict"])
def test_nothing_to_look_at(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = ("--data.val_qa={}", "--data.val_groups={}")
    found = outcome(training_command, fit(tmp_path / "runs", *empty, command=command), capsys)
    refused(found)


def test_a_run_behind_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "runs").write_text("precious")
    check(fit(tmp_path / "runs"), ["runs"], tmp_path, capsys)
    assert (tmp_path / "runs").read_text() == "precious"
