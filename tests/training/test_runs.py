"""From fit to resume, evaluation and export: each objective, each head, and adapters."""

import json
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml

from interventune.data_modules.encoding.tokenizers import build_tokenizer
from interventune.data_modules.stories.questions import vocabulary
from interventune.evaluation.__main__ import main as evaluate
from interventune.models.__main__ import main as models
from interventune.models.heads.span import QAModel, SpanModel
from interventune.models.loading import load, read_info, start
from tests.models.tiny import at
from tests.support.finished_runs import same
from tests.training.conftest import Commands, curves, failing, lei, metrics_of, small_folder

CHAT = (
    "{{ bos_token }}{% for m in messages %}{{ m.role + ' : ' + m.content + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant : ' }}{% endif %}"
)


def export(checkpoint: Path, folder: Path) -> Path:
    assert models([str(checkpoint), str(folder)]) == 0
    return folder


def test_other_loggers_and_writers_stand_beside_our_own(commands: Commands, tmp_path: Path) -> None:
    other = f"{{class_path: CSVLogger, init_args: {{save_dir: {tmp_path / 'other'}}}}}"
    flags = f"--trainer.logger={other} --run.wandb=offline --ckpt_path=auto"
    fit = ("fit", "squad", "bert", f"{flags} --trainer.log_every_n_steps=1")
    home = commands.run(*fit, "--trainer.max_epochs=1")
    assert list((home / "wandb").glob("offline-run-*"))
    assert list((tmp_path / "other").rglob("metrics.csv"))
    before = (home / "metrics.csv").read_text()
    commands.run(*fit, "--trainer.max_epochs=2")
    assert (home / "metrics.csv").read_text().startswith(before)


@pytest.mark.parametrize("unwatched", ["", "--data.val_groups={}", "--trainer.limit_val_batches=0"])
def test_best_is_by_the_experiments_metric_or_last(unwatched: str, commands: Commands) -> None:
    flags = f"--model.learning_rate=1e-2 --trainer.max_epochs=3 {unwatched}".strip()
    home = lei(commands, "mine", flags, architecture="roberta")
    files = (home / f"checkpoints/{name}.ckpt" for name in ("best", "last"))
    best, last = (torch.load(path, weights_only=True)["global_step"] for path in files)
    if unwatched:
        assert best == last > 0
    else:
        scores = [(value, step) for step, value in curves(home, "val/bias/selection")]
        assert (len(scores), best) == (3, min(scores)[1])


def test_one_seed_rules_all_that_are_not_set(commands: Commands) -> None:
    for more, seeds in (("", (3, 3)), ("--model.planted_seed=5", (3, 5))):
        flags = "--seed_everything=3 --trainer.max_steps=1"
        home = commands.run("fit", "lei_planted", "bert", flags, more)
        config = yaml.safe_load((home / "config.yaml").read_text())
        model, data = (config[part]["init_args"] for part in ("model", "data"))
        assert (data["seed"], model["planted_seed"]) == seeds


def test_cosines_are_of_states_in_float32_whatever_trains(commands: Commands) -> None:
    """bfloat16 would move them by some 1e-3, more than interventions move some."""
    cosines = []
    for precision in ("32-true", "bf16-mixed"):
        flags = f"--trainer.precision={precision} --seed_everything=3"
        metrics = metrics_of(commands.run("validate", "stories_ot", "bert", flags))
        cosines.append({key: x for key, x in metrics.items() if key.startswith("val/shift/")})
    assert len(cosines[0]) > 4
    assert cosines[1] == pytest.approx(cosines[0], abs=1e-6)


