"""The confusion protocol with choosers whose numbers are known."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import evaluation.answering.open
from data_modules.choices.benchmarks import write_choices
from data_modules.schema import ChoiceQuestion
from evaluation.__main__ import main
from evaluation.answering import remembered
from evaluation.answering.interface import Answerer
from evaluation.protocols.confusion.trials import Plan, fixed_trials
from models import checkpoint
from tests.evaluation.cells import Cells
from tests.evaluation.checkpoints import examples_of, told

Rule = Callable[[ChoiceQuestion], Sequence[float]]


class FakeCheckpoint(Answerer):
    """In place of a checkpoint: logits by a rule, embeddings from the texts' letters."""

    def __init__(self, rule: Rule, weights: str) -> None:
        self.rule, self.weights, self.path = rule, weights, weights
        self.asked: list[ChoiceQuestion] = []

    @property
    def identity(self) -> dict[str, Any]:
        return {"weights": self.weights}

    def choice_logits(self, questions: Sequence[ChoiceQuestion], what: str = "") -> Iterator[np.ndarray]:
        for question in questions:
            self.asked.append(question)
            yield np.array(self.rule(question), dtype=np.float32)

    def embeddings(self, texts: Sequence[str], what: str = "") -> np.ndarray:
        found = np.array([[text.count(letter) + 0.01 for letter in "0123456789"] for text in texts])
        return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), dtype=np.float32)


