"""The confusion protocol with choosers whose numbers are known."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from interventune.data_modules.schema.questions import ChoiceQuestion, write_records
from interventune.evaluation.answering.interface import Answerer
from interventune.evaluation.protocols.confusion import command
from tests.evaluation.cells import Cells, evaluate, examples_of

Rule = Callable[[ChoiceQuestion], Sequence[float]]
PARALYSIS: dict[str, Any] = {"probe": "choice_paralysis"}


class FakeCheckpoint(Answerer):
    """In place of a checkpoint: logits by a rule, embeddings from the texts' letters."""

    path, identity = "fake", {"weights": "none"}

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def choice_logits(self, questions: Sequence[ChoiceQuestion], what: str = "") -> list[Any]:
        return [np.array(self.rule(question), dtype=np.float32) for question in questions]

    def embeddings(self, texts: Sequence[str], what: str = "") -> np.ndarray:
        count = np.array([[text.count(letter) + 0.01 for letter in "0123456789"] for text in texts])
        return np.asarray(count / np.linalg.norm(count, axis=1, keepdims=True), dtype=np.float32)


def number(text: str) -> float:
    """A number that a text always gets, standard normal."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return float(np.random.default_rng(seed).standard_normal())


RULES: dict[str, Rule] = {
    "guessing": lambda question: [number(question.prompt + text) for text in question.choices],
    # Answers what it is asked, and guesses where there is nothing to tell by.
    "knowing": lambda question: [
        5.0 * (f"right {question.prompt.removeprefix('prompt ')}." in text)
        + 0.1 * number(question.prompt + text)
        for text in question.choices
    ],
    # Reads no question: takes whatever is called right.
    "biased": lambda question: [3.0 * ("right" in text) for text in question.choices],
}
MODELS = {name: FakeCheckpoint(rule) for name, rule in RULES.items()}


def questions(count: int = 80, n: int = 3) -> list[ChoiceQuestion]:
    rng = np.random.default_rng(0)
    rows = []
    for i in range(count):
        choices = [f"wrong {i} {k}" for k in range(n)]
        label = int(rng.integers(n))
        choices[label] = f"right {i}."
        rows.append(ChoiceQuestion(f"q{i}", f"prompt {i}", tuple(choices), label, "toy"))
    return rows


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Cells]:
    """Runs the protocol with models by name, and gives its cells; the report is in `out`."""
    opened = "interventune.evaluation.protocol.open_answerer"
    monkeypatch.setattr(opened, lambda path, *_, **__: MODELS[path])
    monkeypatch.setattr(command, "kind_of", lambda _: "choice")

    def run(words: str, examples: Sequence[ChoiceQuestion] = ()) -> Cells:
        rows = tmp_path / "rows.jsonl"
        write_records(examples or questions(), rows)
        flags = f"--checkpoint {words} --input {rows}".split()
        return evaluate(tmp_path / "out", "confusion", *flags)

    return run


def test_three_models_whose_numbers_are_known(ask: Callable[..., Cells]) -> None:
    names, third = [*MODELS], pytest.approx(1 / 3, abs=0.09)  # of 240: 3 deviations
    cells = ask(f"{' '.join(names)} --trials 2 --choices 3 5", examples=questions(240))
    for probe in ("no_question", "wrong_question", "no_right_answer"):
        guess, know, bias = ({"checkpoint": name, "probe": probe} for name in names)
        pseudo = [cells("pseudo_accuracy", **place) for place in (guess, know, bias)]
        assert pseudo == [third, third, 1]
        assert cells("p", **guess) > 0.001
        assert cells("accuracy_before", **know) == 1
        # The knowing model is sure of originals alone, the biased one of all alike.
        assert (cells("acc_mixed", **know), cells("acc_mixed", **bias)) == (1, 0.5)
    gone = {"checkpoint": "knowing", "probe": "no_right_answer"}
    assert cells("anc_minus_rac", **gone) == pytest.approx(-1, abs=0.05)
    assert cells("anc_post_minus_sac", **gone) == pytest.approx(0, abs=0.02)
    for sampling in ("random", "heuristic"):
        cell = PARALYSIS | {"sampling": sampling, "n_choices": 5}
        assert cells("hits", checkpoint="guessing", **cell, k=1) == pytest.approx(1 / 5, abs=0.13)
        assert cells("hits", checkpoint="knowing", **cell, k=1) == 1
        # All choices look right to it, so the lowest slot wins: hits@k are those of a shuffled
        # slot.
        assert cells("hits", checkpoint="biased", **cell, k=2) == pytest.approx(2 / 5, abs=0.14)
        assert cells("paralysis", checkpoint="biased", **cell) > 0.6


def test_numbers_match_means_over_examples(ask: Callable[..., Cells], tmp_path: Path) -> None:
    cells = ask("guessing --trials 3 --choices 3 5")
    frame = pd.DataFrame(examples_of(tmp_path / "out")).set_index("index")
    assert len(frame) == 80 * (1 + 1 + 3 + 3) + 2 * 2 * 3 * 50
    pairs = zip(frame["confidences"], frame["label"], strict=True)
    frame["own"] = [confidences[label] for confidences, label in pairs]
    probes = {str(name): part for name, part in frame.groupby("probe")}
    wrong, cell = probes["wrong_question"], {"checkpoint": "guessing", "probe": "wrong_question"}
    shares = (wrong["pick"] == wrong["label"]).groupby(wrong["trial"]).mean()
    assert cells("pseudo_accuracy", **cell) == pytest.approx(shares.mean())
    assert cells("pseudo_accuracy_trial_se", **cell) == pytest.approx(shares.std() / 3**0.5)
    difference = probes["no_question"]["own"] - wrong["own"].groupby("index").mean()
    assert cells("confidence_difference", **cell) == pytest.approx(difference.mean())
    assert cells("p_difference", **cell) == pytest.approx(stats.ttest_1samp(difference, 0).pvalue)
    after = wrong["own"].groupby("index").mean()
    test = stats.ttest_rel(after, probes["original"]["own"].reindex(after.index))
    assert cells("p_change", **cell) == pytest.approx(test.pvalue)
    report = (tmp_path / "out" / "report.md").read_text()
    first = fmean(question.label == 0 for question in questions())
    assert f"The first choice is right in {100 * first:.1f} %. Right choices have 2.00 wo" in report
    assert "50.0 % of them in the prompt; wrong ones 3.00, 33." in report
    five = probes["choice_paralysis"].query("sampling == 'random' and n_choices == '5'")
    assert set(five["choices"].map(len)) == {5}
    lost = probes["original"]["own"].reindex(five.index) - five["own"]
    cell = {"checkpoint": "guessing", **PARALYSIS, "sampling": "random", "n_choices": "5"}
    row = cells.row("paralysis", **cell)
    assert (row["value"], row["n"]) == (pytest.approx(lost.mean()), 150)
    test = stats.ttest_1samp(lost.groupby("index").mean(), 0)
    assert cells("p_change", **cell) == pytest.approx(test.pvalue)
    whole = cells("accuracy", checkpoint="guessing", probe="original")
    hits = [cells("hits", **cell, k=k) for k in range(1, 6)]
    reached = [k for k, share in enumerate(hits, 1) if share >= whole]
    assert cells("matching_k", **cell) == reached[0]
    for figure in ("differences", "paralysis", "hits_random", "hits_heuristic"):
        assert (tmp_path / "out" / f"{figure}.png").exists()


def test_heuristic_choices_are_the_most_similar(ask: Callable[..., Cells], tmp_path: Path) -> None:
    ask("guessing --probes choice_paralysis --sampling heuristic --choices 4 --trials 1")
    vectors = MODELS["guessing"].embeddings([example.prompt for example in questions()])
    rows = [row for row in examples_of(tmp_path / "out") if row["probe"] == "choice_paralysis"]
    assert {row["sampling"] for row in rows} == {"heuristic"}
    for row in rows:
        similar = vectors @ vectors[row["index"]]
        similar[row["index"]] = -1
        assert sorted(similar[row["donors"]]) == pytest.approx(sorted(similar)[-3:])


def test_instances_are_drawn_for_every_probe(ask: Callable[..., Cells], tmp_path: Path) -> None:
    """What the paper does with UnifiedQA: three times fifty questions, for every probe."""
    cells = ask("knowing --instances 50 --trials 3 --choices 5 --sampling random")
    drawn: dict[tuple[str, int], list[int]] = {}
    for row in examples_of(tmp_path / "out"):
        drawn.setdefault((row["probe"], row["trial"]), []).append(row["index"])
    assert len(drawn) == 5 * 3
    assert all(indices == drawn["original", trial] for (_, trial), indices in drawn.items())
    assert len(set(map(tuple, drawn.values()))) == 3
    assert cells.n("accuracy", checkpoint="knowing", probe="original") == 150
