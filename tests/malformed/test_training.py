"""Wrong flags, experiment files, data and checkpoints of training: told before a model is trained."""

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
    "--trainer.max_steps=-7": "max_steps",
    "--trainer.max_epochs=-3": "max_epochs",
    "--trainer.max_epochs=1.5": "max_epochs",
    "--trainer.devices=0": "devices",
    "--trainer.devices=none": "devices",
    "--trainer.accelerator=abacus": "abacus",
    "--trainer.accelerator=gpu": "",
    "--trainer.strategy=magic": "magic",
    "--trainer.precision=17": "precision",
    "--trainer.gradient_clip_val=big": "gradient_clip_val",
    "--trainer.gradient_clip_algorithm=scissors": "scissors",
    "--trainer.accumulate_grad_batches=0": "accumulate_grad_batches",
    "--trainer.val_check_interval=2.5": "val_check_interval",
    "--trainer.limit_train_batches=-1": "limit_train_batches",
    "--trainer.callbacks=Magic": "Magic",
    "--seed_everything=soon": "seed_everything",
    "--model=training.nowhere.Module": "training.nowhere",
    "--model.learning_rate=fast": "learning_rate",
    "--model.learning_rate=-1": "learning rate",
    "--model.learning_rate=nan": "learning_rate",
    "--model.weight_decay=-0.5": "weight_decay",
    "--model.warmup_ratio=2": "warmup_ratio",
    "--model.loss.ethical_wieght=2": "ethical_wieght",
    "--model.loss.ethical_weight=much": "ethical_weight",
    "--model.loss.ethical_weight=-1": "ethical_weight",
    "--model.loss.form=odds": "form",
    "--model.irrelevant_target=someone": "irrelevant_target",
    "--data.groups_per_clas=2": "groups_per_clas",
    "--data.groups_per_class=0": "groups_per_class",
    "--data.groups_per_class=1.5": "groups_per_class",
    "--data.qa_batch_size=0": "qa_batch_size",
    "--data.qa_batch_size=-3": "qa_batch_size",
    "--data.qa_every=0": "qa_every",
    "--data.eval_batch_size=0": "eval_batch_size",
    "--data.limit_train_qa=-1": "limit_train_qa",
    "--data.limit_val_qa=-1": "limit_val_qa",
    "--data.limit_val_groups=-1": "limit_val_groups",
    "--data.num_workers=-1": "num_workers",
    "--data.random_advice_share=2": "random_advice_share",
    "--data.train_advice=loud": "train_advice",
    "--data.train_qa=/no/such/file.json": "/no/such/file.json",
    "--data.train_qa=stories:nowhere": "nowhere",
    "--data.train_groups=[/no/such/groups.json]": "/no/such/groups.json",
    "--data.train_groups=7": "train_groups",
    "--data.val_qa=[1, 2]": "val_qa",
    "--data.val_groups={main: 'stories:nowhere'}": "nowhere",
    "--data.val_groups={main: [1]}": "val_groups",
    "--data.encoding.stride=999": "stride",
    "--data.encoding.max_length=40": "max_length",
    "--data.encoding.max_length=long": "max_length",
    "--data.encoding.pad_to_multiple_of=0": "pad_to_multiple_of",
    "--data.encoding.order=random": "order",
    "--data.interventions.train=[tsr]": "interventions.train",
    "--data.interventions.train=[]": "interventions: train",
    "--data.interventions={watch: [os, os_r_aug], generator: gpt}": "gpt",
    "--backbone.architecture=gpt": "architecture",
    "--backbone.checkpoint=/no/such/folder": "/no/such/folder",
    "--backbone.checkpoint=/no/such/file.ckpt": "/no/such/file.ckpt",
    "--backbone.tokenizer=/no/such/tokenizer": "/no/such/tokenizer",
    "--backbone.attention=blurred": "attention",
    "--backbone.config={hidden_sizes: 3}": "hidden_sizes",
    "--backbone.config={hidden_size: large}": "hidden_size",
    "--backbone.config={num_attention_heads: 7}": "hidden",
    "--backbone.config=5": "backbone.config",
    "--run.wandb=always": "wandb",
    "--run.nmae=x": "nmae",
    "--checkpoint.mode=best": "mode",
    "--checkpoint.save_top_k=-5": "save_top_k",
    "--checkpoint.monitor=val/qa/f7": "val/qa/f7",
    "--ckpt_path=last": "ckpt_path",
    "--ckpt_path=/no/such.ckpt": "/no/such.ckpt",
    "-c=/no/such.yaml": "/no/such.yaml",
    "--optimizer=SGD": "optimizer",
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
    "a tab": (b"data:\n\ttrain_qa: x\n", "bad.yaml"),
    "a list": (b"- 1\n- 2\n", "bad.yaml"),
    "a text": (b"hello\n", "bad.yaml"),
    "an unknown key": (GOOD.encode() + b"\nnonsense: 1\n", "nonsense"),
    "an unknown key inside": (b"data:\n  nonsense: 1\n", "nonsense"),
    "latin-1": (GOOD.encode() + b"\n# caf\xe9\n", "bad.yaml"),
    "utf-16 without a mark": (GOOD.encode("utf-16-le"), "bad.yaml"),
    "zeros": (bytes(100), "bad.yaml"),
    "binary": (bytes(range(255, 0, -1)), "bad.yaml"),
    "nested": (b"[" * 5000, "bad.yaml"),
    "an object that is made": (b"data: !!python/object/apply:os.system ['touch trapped']\n", "bad.yaml"),
    "a number for an object": (b"trainer: 7\n", "trainer"),
    "a list for a number": (b"trainer: {max_steps: [1]}\n", "max_steps"),
    "an unknown class": (b"model: {class_path: training.nowhere.X}\n", "training.nowhere"),
    "a class of another kind": (b"model: {class_path: torch.nn.Linear}\n", "model"),
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_file(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    content, told = EXPERIMENTS[name]
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    check(fit(tmp_path / "runs", "-c", str(path)), [told], tmp_path, capsys)
    assert not (tmp_path / "trapped").exists()


@pytest.mark.parametrize("arguments", [[], ["fti"], ["fit"], ["fit", "-c"], ["validate"], ["--fit"]])
def test_an_incomplete_command(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(arguments, [], tmp_path, capsys)


QUESTIONS = ("squad.json", "coqa.json", "hotpotqa.json", "rows.jsonl")


@pytest.mark.parametrize(
    ("use", "kind", "name"),
    [
        *(("train", "a field of another type", name) for name in (*QUESTIONS, "lei.json", "unqover.json")),
        *(("train", kind, "lei.json") for kind in ("cut off", "latin-1", "empty", "a folder")),
        *(("val", kind, "coqa.json") for kind in ("a field of another type", "cut off", "a folder")),
        ("val", "a field of another type", "unqover.json"),
    ],
)
def test_data(use: str, kind: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    form = next(form for form in FORMATS if form.name == name)
    path = tmp_path / f"bad_{name}"
    text = form.text.replace('"context": "', '"context": 7, "x": "').replace(
        '"story": "', '"story": 7, "x": "'
    )
    text = text.replace('"question": "', '"question": 7, "y": "')
    content = {
        "cut off": form.text.encode()[: len(form.text) // 3],
        "a field of another type": text.encode(),
        "latin-1": form.text.encode("latin-1"),
        "empty": b"",
    }
    if kind == "a folder":
        path.mkdir()
    else:
        path.write_bytes(content[kind])
    what = "qa" if name in QUESTIONS else "groups"
    source = f"{{main: {path}}}" if use == "val" else f"[{path}]" if what == "groups" else str(path)
    check(fit(tmp_path / "runs", f"--data.{use}_{what}={source}"), [path.name], tmp_path, capsys)


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