def number(text: str) -> float:
    """A number that a text always gets, standard normal."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return float(np.random.default_rng(seed).standard_normal())


def guessing(example: ChoiceQuestion) -> list[float]:
    """A random head."""
    return [number(example.prompt + text) for text in example.choices]


def knowing(example: ChoiceQuestion) -> list[float]:
    """Answers what it is asked, and guesses where there is nothing to tell by."""
    key = example.prompt.removeprefix("prompt ")
    return [5.0 * (f"right {key}." in x) + 0.1 * number(example.prompt + x) for x in example.choices]


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

    architecture, heads = "bert", "choice"

    def require_kind(self, kind: type) -> None:
        pass


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeCheckpoint]:
    """Checkpoints by name, asked a few questions at a time."""
    monkeypatch.setattr(remembered, "CHUNK", 16)
    rules: dict[str, Rule] = {"guessing": guessing, "knowing": knowing, "biased": biased}
    found = {name: FakeCheckpoint(rule, name) for name, rule in rules.items()}
    real = evaluation.answering.open.open_chooser

    def opened(path: str, *how: Any, **more: Any) -> Answerer:
        return found[path] if path in found else real(path, *how, **more)

    monkeypatch.setattr(evaluation.answering.open, "open_chooser", opened)
    look = checkpoint.inspect
    monkeypatch.setattr(checkpoint, "inspect", lambda path: AnyKind() if path in found else look(path))
    return found


def command(folder: Path, *flags: str, examples: Sequence[ChoiceQuestion] = ()) -> list[str]:
    write_choices(folder / "rows.jsonl", examples or questions())
    basics = ("--input", str(folder / "rows.jsonl"), "--output", str(folder / "out"), "--overwrite")
    return ["confusion", *basics, *flags]


def ask(folder: Path, *flags: str, examples: Sequence[ChoiceQuestion] = ()) -> Cells:
    assert main(command(folder, *flags, examples=examples)) == 0
    return Cells(folder / "out")


SMALL = ("--trials", "3", "--choices", "3", "5", "--instances", "40")
PARALYSIS = {"probe": "choice_paralysis"}


def test_constant_scores_are_told(
    tmp_path: Path, models: dict[str, FakeCheckpoint], caplog: pytest.LogCaptureFixture
) -> None:
    models["guessing"].rule = lambda example: [0.25] * len(example.choices)
    ask(tmp_path, "--checkpoint", "guessing", "knowing", "--probes", "no-question", examples=questions(40))
    line = "guessing: 80 of 80 answers are ties; the first choice counts"
    assert line in caplog.text
    assert f"{line}." in (tmp_path / "out" / "report.md").read_text()
    assert "knowing: " not in caplog.text


def test_three_models_whose_numbers_are_known(tmp_path: Path, models: dict[str, FakeCheckpoint]) -> None:
    cells = ask(tmp_path, "--checkpoint", *models, *SMALL, examples=questions(300))
    cells.check()
    for probe in ("no_question", "wrong_question", "no_right_answer"):
        guess, know, bias = ({"checkpoint": name, "probe": probe} for name in models)
        against_chance = {"test": "accuracy_against_chance", "trial": 0}
        # Of 300 guesses a third is right, give or take 3 deviations; over trials even closer.
        assert cells("pseudo_accuracy", **guess) == pytest.approx(1 / 3, abs=0.09)
        assert cells("confidence", **guess) == pytest.approx(1 / 3, abs=0.04)
        assert cells("p", **guess, **against_chance) > 0.001
        assert cells("accuracy_before", **know) == 1
        assert cells("pseudo_accuracy", **know) == pytest.approx(1 / 3, abs=0.09)
        assert cells("p", **know, test="confidence_before_after") < 1e-16
        assert cells("pseudo_accuracy", **bias) == 1
        assert cells("p", **bias, **against_chance) < 1e-16
        # The knowing model is sure of originals alone, the biased one of all alike.
        for split in ("", "first"):
            assert cells("acc_mixed", **know, split=split) == 1
            assert cells("acc_mixed", **bias, split=split) == 0.5
        row = cells.row("pseudo_accuracy", **guess)
        assert row["low"] < 1 / 3 < row["high"]
    gone = {"probe": "no_right_answer"}
    assert cells("anc_minus_rac", checkpoint="knowing", **gone) == pytest.approx(-1, abs=0.05)
    assert cells("anc_post_minus_sac", checkpoint="knowing", **gone) == pytest.approx(0, abs=0.02)
    difference = cells("confidence_difference", checkpoint="biased", probe="wrong_question")
    assert difference == pytest.approx(0)
    for sampling in ("random", "heuristic"):
        for n in (3, 5):
            cell = PARALYSIS | {"sampling": sampling, "n_choices": n}
            assert cells("hits", checkpoint="guessing", **cell, k=1) == pytest.approx(1 / n, abs=0.13)
            assert cells("hits", checkpoint="knowing", **cell, k=1) == 1
            # All choices look right to it, so the lowest slot wins: hits@k are those of a shuffled slot.
            assert cells("hits", checkpoint="biased", **cell, k=2) == pytest.approx(2 / n, abs=0.14)
            assert {cells("hits", checkpoint=name, **cell, k=n) for name in models} == {1.0}
    cell = PARALYSIS | {"sampling": "random", "n_choices": 5}
    assert cells("paralysis", checkpoint="biased", **cell) > 0.6
    assert cells("matching_k", checkpoint="knowing", **cell) == 1


def test_every_answer_can_be_traced(tmp_path: Path, models: dict[str, FakeCheckpoint]) -> None:
    cells, originals = ask(tmp_path, "--checkpoint", "guessing", *SMALL), questions()
    answers = examples_of(tmp_path / "out")
    assert len(answers) == 80 * (1 + 1 + 3 + 3) + 2 * 2 * 3 * 40
    by_probe: dict[str, list[dict[str, Any]]] = {}
    for row in answers:
        by_probe.setdefault(row["probe"], []).append(row)
        assert sum(row["confidences"]) == pytest.approx(1)
        assert row["pick"] == max(range(len(row["confidences"])), key=row["confidences"].__getitem__)
        assert row["id"] == originals[row["index"]].id
        assert row["index"] not in row.get("donors", [])
    wrong, cell = by_probe["wrong_question"], {"checkpoint": "guessing", "probe": "wrong_question"}
    shares = [np.mean([row["right"] for row in wrong if row["trial"] == trial]) for trial in range(3)]
    assert cells("pseudo_accuracy", **cell) == pytest.approx(np.mean(shares))
    assert cells("pseudo_accuracy_trial_sd", **cell) == pytest.approx(np.std(shares, ddof=1))
    assert all(row["prompt"] == originals[row["donors"][0]].prompt for row in wrong)
    difference = [
        none["confidences"][none["label"]]
        - np.mean([row["confidences"][row["label"]] for row in wrong if row["index"] == none["index"]])
        for none in by_probe["no_question"]
    ]
    assert cells("confidence_difference", **cell) == pytest.approx(np.mean(difference))
    assert cells("confidence_difference_sd", **cell) == pytest.approx(np.std(difference, ddof=1))
    place = {"sampling": "random", "n_choices": "5"}
    five = [row for row in by_probe["choice_paralysis"] if all(row[key] == place[key] for key in place)]
    assert all(len(row["choices"]) == 5 for row in five)
    lost = [row["confidence_before"] - row["confidences"][row["label"]] for row in five]
    cell = {"checkpoint": "guessing", **PARALYSIS, **place}
    assert cells("paralysis", **cell) == pytest.approx(np.mean(lost))
    assert cells.n("paralysis", **cell) == len(five) == 120
    assert "guessing, without the question: confidence ." in (tmp_path / "out/report.md").read_text()
    for figure in ("confidences.png", "differences.png", "hits_random.png", "hits_heuristic.png"):
        assert (tmp_path / "out" / figure).exists()


def test_the_order_of_the_choices_changes_nothing(tmp_path: Path, models: dict[str, FakeCheckpoint]) -> None:
    flags = ("--checkpoint", "guessing", "--probes", "no-question", "wrong-question", "no-right-answer")
    first = ask(tmp_path, *flags).frame
    turned = [replace(e, choices=e.choices[::-1], label=len(e.choices) - 1 - e.label) for e in questions()]
    second = ask(tmp_path, *flags, examples=turned).frame
    for frame in (first, second):
        frame.drop(frame[frame["measure"] == "label_share"].index, inplace=True)
    assert list(second["measure"]) == list(first["measure"])
    np.testing.assert_allclose(second["value"], first["value"], rtol=1e-6, atol=1e-9)


def test_no_shared_words_leaves_out_who_has_no_other_question(
    tmp_path: Path, models: dict[str, FakeCheckpoint], capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--checkpoint", "guessing", "--probes", "wrong-question", "--no-shared-words")
    assert "--no-shared-words" in told(capsys, *command(tmp_path, *flags))
    examples = questions(20)
    examples[19] = replace(examples[19], prompt="prompt 1 alien")
    examples.append(ChoiceQuestion("odd", "alien", ("x", "y", "z"), 0, "toy"))
    cells = ask(tmp_path, *flags, examples=examples)
    assert cells.n("chance", checkpoint="guessing", probe="wrong_question") == 20
    assert "1 of 21 questions have no such other one" in (tmp_path / "out/report.md").read_text()


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (["hf:gpt2"], "--encoder"),
        (["guessing", "hf:gone", "--sampling", "random"], "gone"),
        (["guessing", "--choices", "100"], "100 choices"),
        (["guessing", "--limit", "1"], "at least 2"),
        (["guessing", "--probes", "no-question", "--no-shared-words"], "--no-shared-words"),
        (["guessing", "--input", "stories:choices_dev", "stories:choices_dev"], "NAME=stories:choices_dev"),
        (["guessing", "--labels", "x.lst", "--input", "stories:choices_dev", "b.jsonl"], "PATH+LABELS"),
    ],
)
def test_mistakes_are_known_before_any_model_is_asked(
    tmp_path: Path,
    models: dict[str, FakeCheckpoint],
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    names: str,
) -> None:
    assert names in told(capsys, *command(tmp_path, "--checkpoint", *flags))
    assert not models["guessing"].asked


def test_mistakes_in_questions_and_logits_name_the_question(
    tmp_path: Path, models: dict[str, FakeCheckpoint], capsys: pytest.CaptureFixture[str]
) -> None:
    odd = [*questions(3), ChoiceQuestion("odd", "why", ("this", "that"), 0, "other")]
    assert "question odd" in told(capsys, *command(tmp_path, "--checkpoint", "guessing", examples=odd))
    models["guessing"].rule = lambda example: [float("nan")] * len(example.choices)
    flags = ("--checkpoint", "guessing", "--probes", "no-question")
    assert "question q0" in told(capsys, *command(tmp_path, *flags))


def test_heuristic_choices_are_the_most_similar(tmp_path: Path, models: dict[str, FakeCheckpoint]) -> None:
    flags = ("--checkpoint", "guessing", "--probes", "choice-paralysis", "--sampling", "heuristic")
    ask(tmp_path, *flags, "--choices", "4", "--trials", "1", "--instances", "30")
    vectors = models["guessing"].embeddings([example.prompt for example in questions()])
    for row in examples_of(tmp_path / "out"):
        if row["probe"] == "choice_paralysis":
            similar = vectors @ vectors[row["index"]]
            similar[row["index"]] = -1
            assert sorted(similar[row["donors"]]) == pytest.approx(sorted(similar)[-3:])


def test_several_benchmarks_in_one_report(tmp_path: Path, models: dict[str, FakeCheckpoint]) -> None:
    """Each has the numbers of a report of its own."""
    write_choices(tmp_path / "two.jsonl", [replace(q, benchmark="two") for q in questions(40, 2)])
    flags = ["--checkpoint", "knowing", "biased", *SMALL, "--sampling", "random", "--trials", "2"]
    alone = ask(tmp_path, *flags)
    both = ask(tmp_path, *flags, "--input", f"{tmp_path}/rows.jsonl", f"pairs={tmp_path}/two.jsonl")
    both.check()
    first = both.frame[both.frame["benchmark"] == "toy"].drop(columns="benchmark").reset_index(drop=True)
    assert first.equals(alone.frame.drop(columns="benchmark"))
    place = {"probe": "wrong_question", "benchmark": "pairs", "checkpoint": "biased"}
    assert (both("pseudo_accuracy", **place), both.n("chance", **place)) == (1, 40)
    assert both("pseudo_accuracy_trial_se", **place) == 0
    text = (tmp_path / "out/report.md").read_text()
    assert "## Wrong question (the paper's Table 1)\n\n| checkpoint | benchmark | pseudo-accuracy" in text
    assert "| biased | pairs | 1 [1, 1] | 0 | 0 [0, 0] | 2–80 |" in text
    for figure in ("confidences", "differences", "paralysis", "hits_random", "risk"):
        assert {f"{figure}_toy.png", f"{figure}_pairs.png"} <= {p.name for p in (tmp_path / "out").iterdir()}
    assert {row["benchmark"] for row in examples_of(tmp_path / "out")} == {"toy", "pairs"}


def test_a_name_may_have_a_checkpoint_for_each_benchmark(
    tmp_path: Path, models: dict[str, FakeCheckpoint], capsys: pytest.CaptureFixture[str]
) -> None:
    """As in the paper, whose model is fine-tuned on each benchmark."""
    write_choices(tmp_path / "two.jsonl", [replace(q, benchmark="two") for q in questions(40, 2)])
    flags = ["--probes", "no-question", "--input", f"{tmp_path}/rows.jsonl", f"{tmp_path}/two.jsonl"]
    cells = ask(tmp_path, "--checkpoint", "own=knowing@toy", "own=biased@two", "guessing@two", *flags)
    cells.check()
    own = {"checkpoint": "own", "probe": "no_question"}
    assert (
        cells("pseudo_accuracy", **own, benchmark="two")
        == 1
        > cells("pseudo_accuracy", **own, benchmark="toy")
    )
    assert {q.benchmark for q in models["knowing"].asked} == {"toy"}
    assert {q.benchmark for q in models["guessing"].asked} == {"two"}
    twice = command(tmp_path, "--checkpoint", "own=knowing", "own=biased@two", *flags)
    assert "two are called 'own' for two" in told(capsys, *twice)


def test_k_to_match_is_measured_against_all_questions(
    tmp_path: Path, models: dict[str, FakeCheckpoint]
) -> None:
    """The paper's Figure 6; the drawn questions alone may be the easy ones."""
    flags = ("--probes", "choice-paralysis", "--choices", "5", "--sampling", "random")
    models["half"] = FakeCheckpoint(lambda q: guessing(q) if int(q.id[1:]) % 2 else knowing(q), "half")
    cells = ask(tmp_path, "--checkpoint", "half", *flags, "--trials", "1", "--instances", "6")
    place = PARALYSIS | {"checkpoint": "half", "sampling": "random", "n_choices": 5}
    whole = cells("accuracy", checkpoint="half", probe="original")
    hits = [cells("hits", **place, k=k) for k in range(1, 6)]
    reached = {
        level: 1 + next(i for i, share in enumerate(hits) if share >= level)
        for level in (whole, cells("accuracy_before", **place))
    }
    assert len(set(reached.values())) == 2, "the drawn questions would give another k"
    assert cells("matching_k", **place) == reached[whole]


