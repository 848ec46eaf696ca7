"""The confusion protocol with choosers whose numbers are known."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from data_modules.choices.benchmarks import Benchmark
from data_modules.choices.probes import Probe, Sampling
from data_modules.choices.rows import write_choices
from data_modules.schema import ChoiceQuestion
from evaluation.__main__ import main
from evaluation.answering.choice_answerers import CheckpointChooser
from evaluation.page.example_rows import read_rows
from evaluation.protocols.confusion import command as confusion
from evaluation.protocols.confusion import runs as confusion_runs
from evaluation.protocols.confusion.runs import Plan, fixed_conditions
from models import checkpoint

Rule = Callable[[ChoiceQuestion], Sequence[float]]


class FakePredictor:
    """In place of a checkpoint: logits by a rule, embeddings from the texts' letters."""

    def __init__(self, rule: Rule, weights: str) -> None:
        self.rule, self.weights_id = rule, weights
        self.settings = {"precision": "32", "device": "cpu", "batch_size": 64}
        self.asked: list[ChoiceQuestion] = []
        self.stop_after = 10**9

    def logits(self, examples: Sequence[ChoiceQuestion], what: str = "") -> Iterator[np.ndarray]:
        for example in examples:
            if len(self.asked) >= self.stop_after:
                raise KeyboardInterrupt
            self.asked.append(example)
            yield np.array(self.rule(example), dtype=np.float32)

    def embeddings(self, texts: Sequence[str], what: str = "") -> np.ndarray:
        found = np.array([[text.count(letter) + 0.01 for letter in "0123456789"] for text in texts])
        return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), dtype=np.float32)


def number(text: str) -> float:
    """A number that a text always gets, standard normal."""
    import hashlib

    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return float(np.random.default_rng(seed).standard_normal())


def guessing(example: ChoiceQuestion) -> list[float]:
    """A random head."""
    return [number(example.prompt + text) for text in example.choices]


def knowing(example: ChoiceQuestion) -> list[float]:
    """Answers what it is asked, and guesses where there is nothing to tell by."""
    key = example.prompt.removeprefix("prompt ")
    told = [5.0 * (f"right {key}." in text) for text in example.choices]
    return [
        score + 0.1 * number(example.prompt + text) for score, text in zip(told, example.choices, strict=True)
    ]


def biased(example: ChoiceQuestion) -> list[float]:
    """Reads no question: takes whatever is called right."""
    return [3.0 * ("right" in text) for text in example.choices]


def questions(count: int = 80, n: int = 3) -> list[ChoiceQuestion]:
    rng = np.random.default_rng(0)
    found = []
    for i in range(count):
        choices = [f"wrong {i} {k}" for k in range(n)]
        label = int(rng.integers(n))
        choices[label] = f"right {i}."
        found.append(ChoiceQuestion(f"q{i}", f"prompt {i}", tuple(choices), label, "toy"))
    return found


class AnyKind:
    """Looked at, and fit for everything."""

    def require_kind(self, kind: type) -> None:
        pass


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakePredictor]:
    """Checkpoints by name."""
    rules: dict[str, Rule] = {"guessing": guessing, "knowing": knowing, "biased": biased}
    found = {name: FakePredictor(rule, name) for name, rule in rules.items()}

    def open_fake(path: str, args: argparse.Namespace) -> CheckpointChooser:
        return CheckpointChooser(found[path])  # type: ignore[arg-type]

    monkeypatch.setattr("evaluation.answering.choice_answerers.open_choice_answerer", open_fake)
    look = checkpoint.inspect
    monkeypatch.setattr(checkpoint, "inspect", lambda path: AnyKind() if path in found else look(path))
    return found


def ask(folder: Path, *flags: str, count: int = 80, n: int = 3) -> int:
    write_choices(folder / "rows.jsonl", questions(count, n))
    basics = ("--input", str(folder / "rows.jsonl"), "--output", str(folder / "out"), "--overwrite")
    return main(["confusion", *basics, *flags])


def report(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "out/report.json").read_text())
    return found


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out/examples.jsonl").read_text().splitlines()]


SMALL = ("--trials", "3", "--choices", "3", "5", "--instances", "40")


