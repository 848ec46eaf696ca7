"""`python -m evaluation feature-bias`: models of known preference, mistakes, and going on."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from data_modules.tasks.feature_bias import CELLS, read_task
from evaluation.figures import new_figure
from evaluation.protocols.feature_bias import figures as feature_bias_figures
from evaluation.protocols.feature_bias import runs as feature_bias_runs
from models.language.local_model import LocalTextModel
from models.language.text_models import TextFailure, TextModel
from tests.evaluation.answering.test_choosers import save_choice_ckpt
from tests.evaluation.checkpoints import examples_of, report_of, told
from tests.evaluation.protocol_cases import save_causal

TASK = read_task("stories:uppercase")
H2 = {x.question.strip(): int(x.split[2]) for cell in CELLS for x in TASK.tests[cell]}
ASK = ["feature-bias", "--model", "m=openai:fake", "--task", "stories:uppercase", "--seeds", "2"]
LOCAL = ["--task", "stories:uppercase", "--shots", "2", "--device", "cpu"]


class FakeModel(TextModel):
    """Says 1 where `follows` says so; prefers the first label word whatever it reads."""

    name, can = "openai:fake@http://x/v1", frozenset({"write", "next_token"})
    settings: dict[str, Any] = {"max_new_tokens": 1}  # noqa: RUF012

    def __init__(self, follows: str = "h2", bias: float = 0.9) -> None:
        self.follows, self.bias, self.prompts = follows, bias, Counter[str]()

    def label_of(self, prompt: str) -> int | None:
        text = prompt.rpartition("\n\n")[0].rpartition("\n\n")[2]
        return H2.get(text)

    def next_token_logprobs(
        self, prompts: Sequence[str], labels: Sequence[str], *, after: str = "", top: int = 0
    ) -> Iterator[tuple[float, ...] | TextFailure]:
        for prompt in prompts:
            assert prompt.endswith(after)
            self.prompts[prompt] += 1
            label = self.label_of(prompt)
            one = 1 - self.bias + (0 if label is None else 0.05 if label else -0.05)
            yield (math.log(1 - one), math.log(one))

    def complete(self, prompts: Sequence[str]) -> Iterator[str | TextFailure]:
        for i, prompt in enumerate(prompts):
            self.prompts[prompt] += 1
            yield "I cannot tell." if i % 5 == 0 else f"So the answer is {self.label_of(prompt)}.\n\nMore"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeModel:
    model = FakeModel()
    monkeypatch.setattr(feature_bias_runs, "open_text_model", lambda *_, **__: model)
    return model


def test_a_model_that_sees_the_other_feature(fake: FakeModel, tmp_path: Path) -> None:
    """Its bias to one label word, which hides what it learned, is calibrated away."""
    report = report_of(tmp_path / "r", *ASK, "--limit", "20")
    at = "stories:uppercase/none/"
    expected = {"h1_acc": 0, "h2_acc": 1, "agreement": 1, "sd": 0, "seeds": 2, "uncalibrated_h1_acc": 0.5}
    assert {key: report[at + key] for key in expected} == expected
    assert {cell: report[f"{at}n_{cell}"] for cell in CELLS} == dict.fromkeys(CELLS, 20)
    rows = examples_of(tmp_path / "r")
    assert len(rows) == 2 * 4 * 20
    assert all(row["predicted"] == row["h2"] and row["uncalibrated"] == 0 for row in rows)
    assert len({tuple(row["demonstrations"]) for row in rows}) == 2
    page = (tmp_path / "r/report.md").read_text()
    assert (
        "| stories:uppercase | m | in context | 0.0 | 100.0 | 0.0 | 0.0 | 100.0 | 2 | 20 | 20 | 0 |" in page
    )
    assert (tmp_path / "r/learned.png").read_bytes().startswith(b"\x89PNG")


def test_interventions_stand_beside_the_baseline(fake: FakeModel, tmp_path: Path) -> None:
    ways = ("none", "verbalizer", "instruction", "explanation", "disambiguation")
    flags = ["--intervention", *ways, "--seeds", "1", "--limit", "10"]
    report = report_of(tmp_path / "r", *ASK, *flags)
    for steer in ("h1", "h2"):
        for way in ways[1:]:
            key = f"stories:uppercase/{way}/{steer}/"
            assert report[f"{key}h2_acc"] == 1
            if way == "explanation":
                assert (report[f"{key}failures"], report[f"{key}n_1_0"]) == (8, 8)
    page = (tmp_path / "r/report.md").read_text()
    assert "| h1 | m | 0.0 | 0.0 (+0.0) |" in page
    assert "| h2 | m | 100.0 | 100.0 (+0.0) |" in page
    assert "no label in the explanation" in page
    assert (tmp_path / "r/steered.png").exists()


def test_parity_counts_an_unreadable_explanation_as_0(fake: FakeModel, tmp_path: Path) -> None:
    flags = ["--intervention", "explanation", "--steer", "h1", "--seeds", "1", "--parity"]
    report = report_of(tmp_path / "r", *ASK, *flags)
    assert report["stories:uppercase/explanation/h1/failures"] == 0
    assert 0 < report["stories:uppercase/explanation/h1/h1_acc"] < 0.5
    assert "authors' code" in (tmp_path / "r/report.md").read_text()


def test_several_tasks_have_means(fake: FakeModel, tmp_path: Path) -> None:
    tasks = ["--task", "stories:uppercase", "stories:lexicon"]
    report = report_of(tmp_path / "r", *ASK, *tasks, "--seeds", "1", "--limit", "4")
    parts = [report[f"stories:{name}/none/h1_acc"] for name in ("uppercase", "lexicon")]
    assert report["mean/none/h1_acc"] == pytest.approx(sum(parts) / 2)
    assert report["mean/none/tasks"] == 2


def test_going_on_repeats_nothing_and_gives_the_same_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_causal(tmp_path / "causal")
    command = ["feature-bias", "--model", f"hf:{tmp_path / 'causal'}", *LOCAL, "--seeds", "2", "--limit", "6"]
    command += ["--batch-size", "2", "--work", str(tmp_path / "work.jsonl")]
    whole = report_of(tmp_path / "a", *command)
    lines = (tmp_path / "work.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "work.jsonl").write_bytes(b"".join(lines[:21]) + lines[21][:30])  # killed in the middle
    asked: list[str] = []
    ask = LocalTextModel.next_token_logprobs

    def spy(self: LocalTextModel, prompts: Sequence[str], *args: Any, **kwargs: Any) -> Any:
        asked.extend(prompts)
        return ask(self, prompts, *args, **kwargs)

    monkeypatch.setattr(LocalTextModel, "next_token_logprobs", spy)
    assert report_of(tmp_path / "b", *command) == whole
    assert len(lines) - 21 <= len(asked) < len(lines) - 21 + 8  # a chunk of a local model is read whole
    assert (tmp_path / "b/examples.jsonl").read_bytes() == (tmp_path / "a/examples.jsonl").read_bytes()
    assert (tmp_path / "work.jsonl").read_bytes() == b"".join(lines)
    asked.clear()
    report_of(tmp_path / "c", *command)
    assert not asked


def test_in_context_and_fine_tuned_in_one_table(tmp_path: Path) -> None:
    save_causal(tmp_path / "causal")
    save_choice_ckpt(tmp_path / "a.ckpt")
    save_choice_ckpt(tmp_path / "b.ckpt", "roberta")
    command = [
        "feature-bias",
        "--model",
        f"icl=hf:{tmp_path / 'causal'}",
        *LOCAL,
        "--seeds",
        "1",
        "--limit",
        "5",
    ]
    checkpoints = ["--checkpoint", f"tuned={tmp_path / 'a.ckpt'}", f"tuned={tmp_path / 'b.ckpt'}"]
    report = report_of(tmp_path / "r", *command, *checkpoints)
    at = "tuned/stories:uppercase/none/"
    assert (report[f"{at}seeds"], report[f"{at}n_1_0"]) == (2, 5)
    assert report[f"{at}h1_acc"] + report[f"{at}h2_acc"] == pytest.approx(1)
    assert "icl/stories:uppercase/none/h1_acc" in report
    page = (tmp_path / "r/report.md").read_text()
    assert "| stories:uppercase | tuned | fine-tuned |" in page
    assert "| stories:uppercase | icl | in context |" in page
    only = [*checkpoints[:2], f"tuned={tmp_path / 'b.ckpt'}@stories:lexicon"]
    tasks = ["--task", "stories:uppercase", "stories:lexicon", "--limit", "5", "--device", "cpu"]
    apart = report_of(tmp_path / "o", "feature-bias", *only, *tasks)
    assert [apart[f"stories:{task}/none/seeds"] for task in ("uppercase", "lexicon")] == [1, 2]
    alone = report_of(tmp_path / "s", *command[:1], *checkpoints, *LOCAL, "--limit", "5", "--no-agreement")
    assert alone["stories:uppercase/none/h1_acc"] == report[f"{at}h1_acc"]
    assert alone["stories:uppercase/none/n_1_1"] == 0


def test_a_prompt_that_is_too_long_is_an_error_or_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_causal(tmp_path / "causal")
    command = [
        "feature-bias",
        "--model",
        f"hf:{tmp_path / 'causal'}",
        *LOCAL,
        "--shots",
        "16",
        "--limit",
        "2",
    ]
    said = told(capsys, *command, "--output", tmp_path / "r")
    assert "takes 256; lower --shots, or add --truncate" in said
    assert not (tmp_path / "r").exists()
    report = report_of(tmp_path / "r", *command, "--truncate")
    assert report["stories:uppercase/none/n_1_0"] == 2
    assert sum(row["cut"] for row in examples_of(tmp_path / "r")) == 24
    assert "causal: 24 of 24 prompts" in (tmp_path / "r/report.md").read_text()


def test_steering_alone_beside_a_checkpoint_has_its_means(fake: FakeModel, tmp_path: Path) -> None:
    save_choice_ckpt(tmp_path / "a.ckpt")
    flags = ["--checkpoint", f"tuned={tmp_path / 'a.ckpt'}", "--device", "cpu", "--limit", "4"]
    report_of(tmp_path / "r", *ASK, *flags, "--intervention", "instruction", "--steer", "h2")
    page = (tmp_path / "r/report.md").read_text()
    assert "| toward | model | instruction |" in page
    assert "| stories:uppercase | m | 100.0 ± 0.0 |" in page
    assert "4 to 4 texts with an answer" in page
    assert "| h2 | m | 100.0 |" in page


def test_figures_name_every_model_and_intervention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []

    def spy(width: float, height: float) -> Any:
        drawn.append(new_figure(width, height))
        return drawn[-1]

    monkeypatch.setattr(feature_bias_figures, "new_figure", spy)
    shares = {("a", "one"): (0.5, math.nan), ("a", "two"): (0.5, 0.1), ("b", "two"): (0.25, 0.1)}
    feature_bias_figures.learned_figure(shares, ("a", "b"), ("one", "two"))(tmp_path / "learned.png")
    ways = ("none", "verbalizer", "instruction", "disambiguation", "explanation")
    feature_bias_figures.steered_figure({("a", "h2"): dict.fromkeys(ways, 0.5)}, ("a",))(tmp_path / "s.png")
    for figure, names in zip(drawn, (("a", "b", "no preference"), ways), strict=True):
        (legend,) = figure.legends
        assert {text.get_text() for text in legend.get_texts()} == set(names)
        box = legend.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1


def test_a_wording_that_no_task_has_is_warned_of(
    fake: FakeModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One file serves many tasks: those that it has besides are no mistake."""
    wording = {"h2": {"instruction": "Do as I say."}}
    flags = ["--limit", "2", "--intervention", "instruction", "--steer", "h2", "--wording"]
    for i, (name, warned) in enumerate(
        (("stories:upercase", True), ("stories:uppercase", False), ("*", False))
    ):
        (tmp_path / "w.json").write_text(json.dumps({name: wording, "another": wording}))
        caplog.clear()
        report_of(tmp_path / f"r{i}", *ASK, *flags, str(tmp_path / "w.json"))
        assert ("has no task stories:uppercase" in caplog.text) == warned
        assert any("Do as I say." in prompt for prompt in fake.prompts) == (not warned)
        fake.prompts.clear()


