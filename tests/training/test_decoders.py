"""Decoders through the command line: trained, stopped and gone on with, evaluated, exported."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
import yaml

from data_modules.stories.questions import vocabulary
from data_modules.stories.word_tokenizer import build_tokenizer
from evaluation.__main__ import main as evaluate
from models.__main__ import main as models
from models.backbones import Backbone
from models.checkpoint import inspect, start
from models.heads.causal import CausalModel
from tests.evaluation.conftest import undrawn
from tests.training.conftest import SMALL, Commands, lei, metrics_of
from training.cli import main as train


@pytest.fixture(autouse=True, scope="module")
def _undrawn() -> Iterator[None]:
    with undrawn():
        yield


def export(checkpoint: Path, folder: Path) -> Path:
    assert models([str(checkpoint), str(folder)]) == 0
    return folder


CHAT = (
    "{{ bos_token }}{% for m in messages %}{{ m.role + ' : ' + m.content + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant : ' }}{% endif %}"
)


def test_chat_with_advice_as_the_system_message(commands: Commands, tmp_path: Path) -> None:
    """Its checkpoint, and the folder made of it, are asked as they were trained."""
    words = [*vocabulary(), *["reply", "with", "or", "unknown", "user", "system", "assistant"]]
    tokenizer = build_tokenizer("llama", words)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    user = "Text: {context}\n\nQuestion: {question}\nReply with {options} or unknown.\nAnswer:"
    turns = [{"role": "system", "content": "{advice}"}, {"role": "user", "content": user}]
    prompts = {"data": {"init_args": {"encoding": {"prompts": {"choice_prompt": turns}}}}}
    (tmp_path / "prompts.yaml").write_text(json.dumps(prompts))
    flags = (f"--backbone.tokenizer={tmp_path / 'tokenizer'}", "--trainer.max_steps=2")
    run = lei(commands, "chat", f"--config={tmp_path}/prompts.yaml", *flags)
    last, checkpoint = metrics_of(run), run / "checkpoints/last.ckpt"
    assert last["val/bias/none/unknown"] == pytest.approx(1 - last["val/bias/none/mass"], abs=1e-6)
    asked = ["bias", "--data", str(commands.data.groups_dev), "--output", str(tmp_path / "out")]
    asked += ["--checkpoint", f"a={checkpoint}", f"b={export(checkpoint, tmp_path / 'folder')}"]
    assert evaluate(asked) == 0
    rows = pd.read_csv(tmp_path / "out" / "results.csv").query("measure == 'mu' and against.isna()")
    assert len(rows) == 8
    for kind, value in zip(rows["class"], rows["value"], strict=True):
        assert value == pytest.approx(last[f"val/bias/{kind}/mu"], abs=1e-5)


def test_the_probability_form_is_refused(commands: Commands) -> None:
    with pytest.raises(ValueError, match="is of start and end"):
        lei(commands, "none", "--model.loss.form=probability", architecture="gpt2")


CELLS = {
    "lei_few_shot": ("bias", "class", ("none", "ethical", "adversarial"), ("mu", "delta", "mass")),
    "lei_planted": ("bias", "class", ("none",), ("mu", "delta", "mass")),
    "squad_ot": ("shift", "variant", ("ts", "ts_r"), ("cosine",)),
    "squad_ibt": ("faithfulness", "variant", ("os", "ts", "ts_r"), ("f1", "unknown")),
}
"""By experiment the protocol, and cells of its results.csv that training reports too."""
NAMES = {"bias": "val/bias/{}/{}", "shift": "val/shift/cls/{}/mean", "faithfulness": "val/qa/{}/{}"}
"""What training calls them."""


@pytest.mark.parametrize(
    ("experiment", "architecture", "lora"),
    [
        ("lei_few_shot", "gpt2", 4),
        ("lei_few_shot", "llama", 0),
        ("lei_planted", "qwen3", 0),
        ("squad_ot", "llama", 4),
        ("squad_ot", "gpt2", 0),
        ("squad_ibt", "gpt2", 4),
    ],
)
def test_every_experiment_resumes_evaluates_and_exports(
    experiment: str, architecture: str, lora: int, commands: Commands, tmp_path: Path
) -> None:
    groups = experiment.startswith("lei")
    flags = ["--run.version=a", "--model.learning_rate=1e-3"]
    if lora:
        config = yaml.safe_load(SMALL[architecture])
        below = Backbone(architecture=architecture, checkpoint="random", config=config)  # type: ignore[arg-type]
        start(below, CausalModel).to_pretrained().save_pretrained(tmp_path / "base")
        flags += [f"--backbone.checkpoint={tmp_path / 'base'}", f"--backbone.lora_rank={lora}"]
    for steps in (1, 2):
        again = ("--ckpt_path=auto", f"--trainer.max_steps={steps}", "--trainer.max_epochs=-1")
        train(commands.of("fit", experiment, architecture, *flags, *again))
    run = commands.root / experiment / "a"
    last, checkpoint = metrics_of(run), run / "checkpoints/last.ckpt"
    assert last["step"] == 2
    assert bool(inspect(str(checkpoint)).adapter) == bool(lora)
    protocol, column, cells, measures = CELLS[experiment]
    asked = ["--checkpoint", f"ours={checkpoint}", f"theirs={export(checkpoint, tmp_path / 'folder')}"]
    asked += ["--data", str(commands.data.groups_dev if groups else commands.data.qa_dev)]
    assert evaluate([protocol, *asked, "--output", str(tmp_path / "out")]) == 0
    table = pd.read_csv(tmp_path / "out/results.csv").query("against.isna()")
    if protocol == "shift":
        table = table.query("embedding == 'cls' and layer == 'last' and stories.isna()")
    if protocol == "faithfulness":
        table = table.query("answer_type.isna() and domain.isna()")
    for cell, measure in product(cells, measures):
        values = table[(table[column] == cell) & (table["measure"] == measure)]["value"].tolist()
        key = NAMES[protocol].format(cell, measure).replace("os/", "")
        assert values == pytest.approx([last[key]] * 2, abs=1e-5), key