def test_three_models_whose_numbers_are_known(tmp_path: Path, models: dict[str, FakePredictor]) -> None:
    assert ask(tmp_path, "--checkpoint", *models, *SMALL, count=300) == 0
    found = report(tmp_path)
    assert (found["n"], found["choices"]) == (300, 3)
    for probe in ("no_question", "wrong_question", "no_right_answer"):
        # Of 300 guesses a third is right, give or take 3 deviations; over trials even closer.
        assert found[f"guessing/{probe}/pseudo_accuracy"] == pytest.approx(1 / 3, abs=0.09)
        assert found[f"guessing/{probe}/confidence"] == pytest.approx(1 / 3, abs=0.04)
        assert found[f"guessing/{probe}/accuracy_against_chance_0/p"] > 0.001
        assert found[f"knowing/{probe}/accuracy_before"] == 1
        assert found[f"knowing/{probe}/pseudo_accuracy"] == pytest.approx(1 / 3, abs=0.09)
        assert found[f"knowing/{probe}/confidence_before_after/p"] < 1e-16
        assert found[f"biased/{probe}/pseudo_accuracy"] == 1
        assert found[f"biased/{probe}/accuracy_against_chance_0/p"] < 1e-16
        # The knowing model is sure of originals alone, the biased one of all alike.
        assert found[f"knowing/{probe}/maxprob/acc_mixed"] == 1
        assert found[f"biased/{probe}/maxprob/acc_mixed"] == 0.5
    assert found["knowing/no_right_answer/anc_minus_rac"] == pytest.approx(-1, abs=0.05)
    assert found["knowing/no_right_answer/anc_post_minus_sac"] == pytest.approx(0, abs=0.02)
    assert found["biased/confidence_difference"] == pytest.approx(0)
    for sampling in ("random", "heuristic"):
        for n in (3, 5):
            name = f"choice_paralysis/{sampling}/{n}/hits@"
            assert found[f"guessing/{name}1"] == pytest.approx(1 / n, abs=0.13)
            assert found[f"knowing/{name}1"] == 1
            # All choices look right to it, so the lowest slot wins: hits@k are those of a shuffled slot.
            assert found[f"biased/{name}2"] == pytest.approx(2 / n, abs=0.14)
            assert {found[f"{model}/{name}{n}"] for model in models} == {1.0}
    assert found["biased/choice_paralysis/random/5/paralysis"] > 0.6
    assert found["knowing/choice_paralysis/random/5/matching_k"] == 1


def test_every_answer_can_be_traced(tmp_path: Path, models: dict[str, FakePredictor]) -> None:
    assert ask(tmp_path, "--checkpoint", "guessing", *SMALL) == 0
    found, answers, originals = report(tmp_path), rows(tmp_path), questions()
    assert len(answers) == 80 * (1 + 1 + 3 + 3) + 2 * 2 * 3 * 40
    by_probe: dict[str, list[dict[str, Any]]] = {}
    for row in answers:
        by_probe.setdefault(row["probe"], []).append(row)
        assert sum(row["confidences"]) == pytest.approx(1)
        assert row["pick"] == max(range(len(row["confidences"])), key=row["confidences"].__getitem__)
        assert row["id"] == originals[row["index"]].id
        assert row["index"] not in row.get("donors", [])
    wrong = by_probe["wrong_question"]
    shares = [np.mean([row["right"] for row in wrong if row["trial"] == trial]) for trial in range(3)]
    assert found["wrong_question/pseudo_accuracy"] == pytest.approx(np.mean(shares))
    assert found["wrong_question/pseudo_accuracy_se"] == pytest.approx(np.std(shares, ddof=1) / 3**0.5)
    assert all(row["prompt"] == originals[row["donors"][0]].prompt for row in wrong)
    difference = [
        none["confidences"][none["label"]]
        - np.mean([row["confidences"][row["label"]] for row in wrong if row["index"] == none["index"]])
        for none in by_probe["no_question"]
    ]
    assert found["confidence_difference"] == pytest.approx(np.mean(difference))
    paralysed = [row for row in by_probe["choice_paralysis"] if row["sampling"] == "random"]
    lost = [row["confidence_before"] - row["confidences"][row["label"]] for row in paralysed]
    five = [value for row, value in zip(paralysed, lost, strict=True) if len(row["choices"]) == 5]
    assert found["choice_paralysis/random/5/paralysis"] == pytest.approx(np.mean(five))
    assert found["choice_paralysis/random/5/n"] == len(five) == 120
    # The parts of a number's key lead to its rows (evaluation/page/example_rows.py).
    behind = read_rows(tmp_path / "out/examples.jsonl", found, 10).finding(
        ["choice_paralysis", "random", "5"]
    )
    assert behind == {"probe": "choice_paralysis", "sampling": "random", "n_choices": "5"}
    assert all(len(row["choices"]) == int(row["n_choices"]) for row in paralysed)
    text = (tmp_path / "out/report.md").read_text()
    for heading in ("Prior bias", "Choice paralysis", "Calibration by MaxProb", "No right answer"):
        assert f"## {heading}" in text
    for figure in ("confidences.png", "differences.png", "hits.png"):
        assert (tmp_path / "out" / figure).stat().st_size > 5000
    (substituted,) = text.split("## No right answer")[1].split("| guessing |")[1].splitlines()[:1]
    cells = [cell.strip() for cell in substituted.split("|")]
    assert ["±" in cell for cell in cells[1:5]] == [True, True, False, False], "ANC - RAC has no trials"


