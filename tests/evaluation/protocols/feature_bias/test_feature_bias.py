"""`python -m evaluation feature-bias`: models of known preference, mistakes, and going on."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch

from data_modules.__main__ import main as data_main
from data_modules.tasks.feature_bias import differing_cells
from data_modules.tasks.own_tasks import open_task
from evaluation.__main__ import main
from evaluation.protocols.feature_bias.measures import stratified
from models.language import open_model
from models.language.local_model import LocalTextModel
from models.language.text_models import TextFailure, TextModel
from tests.evaluation.answering.test_choosers import save_choice_ckpt
from tests.evaluation.cells import Cells
from tests.evaluation.checkpoints import examples_of, report_of, told
from tests.evaluation.protocol_cases import save_causal

TASK = open_task("stories:uppercase")
H2 = {x.question.strip(): int(x.split[2]) for cell in TASK.cells for x in TASK.tests[cell]}
ASK = ["feature-bias", "--model", "m=openai:fake", "--task", "stories:uppercase", "--seeds", "2"]
LOCAL = ["--task", "stories:uppercase", "--shots", "2", "--device", "cpu"]
UPPERCASE = {"task": "stories:uppercase", "intervention": "none"}


def cells_of(output: Path, *arguments: str | Path) -> Cells:
    report_of(output, *arguments)
    cells = Cells(output)
    cells.check()
    return cells


def in_context(name: str = "m", **cell: Any) -> dict[str, Any]:
    return {"checkpoint": name, "how": "in context", **UPPERCASE, **cell}


def tuned(**cell: Any) -> dict[str, Any]:
    return {"checkpoint": "tuned", "how": "fine-tuned", **UPPERCASE, **cell}


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
    monkeypatch.setattr("evaluation.answering.language_model.open_text_model", lambda *_, **__: model)
    return model


def test_a_model_that_sees_the_other_feature(fake: FakeModel, tmp_path: Path) -> None:
    """Its bias to one label word, which hides what it learned, is calibrated away."""
    cells = cells_of(tmp_path / "r", *ASK, "--limit", "20")
    expected = {"h1": 0, "h2": 1, "agreement": 1, "h1_sd": 0, "uncalibrated_h1": 0.5, "failed": 0}
    assert {measure: cells(measure, **in_context()) for measure in expected} == expected
    assert cells.n("h1_sd", **in_context()) == 2
    assert cells("h1", checkpoint="m", how="in context", intervention="none") == 0  # the mean over tasks
    for cell in TASK.cells:
        assert cells("ones", **in_context(seed=1, cell=cell)) == int(cell[2])
        assert cells.n("ones", **in_context(seed=1, cell=cell)) == 20
    rows = examples_of(tmp_path / "r")
    assert len(rows) == 2 * 4 * 20
    assert all(row["predicted"] == row["h2"] and row["uncalibrated"] == 0 for row in rows)
    assert len({tuple(row["demonstrations"]) for row in rows}) == 2
    assert (
        "m follows the label in 0 % (95 % interval 0 to 0, n 80) of dis"
        in (tmp_path / "r/report.md").read_text()
    )
    assert (tmp_path / "r/learned.png").read_bytes().startswith(b"\x89PNG")


def test_interventions_stand_beside_the_baseline(fake: FakeModel, tmp_path: Path) -> None:
    ways = ("none", "verbalizer", "instruction", "explanation", "disambiguation")
    flags = ["--intervention", *ways, "--seeds", "1", "--limit", "10"]
    cells = cells_of(tmp_path / "r", *ASK, *flags)
    for steer, intended in (("h1", 0), ("h2", 1)):
        means = {"checkpoint": "m", "how": "in context", "steer": steer}
        assert cells("intended", **means, intervention="none") == intended
        for way in ways[1:]:
            cell = in_context(intervention=way, steer=steer)
            assert (cells("h2", **cell), cells("intended", **cell)) == (1, intended)
            assert cells("intended", **means, intervention=way) == intended
            assert cells("gain", **means, intervention=way) == 0
            if way == "explanation":
                assert cells("failed", **cell) * cells.n("failed", **cell) == pytest.approx(8)
                assert cells.n("ones", **cell, seed=0, cell="1_0") == 8
    assert "no label in the explanation" in (tmp_path / "r/report.md").read_text()
    assert (tmp_path / "r/steered.png").exists()


def test_parity_counts_an_unreadable_explanation_as_0(fake: FakeModel, tmp_path: Path) -> None:
    flags = ["--intervention", "explanation", "--steer", "h1", "--seeds", "1", "--parity"]
    cells = cells_of(tmp_path / "r", *ASK, *flags)
    cell = in_context(intervention="explanation", steer="h1")
    assert cells("failed", **cell) == 0
    assert 0 < cells("h1", **cell) < 0.5


def test_several_tasks_have_means(fake: FakeModel, tmp_path: Path) -> None:
    tasks = ["--task", "stories:uppercase", "again=stories:uppercase", "stories:lexicon"]
    cells = cells_of(tmp_path / "r", *ASK, *tasks, "--seeds", "1", "--limit", "4")
    names = ("stories:uppercase", "again", "stories:lexicon")
    parts = [cells("h1", **in_context(task=name)) for name in names]
    mean = {"checkpoint": "m", "how": "in context", "intervention": "none"}
    assert cells("h1", **mean) == pytest.approx(sum(parts) / 3)
    stories = cells("h1", **mean, family="stories")
    assert stories == pytest.approx((parts[0] + parts[2]) / 2), "a name of the user's tells no family"
    row = cells.row("h1", **in_context(task="stories:lexicon"))
    assert row["low"] <= row["value"] <= row["high"]


PAPER = ["nli_entailment_genre_gov_fic=stories:uppercase", "nli_entailment_genre_gov_tele=stories:uppercase"]
PAPER += ["nli_entailment_length=stories:uppercase", "sa_sentiment_length=stories:lexicon"]


def test_the_papers_tables_by_family_and_feature(fake: FakeModel, tmp_path: Path) -> None:
    """Genre has two files; the means of steering toward h1 have no sentiment task (the paper's Table 2)."""
    ways = ["--intervention", "none", "instruction", "--seeds", "1", "--limit", "10"]
    cells = cells_of(tmp_path / "r", *ASK[:3], "--task", *PAPER, *ways)
    mean = {"checkpoint": "m", "how": "in context"}
    one = {**mean, "intervention": "none"}
    # It follows h2 where it knows the texts; of those called sentiment it knows none.
    assert cells("h1", **one, family="NLI", feature="genre") == 0
    assert cells("h1", **one, family="NLI") == 0
    unknown = cells("h1", **one, family="SA")
    assert unknown > 0.2
    assert cells("h1", **one) == pytest.approx(unknown / 4)
    for way in ("none", "instruction"):
        assert cells("intended", **mean, intervention=way, steer="h1") == 0
        assert cells("intended", **mean, intervention=way, steer="h2", family="NLI", feature="length") == 1
        whole = cells("intended", **mean, intervention=way, steer="h2")
        by_family = [
            cells("intended", **mean, intervention=way, steer="h2", family=name) for name in ("NLI", "SA")
        ]
        assert whole == pytest.approx((3 * by_family[0] + by_family[1]) / 4)
    assert cells.n("intended", **mean, intervention="none", steer="h2", family="NLI", feature="genre") == 40
    text = (tmp_path / "r/report.md").read_text()
    for table, lines in (("Toward h1 by feature", 3), ("Toward h2 by feature", 5)):
        rows = (
            text.partition(f"## {table}, in percent (the paper's Table ")[2].split("\n\n")[1].splitlines()[2:]
        )
        assert len(rows) == lines
    assert "| NLI | genre | 100.0 | 100.0 | 40 |" in text
    assert (tmp_path / "r/steered_families.png").read_bytes().startswith(b"\x89PNG")


def test_more_than_two_classes(
    fake: FakeModel, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three labels and three genres, from rows to the report, in context and fine-tuned."""
    labels, genres = ("no", "maybe", "yes"), ("news", "talk", "law")
    rows = [
        {"text": f"text {i} {label} {genre}", "label": label, "genre": genre}
        for i in range(12)
        for label in (*labels, "unsure")
        for genre in genres
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write = ["feature-bias", "--input", str(tmp_path / "rows.jsonl"), "--label-values", *labels]
    write += ["--feature", "column", "--feature-args", "name=genre", f"values={','.join(genres)}"]
    assert data_main([*write, "--min-demos", "8", "--output", str(tmp_path / "three.json")]) == 0
    task = open_task(tmp_path / "three.json")
    assert task.cells == ("2_2", "1_1", "0_0", "2_1", "2_0", "1_2", "1_0", "0_2", "0_1")
    assert {len(task.demos[cell]) for cell in task.agreeing_cells} == {8}

    def sees_genre(prompts: Sequence[str], words: Sequence[str], **_: Any) -> Iterator[tuple[float, ...]]:
        assert tuple(words) == ("0", "1", "2")
        for prompt in prompts:
            text = prompt.rpartition("\n\n")[0].rpartition("\n\n")[2]
            told_by = [genre in text.split() for genre in genres]
            yield tuple(math.log(0.9 if seen else 0.05 if any(told_by) else 1 / 3) for seen in told_by)

    monkeypatch.setattr(fake, "next_token_logprobs", sees_genre)
    save_choice_ckpt(tmp_path / "a.ckpt")
    command = ["feature-bias", "--model", "m=openai:fake", "--task", str(tmp_path / "three.json")]
    command += ["--shots", "6", "--seeds", "2", "--device", "cpu"]
    cells = cells_of(tmp_path / "r", *command, "--checkpoint", f"tuned={tmp_path / 'a.ckpt'}")
    place = {"checkpoint": "m", "how": "in context", "task": "three", "intervention": "none"}
    measures = {"h1": 0, "h2": 1, "agreement": 1, "h1_sd": 0}
    assert {measure: cells(measure, **place) for measure in measures} == pytest.approx(measures)
    assert cells("follows_h1", **place, seed=1, cell="2_2") == 1
    assert cells("follows_h1", **place, seed=1, cell="0_2") == 0
    assert cells.n("h1", **place) == 2 * 6 * 12
    tuned_place = place | {"checkpoint": "tuned", "how": "fine-tuned"}
    assert 0 < cells("h1", **tuned_place) + cells("h2", **tuned_place) < 1, "or neither of them"
    report = (tmp_path / "r/report.md").read_text()
    assert "three: 3" in report
    assert "near 33 % without an intervention" in report
    assert "near 50 %" not in report
    assert "2 words, but the task has 3 classes" in told(
        capsys,
        *command,
        "--checkpoint",
        f"{tmp_path / 'a.ckpt'}",
        "--words",
        "a",
        "b",
        "--output",
        tmp_path / "w",
    )
    assert "--shots 4" in told(capsys, *command, "--shots", "4", "--output", tmp_path / "w")
    wording = {"three": {"h2": {"key": "Kind:", "words": ["a", "b"]}}}
    (tmp_path / "w.json").write_text(json.dumps(wording))
    verbal = ["--intervention", "verbalizer", "--steer", "h2", "--wording", str(tmp_path / "w.json")]
    assert "2 texts for 3 classes" in told(capsys, *command, *verbal, "--output", tmp_path / "w")


def test_shares_do_not_depend_on_the_sizes_of_cells_tasks_and_seeds() -> None:
    """Against a naive mean of means."""
    rng = random.Random(0)
    rows = [
        {"intervention": "none", "task": task, "seed": seed, "cell": cell, "id": str(i)}
        | {"h1": int(cell[0]), "predicted": int(rng.random() < 0.6)}
        for task, seeds in (("a", 1), ("b", 3))
        for seed in range(seeds)
        for cell in TASK.cells
        for i in range(rng.randint(2, 30))
    ]
    right: dict[tuple[str, int, str], list[bool]] = {}
    for r in rows:
        right.setdefault((r["task"], r["seed"], r["cell"]), []).append(r["predicted"] == r["h1"])
    means = {
        task: fmean(fmean(right[task, s, cell]) for s in range(seeds) for cell in ("1_0", "0_1"))
        for task, seeds in (("a", 1), ("b", 3))
    }
    value, (low, high), n = stratified(rows, differing_cells, "h1")
    assert value == pytest.approx(fmean(means.values()))
    assert low < value < high
    assert n == sum(row["cell"] in ("1_0", "0_1") for row in rows)
    both = [*rows, *({**row, "intervention": "other", "predicted": row["h1"]} for row in rows)]
    gain, _, _ = stratified(both, differing_cells, "h1", minus="none")
    assert gain == pytest.approx(1 - value)


def test_another_batch_size_goes_on_from_finished_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_causal(tmp_path / "causal")
    command = ["feature-bias", "--model", f"hf:{tmp_path / 'causal'}", *LOCAL, "--limit", "6", "--batch-size"]
    report_of(tmp_path / "a", *command, "2", "--work", tmp_path / "work.jsonl")
    lines = (tmp_path / "work.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "work.jsonl").write_bytes(b"".join(lines[:21]) + lines[21][:30])  # killed in the middle
    asked: list[str] = []
    ask = LocalTextModel.next_token_logprobs

    def spy(self: LocalTextModel, prompts: Sequence[str], *args: Any, **kwargs: Any) -> Any:
        asked.extend(prompts)
        return ask(self, prompts, *args, **kwargs)

    monkeypatch.setattr(LocalTextModel, "next_token_logprobs", spy)
    report_of(tmp_path / "b", *command, "2", "--work", tmp_path / "work.jsonl")
    assert len(lines) - 21 <= len(asked) < len(lines) - 21 + 8  # a chunk of a local model is read whole
    for name in ("examples.jsonl", "results.csv", "report.md"):
        assert (tmp_path / "b" / name).read_bytes() == (tmp_path / "a" / name).read_bytes()
    asked.clear()
    report_of(tmp_path / "c", *command, "3", "--work", tmp_path / "work.jsonl")
    assert not asked


def test_in_context_and_fine_tuned_in_one_table(tmp_path: Path) -> None:
    save_causal(tmp_path / "causal")
    save_choice_ckpt(tmp_path / "a.ckpt")
    save_choice_ckpt(tmp_path / "b.ckpt", "roberta")
    command = ["feature-bias", *LOCAL, "--limit", "5", "--seeds", "1"]
    command += ["--model", f"icl=hf:{tmp_path / 'causal'}"]
    checkpoints = ["--checkpoint", f"tuned={tmp_path / 'a.ckpt'}", f"tuned={tmp_path / 'b.ckpt'}"]
    cells = cells_of(tmp_path / "r", *command, *checkpoints)
    assert (cells.n("h1_sd", **tuned()), cells.n("ones", **tuned(seed=1, cell="1_0"))) == (2, 5)
    assert cells("h1", **tuned()) + cells("h2", **tuned()) == pytest.approx(1)
    assert cells.n("h1", **in_context("icl")) == 10
    only = [*checkpoints[:2], f"tuned={tmp_path / 'b.ckpt'}@stories:lexicon"]
    tasks = ["--task", "stories:uppercase", "stories:lexicon", "--limit", "5", "--device", "cpu"]
    apart = cells_of(tmp_path / "o", "feature-bias", *only, *tasks)
    assert [apart.n("h1_sd", **tuned(task=f"stories:{task}")) for task in ("uppercase", "lexicon")] == [1, 2]
    alone = cells_of(tmp_path / "s", *command[:1], *checkpoints, *LOCAL, "--limit", "5", "--no-agreement")
    assert alone("h1", **tuned()) == cells("h1", **tuned())
    assert alone.n("ones", **tuned(seed=0, cell="1_1")) == 0


def test_prompts_answered_elsewhere_give_the_same_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is asked is written, answered by the same model by hand, and read; so are labelled texts."""
    save_causal(tmp_path / "causal")
    flags = ["--task", "stories:uppercase", "--shots", "2", "--seeds", "2", "--limit", "3"]
    flags += ["--intervention", "none", "verbalizer", "--steer", "h2"]
    name = f"hf:{tmp_path / 'causal'}"
    ours = cells_of(tmp_path / "ours", "feature-bias", "--model", f"m={name}", *flags, "--device", "cpu")
    asked = tmp_path / "prompts.jsonl"
    assert main(["feature-bias-prompts", *flags, "--output", str(asked)]) == 0
    rows = list(map(json.loads, asked.read_text().splitlines()))
    model: Any = open_model.open_text_model(name, device="cpu", chat_template=False)
    for row in rows:
        after = row["prompt"].rpartition("\n")[2]
        (row["logprobs"],) = model.next_token_logprobs([row["prompt"]], row["words"], after=after)
    answered = tmp_path / "answered.jsonl"
    answered.write_text("".join(json.dumps(row) + "\n" for row in rows))
    theirs = cells_of(tmp_path / "theirs", "feature-bias", "--predictions", f"m={answered}", *flags)
    assert list(theirs.frame["measure"]) == list(ours.frame["measure"])
    for end in ("value", "low", "high", "n"):
        np.testing.assert_allclose(theirs.frame[end], ours.frame[end], atol=1e-6)

    save_choice_ckpt(tmp_path / "a.ckpt")
    few = flags[:2] + flags[6:8]
    tuned_ours = cells_of(tmp_path / "t", "feature-bias", "--checkpoint", f"c={tmp_path}/a.ckpt", *few)
    texts = [
        {"prompt": row["text"], "choices": ["0", "1"], "confidences": row["probabilities"]}
        for row in examples_of(tmp_path / "t")
    ]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    again = cells_of(tmp_path / "u", "feature-bias", "--predictions", f"c={tmp_path}/texts.jsonl", *few)
    assert again.frame.equals(tuned_ours.frame)

    answered.write_text("".join(json.dumps(row) + "\n" for row in rows if "Category" in row["prompt"]))
    output = ["--output", tmp_path / "x"]
    said = told(capsys, "feature-bias", "--predictions", f"m={answered}", *flags, *output)
    assert "verbalizer to h2, set 1: calibration failed: not among the predictions" in said
    answered.write_text(json.dumps(rows[0] | {"logprobs": [0.5, -1]}) + "\n")
    said = told(capsys, "feature-bias", "--predictions", f"m={answered}", *flags, *output)
    assert "line 1: expected the log-probabilities of 2 words" in said


def test_a_prompt_that_is_too_long_is_an_error_or_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_causal(tmp_path / "causal")
    command = [
        "feature-bias",
        "--model",
        f"hf:{tmp_path / 'causal'}",
        *LOCAL,
        "--limit",
        "2",
        "--shots",
        "16",
    ]
    assert "--truncate" in told(capsys, *command, "--output", tmp_path / "r")
    assert not (tmp_path / "r").exists()
    cells = cells_of(tmp_path / "r", *command, "--truncate")
    assert cells.n("ones", **in_context("causal", seed=0, cell="1_0")) == 2
    assert sum(row["cut"] for row in examples_of(tmp_path / "r")) == 24
    assert "causal: 24 of 24 prompts" in (tmp_path / "r/report.md").read_text()


def test_a_wording_that_no_task_has_is_warned_of(
    fake: FakeModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One file serves many tasks: those that it has besides are no mistake."""
    wording = {"h2": {"instruction": "Do as I say."}}
    flags = ["--limit", "2", "--intervention", "instruction", "--steer", "h2", "--wording"]
    cases = (("stories:upercase", True), ("stories:uppercase", False), ("*", False))
    for i, (name, warned) in enumerate(cases):
        (tmp_path / "w.json").write_text(json.dumps({name: wording, "another": wording}))
        caplog.clear()
        report_of(tmp_path / f"r{i}", *ASK, *flags, str(tmp_path / "w.json"))
        assert ("has no task stories:uppercase" in caplog.text) == warned
        assert any("Do as I say." in prompt for prompt in fake.prompts) == (not warned)
        fake.prompts.clear()


def test_a_checkpoint_that_diverged_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_choice_ckpt(tmp_path / "a.ckpt")
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)
    saved["state_dict"]["model.choice_head.weight"].fill_(3e38)
    torch.save(saved, tmp_path / "a.ckpt")
    command = ["feature-bias", "--checkpoint", f"{tmp_path / 'a.ckpt'}", *LOCAL, "--limit", "2"]
    assert "a.ckpt: gives scores that are not finite" in told(capsys, *command, "--output", tmp_path / "r")


WORDING = {"stories:uppercase": {"h1": {"key": "Glad:", "words": ["red", "red one"]}}}
MISTAKES = [
    (["--shots", "3"], "--shots 3"),
    (["--shots", "4", "--intervention", "disambiguation", "--shots", "6"], "--shots 6"),
    (["--task", "stories:length", "stories:length"], "stories:length"),
    (["--intervention", "verbalizer", "--wording", "{}/wording.json"], "same token"),
    (["--model", "m=hf:nowhere", "n=hf:{}/causal"], "nowhere"),
    (["--checkpoint", "nowhere.ckpt"], "nowhere.ckpt"),
    (["--checkpoint", "a.ckpt@stories:overlap"], "stories:overlap"),
    (["--checkpoint", "{}/a/last.ckpt", "{}/b/last.ckpt"], "'last'"),  # not two seeds of one model
    (["--parity", "--seeds", "20"], "--seeds"),
]


@pytest.mark.parametrize(("flags", "named"), MISTAKES)
def test_mistakes_are_told_before_anything_is_asked(
    flags: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_causal(tmp_path / "causal")
    (tmp_path / "wording.json").write_text(json.dumps(WORDING))
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "last.ckpt").touch()
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