def test_tasks_of_one_name_can_be_told_apart(fake: FakeModel, tmp_path: Path) -> None:
    tasks = ["--task", "stories:uppercase", "again=stories:uppercase", "--limit", "2"]
    report = report_of(tmp_path / "r", *ASK, *tasks)
    assert [report[f"{name}/none/h2_acc"] for name in ("stories:uppercase", "again")] == [1, 1]


def test_a_checkpoint_that_diverged_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_choice_ckpt(tmp_path / "a.ckpt")
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)
    for weights in saved["state_dict"].values():
        if weights.is_floating_point():
            weights.fill_(math.nan)
    torch.save(saved, tmp_path / "a.ckpt")
    command = ["feature-bias", "--checkpoint", f"{tmp_path / 'a.ckpt'}", *LOCAL, "--limit", "2"]
    assert "a.ckpt: gives logits that are no numbers" in told(capsys, *command, "--output", tmp_path / "r")


def test_a_checkpoint_alone_gets_no_intervention(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["feature-bias", "--checkpoint", "a.ckpt", "--task", "stories:length"]
    said = told(capsys, *command, "--intervention", "instruction", "--output", tmp_path / "r")
    assert "--intervention instruction: only a --model gets prompts" in said


WORDING = {"stories:uppercase": {"h1": {"key": "Glad:", "words": ["red", "red one"]}}}
MISTAKES = [
    (["--shots", "3"], "--shots 3"),
    (["--shots", "400"], "demonstrations of cell 1_1 are needed"),
    (["--seeds", "0"], "--seeds"),
    (["--limit", "0"], "--limit"),
    (["--task", "none.json"], "none.json"),
    (["--task", "stories:length", "stories:length"], "'stories:length' was given already"),
    (["--intervention", "verbalizer", "--wording", "{}/wording.json"], "begin with the same token"),
    (["--model", "bert"], "write hf:PATH"),
    (["--words", "a", "a"], "--words"),
    (["--model", "m=hf:nowhere", "n=hf:{}/causal"], "nowhere"),
    (["--model", "n=hf:{}/causal", "m=hf:nowhere"], "nowhere"),
    (["--checkpoint", "nowhere.ckpt"], "--checkpoint nowhere.ckpt: no such file"),
    (["--checkpoint", "a.ckpt@stories:overlap"], "no task is called 'stories:overlap'"),
    (["--parity", "--seeds", "20"], "lower --seeds"),
]


@pytest.mark.parametrize(("flags", "named"), MISTAKES)
def test_mistakes_are_told_before_anything_is_asked(
    flags: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_causal(tmp_path / "causal")
    (tmp_path / "wording.json").write_text(json.dumps(WORDING))
    command = ["feature-bias", "--model", f"hf:{tmp_path / 'causal'}", *LOCAL]
    flags = [flag.format(tmp_path) for flag in flags]
    assert named in told(capsys, *command, *flags, "--output", tmp_path / "r")
    assert not (tmp_path / "r.work.jsonl").exists()


def test_nothing_to_calibrate_with_is_told_first(
    fake: FakeModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def silent(prompts: Sequence[str], *_: Any, **__: Any) -> Iterator[tuple[float, ...]]:
        fake.prompts.update(prompts)
        yield from ((-0.1, -math.inf) for _ in prompts)

    fake.next_token_logprobs = silent  # type: ignore[assignment,method-assign]
    said = told(capsys, *ASK, "--parity", "--output", tmp_path / "r")
    assert "nothing can be calibrated; leave out --parity" in said
    assert len(fake.prompts) == 3
