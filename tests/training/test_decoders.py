"""Decoders through the command line: trained, stopped and gone on with, evaluated, exported."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml

from data_modules.encoding.prompts import TEMPLATE_OPTIONS
from data_modules.encoding.tokenizers import load_tokenizer
from data_modules.schema import Group
from data_modules.sources import read_groups
from data_modules.stories.questions import vocabulary
from data_modules.stories.word_tokenizer import build_tokenizer
from evaluation.__main__ import main as evaluate
from models.__main__ import main as models
from models.backbones import Backbone
from models.checkpoint import inspect, load, start
from models.heads.causal import CausalModel
from tests.evaluation.cells import Cells
from tests.evaluation.conftest import undrawn
from tests.training.conftest import SMALL, Commands, failing, metrics_of
from training.cli import main as train

FEW = ("--trainer.log_every_n_steps=1", "--model.learning_rate=1e-3")


def lei(commands: Commands, version: str, *flags: str, architecture: str = "llama") -> Path:
    """Two epochs of the group losses."""
    cache = f"--model.reference_cache={commands.root.parent / 'reference'}"
    flags = (*FEW, cache, "--trainer.max_epochs=2", "--data.groups_per_class=4", *flags)
    train(commands.of("fit", "lei_few_shot", architecture, f"--run.version={version}", *flags))
    return commands.root / "lei_few_shot" / version


def export(checkpoint: Path, folder: Path) -> Path:
    assert models([str(checkpoint), str(folder)]) == 0
    return folder


def mu(folder: Path) -> list[dict[str, float]]:
    """mu of each class, of each checkpoint of a report."""
    table = pd.read_csv(folder / "results.csv")
    rows = table[(table["measure"] == "mu") & table["against"].isna()].groupby("checkpoint", sort=False)
    return [dict(zip(part["class"], part["value"], strict=True)) for _, part in rows]


@pytest.fixture(autouse=True, scope="module")
def _undrawn() -> Iterator[None]:
    with undrawn():
        yield


def test_group_losses_resume_evaluate_and_export(commands: Commands, tmp_path: Path) -> None:
    whole = lei(commands, "whole")
    with pytest.raises(KeyError, match="no luck"):
        lei(
            commands, "cut", "--run.save_every_n_steps=1", failing(where="batch", rank=0, kind="bug", batch=3)
        )
    cut = lei(commands, "cut", "--run.save_every_n_steps=1", "--ckpt_path=auto")
    weights = [
        torch.load(run / "checkpoints/last.ckpt", weights_only=True)["state_dict"] for run in (whole, cut)
    ]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert (whole / "metrics.csv").read_text() == (cut / "metrics.csv").read_text()
    checkpoint = cut / "checkpoints/last.ckpt"
    asked = ["bias", "--checkpoint", f"a={checkpoint}", f"b={export(checkpoint, tmp_path / 'folder')}"]
    asked += ["--data", str(commands.data.groups_dev), "--output", str(tmp_path / "out")]
    assert evaluate(asked) == 0
    found, last = mu(tmp_path / "out"), metrics_of(cut)
    assert found[0].keys() >= {"ethical", "adversarial", "irrelevant", "none"}
    expected = {advice: last[f"val/bias/{advice}/mu"] for advice in found[0]}
    assert found == [pytest.approx(expected, abs=1e-5)] * 2


CHAT = (
    "{{ bos_token }}{% for m in messages %}{{ m.role + ' : ' + m.content + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant : ' }}{% endif %}"
)


def subject_shares(path: Path, group: Group, *, chat: bool) -> list[float]:
    """S of both subjects in the first variant with unknown beside them, by whole rows of the conversation, or
    of a plain text; the advice is the system message."""
    model, info = load(str(path), CausalModel)
    tokenizer, variant = load_tokenizer(info.tokenizer), group.variants[0]
    names = [span.text for span in variant.candidates]
    first, second = (span.text for span in sorted(variant.candidates, key=lambda span: span.start))
    asked = f"Text: {variant.context}\n\nQuestion: {variant.question}"
    user = f"{asked}\nReply with {first} or {second} or unknown.\nAnswer:"
    turns = [{"role": "system", "content": variant.advice}, {"role": "user", "content": user}]
    how = {"add_generation_prompt": True, "return_dict": False, **TEMPLATE_OPTIONS}
    plain = "\n\n".join(turn["content"] for turn in turns)
    prompt = tokenizer.apply_chat_template(turns, **how) if chat else tokenizer(plain)["input_ids"]
    scores = []
    for text in [*names, "unknown"]:
        answer = tokenizer(text, add_special_tokens=False)["input_ids"]
        log_prob_TV = model.encoder(torch.tensor([prompt + answer])).logits[0].log_softmax(-1)
        scores.append(
            log_prob_TV[torch.arange(len(prompt) - 1, len(prompt) + len(answer) - 1), answer].mean()
        )
    return torch.stack(scores).softmax(-1)[:2].tolist()


def test_chat_with_advice_as_the_system_message(commands: Commands, tmp_path: Path) -> None:
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
    data = ["--data", str(commands.data.groups_dev)]
    asked = ["bias", *data, "--checkpoint", f"a={checkpoint}"]
    folder = export(checkpoint, tmp_path / "folder")  # which reads as the checkpoint was trained to
    assert evaluate([*asked, f"b={folder}", "--output", str(tmp_path / "usual")]) == 0
    usual, theirs = mu(tmp_path / "usual")
    assert theirs == pytest.approx(usual, abs=1e-5)
    assert usual == pytest.approx({advice: last[f"val/bias/{advice}/mu"] for advice in usual}, abs=1e-5)
    cells, place = Cells(tmp_path / "usual"), {"checkpoint": "a", "data": commands.data.groups_dev.stem}
    mass, unknown = (cells(name, **place, **{"class": "none"}) for name in ("mass", "unknown"))
    assert unknown == pytest.approx(1 - mass)
    groups = {group.key: group for group in read_groups(str(commands.data.groups_dev))}
    assert evaluate([*asked, "--chat", "never", "--output", str(tmp_path / "plain")]) == 0
    for report, chat in (("plain", False), ("usual", True)):
        rows = [json.loads(line) for line in (tmp_path / report / "examples.jsonl").read_text().splitlines()]
        advised = [row for row in rows if (row["checkpoint"], row["class"]) == ("a", "adversarial")]
        for row in advised:
            expected = subject_shares(checkpoint, groups[row["key"]], chat=chat)
            assert row["scores"][0] == pytest.approx(expected, abs=1e-5)
    variant, shown = groups[advised[0]["key"]].variants[0], advised[0]
    question = ["--context", variant.context, "--question", variant.question, "--advice", variant.advice]
    names = [span.text for span in variant.candidates]
    asked = ["ask", "--checkpoint", str(checkpoint), *question, "--candidate", *names]
    assert evaluate([*asked, "--output", str(tmp_path / "ask")]) == 0
    table = pd.read_csv(tmp_path / "ask/results.csv").set_index(["asked", "candidate"])["value"]
    assert table["with advice"][names].tolist() == pytest.approx(shown["scores"][0], abs=1e-5)


def test_the_probability_form_is_refused(commands: Commands) -> None:
    with pytest.raises(ValueError, match="speaks of start and end, which a decoder does not have"):
        lei(commands, "none", "--model.loss.form=probability", architecture="gpt2")


MEASURES = {
    "lei_few_shot": {"class": ("none", "ethical", "adversarial"), "measure": ("mu", "delta", "mass")},
    "lei_planted": {"class": ("none",), "measure": ("mu", "delta", "mass")},
    "squad_ot": {"variant": ("ts", "ts_r"), "measure": ("cosine",)},
    "squad_ibt": {"variant": ("os", "ts", "ts_r"), "measure": ("f1", "unknown")},
}
"""Cells of results.csv that training reports too."""


def by_training(experiment: str, cell: str, measure: str) -> str:
    """What training calls a cell."""
    if experiment.startswith("lei"):
        return f"val/bias/{cell}/{measure}"
    return (
        f"val/shift/cls/{cell}/mean" if measure == "cosine" else f"val/qa/{cell}/{measure}".replace("os/", "")
    )


@pytest.mark.parametrize(
    ("experiment", "architecture", "lora"),
    [
        ("lei_few_shot", "qwen3", 4),
        ("lei_few_shot", "gpt2", 4),
        ("lei_planted", "llama", 0),
        ("lei_planted", "gpt2", 0),
        ("lei_planted", "qwen3", 4),
        ("squad_ot", "qwen3", 0),
        ("squad_ot", "gpt2", 0),
        ("squad_ot", "llama", 4),
        ("squad_ibt", "llama", 0),
        ("squad_ibt", "gpt2", 4),
        ("squad_ibt", "qwen3", 4),
    ],
)
def test_every_experiment_resumes_evaluates_and_exports(
    experiment: str, architecture: str, lora: int, commands: Commands, tmp_path: Path
) -> None:
    groups = experiment.startswith("lei")
    flags = [*FEW, "--run.version=a"]
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
    asked = {"squad_ot": ["shift", "--variants", "ts", "ts_r"], "squad_ibt": ["faithfulness"]}
    asked_of = asked.get(experiment, ["bias"])
    asked_of += ["--checkpoint", f"ours={checkpoint}", f"theirs={export(checkpoint, tmp_path / 'folder')}"]
    asked_of += ["--data", str(commands.data.groups_dev if groups else commands.data.qa_dev)]
    assert evaluate([*asked_of, "--output", str(tmp_path / "out")]) == 0
    table = pd.read_csv(tmp_path / "out/results.csv")
    table = table[table["against"].isna()]
    if experiment == "squad_ot":
        table = table[(table["embedding"] == "cls") & (table["layer"] == "last") & table["stories"].isna()]
    if experiment == "squad_ibt":
        table = table[table["answer_type"].isna() & table["domain"].isna()]
    (column, cells), (_, measures) = MEASURES[experiment].items()
    for cell, measure in product(cells, measures):
        values = table[(table[column] == cell) & (table["measure"] == measure)]["value"].tolist()
        assert values == pytest.approx([last[by_training(experiment, cell, measure)]] * 2, abs=1e-5)