@pytest.mark.parametrize(
    ("experiment", "architecture", "flags", "words"),
    [
        ("squad", "bert", "--data.train_qa=stories:mixed_train", "AnswerModule"),
        ("lei_few_shot", "gpt2", "--model.loss.form=probability", "is of start and end"),
        ("squad", "gpt2", "--backbone.lora_rank=4 --trainer.precision=16-true", "take bf16-true"),
        ("squad", "llama", "--backbone.frozen_weights=bfloat16", r"set backbone\.lora_rank"),
    ],
)
def test_what_does_not_go_together_is_refused(
    experiment: str, architecture: str, flags: str, words: str, commands: Commands
) -> None:
    with pytest.raises(ValueError, match=words):
        commands.run("fit", experiment, architecture, flags, "--data.limit_train_qa=40")


CELLS = {
    "lei_few_shot": ("bias", "class", ("none", "ethical", "adversarial"), ("mu", "delta", "mass")),
    "lei_planted": ("bias", "class", ("none",), ("mu", "delta", "mass")),
    "squad_ot": ("shift", "variant", ("ts", "ts_r"), ("cosine",)),
    "stories_ibt": ("faithfulness", "variant", ("os", "ts", "ts_r"), ("em", "f1", "unknown")),
    "squad_ibt": ("faithfulness", "variant", ("os", "ts", "ts_r"), ("f1", "unknown")),
}
"""By experiment the protocol, and cells of its results.csv that training reports too."""
NAMES = {"bias": "val/bias/{}/{}", "shift": "val/shift/cls/{}/mean", "faithfulness": "val/qa/{}/{}"}
"""What training calls them."""
RUNS = ["lei_few_shot roberta", "stories_ibt bert", "stories_ibt xlnet", "lei_few_shot gpt2 lora"]
RUNS += ["lei_few_shot llama", "lei_planted qwen3", "squad_ot llama lora", "squad_ibt gpt2 lora"]


@pytest.mark.parametrize("case", RUNS)
def test_every_experiment_goes_all_the_way(case: str, commands: Commands, tmp_path: Path) -> None:
    experiment, architecture, *lora = case.split()
    groups = experiment.startswith("lei")
    flags = "--run.version=a --model.learning_rate=1e-3 --trainer.log_every_n_steps=1"
    if lora:
        base = small_folder(tmp_path / "base", architecture)
        flags += f" --backbone.checkpoint={base} --backbone.lora_rank=4"
    for steps in (1, 2):
        again = f"--ckpt_path=auto --trainer.max_steps={steps}"
        run = commands.run("fit", experiment, architecture, flags, again)
    last, checkpoint = metrics_of(run), run / "checkpoints/last.ckpt"
    assert last["step"] == 2
    assert bool(read_info(str(checkpoint)).adapter) == bool(lora)
    if (experiment, architecture) == ("stories_ibt", "bert"):  # XLNet's heads have other losses
        names = ("answer", "rationale", "total")
        answer, rationale, total = (curves(run, f"train/loss/{name}")[0][1] for name in names)
        assert total == pytest.approx(answer + 5 * rationale, rel=1e-5)
    protocol, column, cells, measures = CELLS[experiment]
    asked = ["--checkpoint", f"ours={checkpoint}"]
    if experiment != "stories_ibt":  # whose heads transformers has not
        asked.append(f"theirs={export(checkpoint, tmp_path / 'folder')}")
    if architecture not in ("roberta", "bert", "xlnet"):
        asked.append(f"by_name=hf:{tmp_path / 'folder'}")
    asked += ["--data", str(commands.data.groups_dev if groups else commands.data.qa_dev)]
    assert evaluate([protocol, *asked, "--output", str(tmp_path / "out")]) == 0
    table = pd.read_csv(tmp_path / "out/results.csv").query("against.isna()")
    if protocol == "shift":
        table = table.query("embedding == 'cls' and layer == 'last'")
    if protocol == "faithfulness":
        table = table.query("answer_type.isna() and domain.isna()")
    for cell, measure in product(cells, measures):
        values = table[(table[column] == cell) & (table["measure"] == measure)]["value"].tolist()
        key = NAMES[protocol].format(cell, measure).replace("os/", "")
        assert values == pytest.approx([last[key]] * (len(asked) - 3), abs=1e-5), key


