"""Wrong flags, experiment files, data and checkpoints of training: refused before a model is trained."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import torch

from models.checkpoint import KEY
from tests.malformed.documents import GIVEN
from tests.malformed.outcome import accepted, everything_in, outcome, refused, some
from training.__main__ import main as training_command

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
EXPERIMENT, BACKBONE = (
    CONFIGS / "experiments" / "lei_few_shot.yaml",
    CONFIGS / "backbones" / "tiny_roberta.yaml",
)
SMALL = ["-c", str(EXPERIMENT), "-c", str(BACKBONE), "-c", str(GIVEN / "small_run.yaml")]
Refuse = Callable[..., None]


@pytest.fixture
def refuse_run(tmp_path: Path) -> Refuse:
    """A small run with these flags is refused in one line that holds `named`, and leaves no result."""

    def check(*flags: str, named: str = "", command: str = "fit") -> None:
        arguments = [command, *SMALL, f"--run.root={tmp_path / 'runs'}", *flags]
        refused(outcome(training_command, arguments), named)
        left = everything_in(tmp_path).keys() - {"bad.ckpt"}
        assert not [name for name in left if name.endswith((".ckpt", ".tmp", "metrics.json"))]

    return check


def test_the_run_is_good_without_them(tmp_path: Path) -> None:
    """The same training without a mistake

    Promise: ends well.
    """
    accepted(outcome(training_command, ["fit", *SMALL, f"--run.root={tmp_path / 'runs'}"]))


FLAGS = {
    "--trainer.max_step=3": "did you mean trainer.max_steps?",
    "--modle.learning_rate=3": "did you mean model.learning_rate?",
    "--model=training.modules.advice.LEIModul": "did you mean training.modules.advice.LEIModule?",
    "--data.encoding.doc_strid=3": "did you mean data.encoding.doc_stride?",
    "--data.interventions={trian: [os]}": "did you mean data.interventions.train?",
    "--trainer.devices=64": "devices: 64 processes on",
    "--trainer.gradient_clip_val=-1": "gradient_clip_val",
    "--trainer.plugins=[3]": "trainer.plugins: expected",
    "--run.name=../../elsewhere": "run.name",
    "--run.version=/elsewhere": "run.version",
    "--run={name: 3}": "run.name: expected",
    "--backbone=roberta": "backbone: expected keys and values",
    "--data.num_workers=-4": "num_workers",
    "--trainer.max_steps=many": "max_steps",
    "--trainer.devices=0": "devices",
    "--trainer.accelerator=abacus": "abacus",
    "--trainer.val_check_interval=2.5": "val_check_interval",
    "--trainer.callbacks=Magic": "Magic",
    "--model=training.nowhere.Module": "training.nowhere",
    "--model.learning_rate=-1": "learning rate",
    "--model.warmup_ratio=2": "warmup_ratio",
    "--model.loss.ethical_wieght=2": "ethical_wieght",
    "--model.loss.ethical_weight=-1": "ethical_weight",
    "--model.loss.ethical_weight=much": "ethical_weight",
    "--backbone.architecture=gpt": "architecture",
    "--ckpt_path=last": "ckpt_path",
    "--data.groups_per_class=0": "groups_per_class",
    "--data.qa_batch_size=0": "qa_batch_size",
    "--data.limit_train_qa=-1": "limit_train_qa",
    "--data.anchor_unadvised=1": "data.anchor_unadvised",
    "--model.reference=/no/such.ckpt": "/no/such.ckpt",
    "--data.train_qa=/no/such/file.json": "/no/such/file.json",
    "--data.train_groups=[/no/such/groups.json]": "/no/such/groups.json",
    "--data.val_qa=[1, 2]": "name the sources, as {main: FILE}",
    "--data.interventions={wach: [os]}": "mean data.interventions.watch?",
    "--trainer.callbacks+={class_path: EarlyStopping, init_args: {monitr: x}}": "option 'monitr' is",
    "--data.encoding=3": "error: data.encoding: expected keys and values",
    "--data.val_groups={main: 'stories:nowhere'}": "nowhere",
    "--data.encoding.doc_stride=0": "doc_stride",
    "--data.encoding.max_length=40": "max_length",
    "--data.interventions.train=[]": "interventions: train",
    "--backbone.checkpoint=/no/such/folder": "/no/such/folder",
    "--backbone.tokenizer=/no/such/tokenizer": "/no/such/tokenizer",
    "--backbone.config={hidden_sizes: 3}": "hidden_sizes",
    "--backbone.config={num_attention_heads: 7}": "hidden",
    "--checkpoint.monitor=val/qa/f7": "val/qa/f7",
    "--ckpt_path=/no/such.ckpt": "/no/such.ckpt",
    "-c=/no/such.yaml": "/no/such.yaml",
}


@pytest.mark.parametrize("flag", some(FLAGS, 24, "flags"))
def test_a_wrong_flag(flag: str, refuse_run: Refuse) -> None:
    """A wrong flag of training"""
    refuse_run(flag, named=FLAGS[flag])


GOOD = EXPERIMENT.read_bytes()
BOMB = b"a0: &a0 [x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (n, n, b"*a%d, " % (n - 1) * 9) for n in range(1, 30)
)
EXPERIMENTS = {
    "cut off inside a bracket": (b"data:\n  val_qa: {main: x", "bad.yaml"),
    "a bad indent": (GOOD + b"\n   x: 1\n y: 2\n", "bad.yaml"),
    "a list": (b"- 1\n- 2\n", "bad.yaml"),
    "an unknown key": (GOOD + b"\nnonsense: 1\n", "nonsense"),
    "latin-1": (GOOD + b"\n# caf\xe9\n", "bad.yaml"),
    "nested": (b"[" * 5000, "bad.yaml"),
    "an alias of what it is in": (b"data: &a\n  val_qa: *a\n", "bad.yaml: line 1: an alias"),
    "a list in itself": (b"data: &a [*a]\n", "bad.yaml: line 1: an alias"),
    "a bomb of aliases": (BOMB, "bad.yaml: line 6: its aliases"),
    "a key twice": (b"run:\n  name: a\n  root: b\n  name: c\n", "bad.yaml: line 4: name stands twice"),
    "an object that is made": (b"data: !!python/object/apply:os.system ['touch trapped']\n", "bad.yaml"),
    "an unknown class": (b"model: {class_path: training.nowhere.X}\n", "training.nowhere"),
    "a class of another kind": (b"model: {class_path: torch.nn.Linear}\n", "model"),
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_file(
    name: str, tmp_path: Path, refuse_run: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken experiment file (alias bombs, keys that stand twice, code)"""
    monkeypatch.chdir(tmp_path)
    content, named = EXPERIMENTS[name]
    (tmp_path / "bad.yaml").write_bytes(content)
    refuse_run("-c", "bad.yaml", named=named)
    assert not (tmp_path / "trapped").exists()