def test_every_probe_on_drawn_questions_only(tmp_path: Path, models: dict[str, FakeCheckpoint]) -> None:
    """What the paper does with UnifiedQA: three times fifty questions, for every probe."""
    flags = ("--drawn-only", "--trials", "3", "--choices", "5", "--sampling", "random", "--instances", "50")
    cells = ask(tmp_path, "--checkpoint", "knowing", *flags)
    cells.check()
    drawn = [
        fixed_trials(questions(), Plan(("no_question",), 3, 0, False, (5,), (), "", 50, True))[i]
        for i in range(3)
    ]
    assert len({tuple(trial.targets) for trial in drawn}) == 3
    rows = examples_of(tmp_path / "out")
    asked = {
        probe: [[r["index"] for r in rows if (r["probe"], r.get("trial", 0)) == (probe, t)] for t in range(3)]
        for probe in ("no_question", "wrong_question", "no_right_answer", "choice_paralysis")
    }
    assert all(trials == [trial.targets for trial in drawn] for trials in asked.values())
    assert cells.n("accuracy", checkpoint="knowing", probe="original") == 150
    for probe in ("no_question", "wrong_question", "no_right_answer"):
        assert cells.n("pseudo_accuracy", checkpoint="knowing", probe=probe) == 150
        assert cells.n("pseudo_accuracy_trial_se", checkpoint="knowing", probe=probe) == 3
    assert "have the 50 questions drawn in each trial only" in (tmp_path / "out/report.md").read_text()