def test_the_order_of_the_choices_changes_nothing(
    tmp_path: Path, models: dict[str, FakePredictor], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ("--checkpoint", "guessing", "--probes", "no-question", "wrong-question", "no-right-answer")
    assert ask(tmp_path, *flags) == 0
    first = report(tmp_path)
    turned = [
        ChoiceQuestion(e.id, e.prompt, e.choices[::-1], len(e.choices) - 1 - e.label, e.benchmark)
        for e in questions()
    ]
    monkeypatch.setattr("tests.evaluation.protocols.confusion.test_confusion.questions", lambda *_: turned)
    assert ask(tmp_path, *flags) == 0
    second = report(tmp_path)
    for key, value in first.items():
        if key != "about" and not key.startswith("irregularities/balance"):
            assert second[key] == pytest.approx(value, nan_ok=True), key


def test_an_interrupted_run_goes_on_and_repeats_nothing(
    tmp_path: Path, models: dict[str, FakePredictor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confusion_runs, "CHUNK", 16)
    flags = ("--checkpoint", "guessing", "knowing", *SMALL)
    whole = tmp_path / "whole"
    whole.mkdir()
    assert ask(whole, *flags) == 0
    asked = len(models["guessing"].asked)
    models["guessing"].asked.clear()
    models["knowing"].asked.clear()
    models["guessing"].stop_after = asked // 2 + 3
    assert ask(tmp_path, *flags) == 130
    assert not (tmp_path / "out").exists()
    finished = len(models["guessing"].asked)
    models["guessing"].stop_after = 10**9
    assert ask(tmp_path, *flags) == 0
    assert finished < asked
    assert len(models["guessing"].asked) - asked < 16, "only what the chunk under way had"
    assert report(tmp_path) | {"about": ""} == report(whole) | {"about": ""}
    before = (tmp_path / "out/report.json").read_bytes()
    for model in models.values():
        model.stop_after = 0
    monkeypatch.setattr(FakePredictor, "embeddings", None)
    assert ask(tmp_path, *flags) == 0, "all is there: nothing is asked"
    assert (tmp_path / "out/report.json").read_bytes() == before


def test_no_shared_words_leaves_out_who_has_no_other_question(
    tmp_path: Path, models: dict[str, FakePredictor], capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--checkpoint", "guessing", "--probes", "wrong-question", "--no-shared-words")
    assert ask(tmp_path, *flags) == 2
    assert "every prompt has a word in common with every other one" in capsys.readouterr().err
    examples = questions(20)
    examples = [
        ChoiceQuestion(e.id, e.prompt if i < 19 else "prompt 1 alien", e.choices, e.label, "toy")
        for i, e in enumerate(examples)
    ] + [ChoiceQuestion("odd", "alien", ("x", "y", "z"), 0, "toy")]
    write_choices(tmp_path / "some.jsonl", examples)
    arguments = ["--input", str(tmp_path / "some.jsonl"), "--output", str(tmp_path / "out"), *flags]
    assert main(["confusion", *arguments]) == 0
    assert report(tmp_path)["wrong_question/n"] == 20
    assert "1 of 21 questions have no such other one" in (tmp_path / "out/report.md").read_text()


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--checkpoint", "openai:gpt-4o"], "confusion needs the likelihood of given choices"),
        (["--checkpoint", "hf:gpt2"], "name an --encoder, or ask for --sampling random"),
        (["--checkpoint", "guessing", "hf:gone", "--sampling", "random"], "gone"),
        (["--checkpoint", "guessing", "--encoder", "gone"], "gone: no checkpoint file"),
        (["--checkpoint", "missing.ckpt"], "missing.ckpt: no such checkpoint"),
        (["--checkpoint", "guessing", "--choices", "100"], "100 choices needs 99 different right choices"),
        (["--checkpoint", "guessing", "--choices", "1"], "--choices: at least 2, got 1"),
        (["--checkpoint", "guessing", "--trials", "0"], "--trials: at least 1, got 0"),
        (["--checkpoint", "guessing", "--limit", "1"], "probes need at least 2"),
        (["--checkpoint", "guessing", "--benchmark", "piqa"], "holds rows, not piqa"),
        (
            ["--checkpoint", "guessing", "--probes", "no-question", "--no-shared-words"],
            "--no-shared-words goes with --probes wrong-question",
        ),
    ],
)
def test_mistakes_are_told_before_any_model_is_asked(
    tmp_path: Path,
    models: dict[str, FakePredictor],
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    told: str,
) -> None:
    assert ask(tmp_path, *flags) == 2
    assert told in capsys.readouterr().err
    assert not models["guessing"].asked


def test_mistakes_in_questions_and_logits_are_told(
    tmp_path: Path, models: dict[str, FakePredictor], capsys: pytest.CaptureFixture[str]
) -> None:
    odd = [*questions(3), ChoiceQuestion("odd", "why", ("this", "that"), 0, "other")]
    write_choices(tmp_path / "odd.jsonl", odd)
    arguments = ["--checkpoint", "guessing", "--output", str(tmp_path / "out")]
    assert main(["confusion", "--input", str(tmp_path / "odd.jsonl"), *arguments]) == 2
    assert "odd has 2 choices, q0 has 3" in capsys.readouterr().err
    models["guessing"].rule = lambda example: [float("nan")] * len(example.choices)
    assert ask(tmp_path, "--checkpoint", "guessing", "--probes", "no-question") == 2
    assert "question q0 got a logit that is no finite number" in capsys.readouterr().err


def test_heuristic_choices_are_the_most_similar(tmp_path: Path, models: dict[str, FakePredictor]) -> None:
    flags = ("--checkpoint", "guessing", "--probes", "choice-paralysis", "--sampling", "heuristic")
    assert ask(tmp_path, *flags, "--choices", "4", "--trials", "1", "--instances", "30") == 0
    vectors = models["guessing"].embeddings([example.prompt for example in questions()])
    for row in rows(tmp_path):
        if row["probe"] == "choice_paralysis":
            similar = vectors @ vectors[row["index"]]
            similar[row["index"]] = -1
            assert sorted(similar[row["donors"]]) == pytest.approx(sorted(similar)[-3:])


def test_the_flags_know_all_names() -> None:
    assert tuple(name.replace("-", "_") for name in confusion.PROBES) == get_args(Probe)
    assert get_args(Sampling) == confusion.SAMPLING
    assert ("auto", *get_args(Benchmark)) == confusion.BENCHMARKS


def test_trials_of_every_number_of_choices_ask_the_same_questions() -> None:
    plan = Plan(
        probes=("choice_paralysis",), trials=2, seed=0, choices=(3, 5), sampling=("random",), instances=7
    )
    found = fixed_conditions(questions(), plan)
    assert [(c.n, c.trial) for c in found] == [(3, 0), (3, 1), (5, 0), (5, 1)]
    assert found[0].targets == found[2].targets != found[1].targets
