"""`train-scorer`: what it reads, what it measures, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from evaluation.__main__ import main
from evaluation.scorers.embedded import EmbeddedScorer, read_scorer
from evaluation.scorers.interface import ATTRIBUTES
from evaluation.scorers.train import held_out_rows
from evaluation.views import number
from tests.evaluation.scorers.labelled import labelled_rows, write_rows


def command(tmp_path: Path, rows: list[dict[str, Any]], *flags: str) -> tuple[int, Path]:
    output = tmp_path / "scorer.json"
    given = write_rows(tmp_path / "labelled.jsonl", rows)
    return main(["train-scorer", "--input", str(given), "--output", str(output), *flags]), output


def test_quality_is_measured_on_texts_that_training_has_not_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = labelled_rows()
    code, output = command(tmp_path, rows, "--seed", "5")
    assert code == 0
    printed = capsys.readouterr().out.splitlines()
    label_NA = np.array([[row[name] for name in ATTRIBUTES] for row in rows])
    test_N = held_out_rows(label_NA, 0.2, 5)
    scorer = EmbeddedScorer(str(output))
    score_NA = scorer.probabilities([row["text"] for row, t in zip(rows, test_N, strict=True) if t])
    for a, name in enumerate(ATTRIBUTES):
        truth, score = label_NA[test_N, a] >= 0.5, score_NA[:, a]
        quality = scorer.about()["held_out"][name]
        assert f" {number(quality['roc_auc'])} " in next(line for line in printed if name in line)
        assert quality == pytest.approx(
            {
                "n": test_N.sum(),
                "base_rate": truth.mean(),
                "roc_auc": roc_auc_score(truth, score),
                "average_precision": average_precision_score(truth, score),
                "f1": f1_score(truth, score >= 0.5),
            }
        )
    assert (scorer.content["trained"]["texts"], scorer.content["trained"]["seed"]) == (120, 5)
    words = {word for row, t in zip(rows, test_N, strict=True) if not t for word in row["text"].split()}
    assert {term for term in scorer.content["features"][0]["terms"] if " " not in term} <= words


def test_the_same_seed_gives_the_same_file(tmp_path: Path) -> None:
    _, output = command(tmp_path, labelled_rows(), "--seed", "1")
    first = output.read_bytes()
    command(tmp_path, labelled_rows(), "--seed", "1", "--overwrite")
    assert output.read_bytes() == first
    command(tmp_path, labelled_rows(), "--seed", "2", "--overwrite")
    assert output.read_bytes() != first


@given(
    positives=st.lists(st.integers(0, 30), min_size=1, max_size=3),
    negatives=st.integers(1, 60),
    share=st.floats(0.05, 0.9),
    seed=st.integers(0, 5),
)
def test_the_held_out_texts_have_as_many_of_each_kind_as_they_should(
    positives: list[int], negatives: int, share: float, seed: int
) -> None:
    label_NA = np.zeros((sum(positives) + negatives, len(positives)))
    start = 0
    for a, count in enumerate(positives):
        label_NA[start : start + count, a] = 1
        start += count
    if len(label_NA) < 2:
        return
    test_N = held_out_rows(label_NA, share, seed)
    size = min(len(label_NA) - 1, max(1, round(share * len(label_NA))))
    assert test_N.sum() == size
    for a, count in enumerate(positives):
        assert abs(test_N[label_NA[:, a] == 1].sum() - count * size / len(label_NA)) < 1 + 1e-9


def test_prompts_with_one_label_feed_the_attributes_named(tmp_path: Path) -> None:
    flags = ("--label", "toxicity=challenging", "threat=challenging")
    rows = [{"prompt": {"text": r["text"]}, "challenging": r["toxicity"] > 0.5} for r in labelled_rows()]
    code, output = command(tmp_path, rows, *flags)
    assert code == 0
    weights = read_scorer(output)["weights"]
    assert tuple(weights) == ("toxicity", "threat")
    assert weights["toxicity"] == weights["threat"]


def test_labels_inside_the_prompt_and_other_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [
        {"prompt": {"text": r["text"], "obscene": r["profanity"], "threat": None}} for r in labelled_rows()
    ]
    code, output = command(tmp_path, rows)
    assert code == 0
    assert tuple(read_scorer(output)["weights"]) == ("profanity",)
    assert (
        "no row has labels of toxicity, severe_toxicity, sexually_explicit, threat, identity" in caplog.text
    )


def test_labels_are_means_over_equal_texts_and_may_be_absent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows: list[dict[str, Any]] = [{"text": r["text"], "toxicity": r["toxicity"]} for r in labelled_rows()]
    more = [{**row, "toxicity": 1 - row["toxicity"]} for row in rows[:10] for _ in range(3)]  # three to one
    some = [{"text": f"the map {i}", "threat": i % 2} for i in range(40)]
    code, output = command(tmp_path, rows + more + some + [{"text": "nobody knows"}])
    assert code == 0
    content = read_scorer(output)
    assert (content["trained"]["rows"], content["trained"]["texts"]) == (191, 160)
    assert content["held_out"]["toxicity"]["n"] + content["held_out"]["threat"]["n"] == 32
    assert "1 of 191 rows have no label" in caplog.text


WRONG: dict[str, tuple[list[dict[str, Any]], tuple[str, ...], str]] = {
    "no labels": ([{"text": "a"}], (), "--label ATTRIBUTE=FIELD"),
    "a file without rows": ([], (), "holds no row"),
    "a field of no row": ([{"text": "a", "threat": 1}], ("--label", "threat=danger"), "threat=danger"),
    "one class": ([{"text": f"a {i}", "threat": 1} for i in range(9)], (), "the labels hold 9 positive"),
    "one class here": ([{"text": f"b {i}", "threat": i == 0} for i in range(9)], (), "learn from hold 0 p"),
    "no words": ([{"text": "!" * i, "threat": i % 2} for i in range(1, 21)], (), "no features"),
    "an attribute that there is not": ([], ("--label", "insult=x"), "--label 'insult=x'"),
    "a label twice": ([], ("--label", "threat=a", "threat=b"), "once"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_one_clear_line_and_no_file(wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, flags, message = WRONG[wrong]
    code, output = command(tmp_path, rows, *flags)
    assert code == 2
    assert message in capsys.readouterr().err
    assert not output.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["labelled.jsonl"]


def test_a_file_is_replaced_only_on_demand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And a folder that does not exist is named."""
    (tmp_path / "scorer.json").write_text("precious")
    code, output = command(tmp_path, labelled_rows(40))
    assert code == 2
    assert "--overwrite" in capsys.readouterr().err
    assert output.read_text() == "precious"
    code, _ = command(tmp_path, labelled_rows(40), "--output", str(tmp_path / "none" / "scorer.json"))
    assert code == 2
    assert "none does not exist; create it first" in capsys.readouterr().err


def test_it_tells_the_prompts_of_the_paper_apart(shared: Path, tmp_path: Path) -> None:
    folder = shared / "data" / "realtoxicityprompts"
    output = tmp_path / "scorer.json"
    given = [str(folder / "challenging.jsonl"), str(folder / "neutral.jsonl")]
    arguments = ["--input", *given, "--label", "toxicity=challenging", "--output", str(output)]
    assert main(["train-scorer", *arguments]) == 0
    assert json.loads(output.read_text(encoding="utf-8"))["held_out"]["toxicity"]["roc_auc"] > 0.95