def test_who_is_sure_of_what(tmp_path: Path, models: dict[str, FakeCheckpoint]) -> None:
    """AUROC and risk from the examples, by a library; and at the limits."""
    cells = ask(tmp_path, "--checkpoint", *models, "--trials", "2", "--probes", "wrong-question")
    for score in ("maxprob", "margin", "entropy"):
        know, bias = ({"checkpoint": name, "probe": "wrong_question"} for name in ("knowing", "biased"))
        assert cells("auroc", **know, score=score) == pytest.approx(1)
        assert cells("auroc", **bias, score=score) == pytest.approx(0.5)
        # It is sure of originals first, and they are half of all.
        assert cells("risk", **know, score=score, coverage="0.5") == 0
        assert cells("risk", **know, score=score, coverage="1.0") == 0.5
        assert math.isnan(cells("auroc", checkpoint="knowing", probe="original", score=score))
    rows = [row for row in examples_of(tmp_path / "out") if row["checkpoint"] == "guessing"]
    originals = [row for row in rows if row["probe"] == "original"]
    right, greatest = [r["right"] for r in originals], [max(r["confidences"]) for r in originals]
    cell = {"checkpoint": "guessing", "probe": "original", "score": "maxprob"}
    assert cells("auroc", **cell) == pytest.approx(roc_auc_score(right, greatest))
    row = cells.row("auroc", **cell)
    assert row["low"] < row["value"] < row["high"]
    surest = np.argsort(-np.array(greatest))
    risks = 1 - np.cumsum(np.array(right)[surest]) / np.arange(1, 81)
    assert cells("aurc", **cell) == pytest.approx(risks.mean())
    assert [cells("risk", **cell, coverage=c) for c in (0.1, 0.5, 1.0)] == pytest.approx(risks[[7, 39, 79]])
    changed = [row for row in rows if row["probe"] == "wrong_question"]
    mixed = [max(r["confidences"]) for r in (*originals, *originals, *changed)]
    told_apart = roc_auc_score([1] * 160 + [0] * 160, mixed)
    assert cells("auroc", **cell | {"probe": "wrong_question"}) == pytest.approx(told_apart)
    assert "| no question |" not in (tmp_path / "out/report.md").read_text()