@pytest.mark.parametrize("arguments", [["fti"], ["fit"], ["fit", "-c"], ["validate"], ["--fit"]])
def test_an_incomplete_command(arguments: list[str]) -> None:
    """An incomplete command"""
    refused(outcome(training_command, arguments))


DATA = {
    "squad.json": "--data.train_qa={}",
    "rows.jsonl": "--data.train_qa={}",
    "lei.json": "--data.train_groups=[{}]",
    "unqover.json": "--data.val_groups={{main: {}}}",
}


@pytest.mark.parametrize(
    ("name", "kind"), some(product(DATA, ("a field of another type", "cut off")), 4, "data")
)
def test_data(name: str, kind: str, tmp_path: Path, refuse_run: Refuse) -> None:
    """Damaged training data"""
    text = (GIVEN / name).read_text(encoding="utf-8")
    path = tmp_path / f"bad_{name}"
    changed = text.replace('"context": "', '"context": 7, "x": "')
    path.write_text(text[: len(text) // 3] if kind == "cut off" else changed)
    refuse_run(DATA[name].format(path), named=path.name)


STARTS = ("--ckpt_path={}", "--backbone.checkpoint={}", "--backbone.tokenizer={}")
DAMAGES = ("cut off", "of another program", "without weights", "a folder")


@pytest.mark.parametrize(("kind", "flag"), some(product(DAMAGES, STARTS), 6, "checkpoints"))
def test_a_checkpoint(kind: str, flag: str, given: Path, tmp_path: Path, refuse_run: Refuse) -> None:
    """A damaged checkpoint to resume or start from"""
    path, good = tmp_path / "bad.ckpt", given / "roberta.ckpt"
    if kind == "a folder":
        path.mkdir()
    elif kind == "cut off":
        path.write_bytes(good.read_bytes()[: good.stat().st_size // 2])
    elif kind == "of another program":
        torch.save({"state_dict": {}}, path)
    else:
        torch.save({KEY: torch.load(good, weights_only=True)[KEY] | {"tokenizer": {}}}, path)
    refuse_run(flag.format(path), named=path.name)


@pytest.mark.parametrize("command", ["validate", "test", "predict"])
def test_nothing_to_look_at(command: str, refuse_run: Refuse) -> None:
    """Nothing to validate, test or predict"""
    refuse_run("--data.val_qa={}", "--data.val_groups={}", command=command)


def test_a_run_behind_a_file(tmp_path: Path, refuse_run: Refuse) -> None:
    """A file in the place of the folder of runs"""
    (tmp_path / "runs").write_text("precious")
    refuse_run(named="runs")
    assert (tmp_path / "runs").read_text() == "precious"