def test_chat_with_advice_as_the_system_message(commands: Commands, tmp_path: Path) -> None:
    """Its checkpoint, and the folder made of it, are asked as they were trained."""
    words = [*vocabulary(), *["reply", "with", "or", "unknown", "user", "system", "assistant"]]
    tokenizer = build_tokenizer("llama", words)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    user = "Text: {context}\n\nQuestion: {question}\nReply with {options} or unknown.\nAnswer:"
    turns = [{"role": "system", "content": "{advice}"}, {"role": "user", "content": user}]
    prompts = f"--data.encoding.prompts={json.dumps({'choice_prompt': turns})}"
    flags = f"--backbone.tokenizer={tmp_path / 'tokenizer'} --trainer.max_steps=2"
    run = lei(commands, "chat", flags, prompts)
    last, checkpoint = metrics_of(run), run / "checkpoints/last.ckpt"
    assert last["val/bias/none/unknown"] == pytest.approx(1 - last["val/bias/none/mass"], abs=1e-6)
    asked = ["bias", "--data", str(commands.data.groups_dev), "--output", str(tmp_path / "out")]
    asked += ["--checkpoint", f"a={checkpoint}", f"b={export(checkpoint, tmp_path / 'folder')}"]
    assert evaluate(asked) == 0
    rows = pd.read_csv(tmp_path / "out" / "results.csv").query("measure == 'mu' and against.isna()")
    assert len(rows) == 8
    for kind, value in zip(rows["class"], rows["value"], strict=True):
        assert value == pytest.approx(last[f"val/bias/{kind}/mu"], abs=1e-5)


@pytest.mark.parametrize(
    ("architecture", "precision"), [("gpt2", "32-true"), ("bert", "bf16-true")]
)
def test_an_adapter_alone_is_kept_and_resumed(
    architecture: str, precision: str, commands: Commands, tmp_path: Path
) -> None:
    plain = lei(commands, "base", "--trainer.max_steps=1", architecture=architecture)
    folder = export(plain / "checkpoints/last.ckpt", tmp_path / "folder")
    flags = f"--backbone.lora_rank=4 --backbone.checkpoint={folder} --backbone.config={{}}"
    flags += f" --backbone.tokenizer={folder} --trainer.precision={precision}"
    flags += " --run.save_every_n_steps=1"
    whole = lei(commands, "whole", flags, architecture=architecture) / "checkpoints/last.ckpt"
    with pytest.raises(KeyError, match="no luck"):
        lei(commands, "cut", flags, failing(), architecture=architecture)
    flags += " --ckpt_path=auto"
    with pytest.raises(ValueError, match=r"backbone.lora_rank 2 \(before: 4\)"):
        lei(commands, "cut", flags, "--backbone.lora_rank=2", architecture=architecture)
    cut = lei(commands, "cut", flags, architecture=architecture) / "checkpoints/last.ckpt"
    saved = [torch.load(path, weights_only=True) for path in (whole, cut)]
    kept, again = (checkpoint["state_dict"] for checkpoint in saved)
    assert same(kept, again)
    assert all("lora_" in name or "span_head" in name for name in kept)
    moments = [state["exp_avg"] for state in saved[0]["optimizer_states"][0]["state"].values()]
    assert {weight.dtype for weight in (*kept.values(), *moments)} == {torch.float32}
    assert read_info(str(whole)).adapter["base"] == str(folder)
    if precision == "bf16-true":
        half = at(whole, lora_rank=4, frozen_weights="bfloat16")
        rounded, merged = start(half, SpanModel).eval(), load(str(whole), QAModel)[0]
        frozen = [w for w in rounded.encoder.parameters() if not w.requires_grad]
        assert {weight.dtype for weight in frozen} == {torch.bfloat16}
        ids = {"input_ids": torch.arange(5, 17)[None], "attention_mask": torch.ones(1, 12).long()}
        states = [model.encode(ids).float() for model in (rounded, merged)]
        torch.testing.assert_close(*states, rtol=0.02, atol=0.05)