def test_choices_scored_elsewhere_give_the_same_report(
    tmp_path: Path, models: dict[str, FakeCheckpoint], capsys: pytest.CaptureFixture[str]
) -> None:
    """What is asked is written, scored by hand, and read; so are the confidences of examples.jsonl."""
    flags = ("--trials", "2", "--choices", "3", "--sampling", "random", "--instances", "20")
    model = ask(tmp_path, *flags, "--checkpoint", "guess=guessing")
    (tmp_path / "examples.jsonl").write_bytes((tmp_path / "out/examples.jsonl").read_bytes())
    questions_asked = tmp_path / "questions.jsonl"
    write = ["confusion-questions", "--input", str(tmp_path / "rows.jsonl"), *flags]
    assert main([*write, "--output", str(questions_asked)]) == 0
    rows = list(map(json.loads, questions_asked.read_text().splitlines()))
    assert {row["probe"] for row in rows} == {"original", *(p for p in model.frame["probe"] if p)}
    for row in rows:
        question = ChoiceQuestion(row["id"], row["prompt"], tuple(row["choices"]), 0)
        row["scores"] = [float(np.float32(score)) for score in guessing(question)]
    scored = tmp_path / "scored.jsonl"
    scored.write_text("".join(json.dumps(row) + "\n" for row in rows))
    models["guessing"].asked.clear()
    for path in (scored, tmp_path / "examples.jsonl"):
        found = ask(tmp_path, *flags, "--predictions", f"guess={path}")
        assert list(found.frame["measure"]) == list(model.frame["measure"])
        for end in ("value", "low", "high", "n"):
            np.testing.assert_allclose(found.frame[end], model.frame[end], rtol=1e-9, atol=1e-12)
        assert not models["guessing"].asked
    beside = ask(tmp_path, *flags, "--checkpoint", "know=knowing", "--predictions", f"guess={scored}")
    assert beside("accuracy", checkpoint="guess", probe="original") == model(
        "accuracy", checkpoint="guess", probe="original"
    )
    scored.write_text("".join(json.dumps(row) + "\n" for row in rows[:-1]))
    command_line = command(tmp_path, *flags, "--predictions", f"guess={scored}")
    assert "1 of 20 questions are not among the predictions" in told(capsys, *command_line)
    assert "--encoder" in told(capsys, *command_line, "--sampling", "heuristic")
    scored.write_text(json.dumps(rows[0] | {"scores": [1.0]}) + "\n")
    assert "line 1: expected 3 finite numbers as 'scores'" in told(capsys, *command_line)
    assert "--predictions" in told(capsys, *command(tmp_path, *flags))


def test_trials_of_every_number_of_choices_ask_the_same_questions() -> None:
    plan = Plan(("choice_paralysis",), 2, 0, False, (3, 5), ("random",), "prompts", 7)
    _, *found = fixed_trials(questions(), plan)
    assert [(trial.n_choices, trial.number) for trial in found] == [(3, 0), (3, 1), (5, 0), (5, 1)]
    assert found[0].targets == found[2].targets != found[1].targets
