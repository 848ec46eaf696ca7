"""`python -m evaluation negation`: shares against rows counted by hand."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from data_modules.encoding.tokenizers import tokenizer_files
from data_modules.encoding.windows import Encoding
from data_modules.schema import QAExample
from data_modules.stories.questions import vocabulary
from data_modules.stories.word_tokenizer import build_tokenizer
from data_modules.tasks.condaqa import read_pairs
from evaluation.answering.predictor import Predictor
from models.backbones import Backbone
from models.checkpoint import HEADS, KEY, describe, start
from models.heads.answers import AnswerHeadsName
from tests.evaluation.checkpoints import examples_of, numbers, report_of, save_ckpt, told
from tests.evaluation.fake_answerer import install, right

# Story -> what is said; the pair's answers; the kind of change.
PAIRS = [
    ("a", "yes", "no", "scope"),
    ("b", "yes", "no", "scope"),
    ("c", "no", "yes", "affirmative"),
    ("d", "no", "yes", "affirmative"),
    ("e", "yes", "no", ""),
]
SAID = {
    "a org": "yes",
    "a mod": "no",  # both right
    "b org": "Yes.",
    "b mod": "yes",  # the original only
    "c org": "the red car",
    "c mod": "yes",  # the other only
    "d org": "no",
    "d mod": "!timed out",  # counted apart
    "e org": "unknown",
    "e mod": "yes",  # neither
}


def story_of(example: QAExample) -> str:
    return SAID[example.context]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    rows = [
        {
            "id": name,
            "dataset": "coqa" if name in "ab" else "hotpotqa",
            "question": "Was it?",
            "history": [["Who?", "Tom"]],
            "story_org": f"{name} org",
            "story_mod": f"{name} mod",
            "answer_org": org,
            "answer_mod": mod,
            "edit": edit,
        }
        for name, org, mod, edit in PAIRS
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def save_typed(path: Path, architecture: str, heads: AnswerHeadsName) -> Path:
    """A checkpoint of random weights with heads for yes, no and unknown."""
    torch.manual_seed(3)
    sizes = {"d_model": 32, "d_inner": 64} if architecture == "xlnet" else {"hidden_size": 32}
    config = {"vocab_size": 512, **sizes}
    backbone = Backbone(architecture=architecture, checkpoint="random", config=config)  # type: ignore[arg-type]
    model = start(backbone, HEADS[heads])
    files = tokenizer_files(build_tokenizer(architecture, vocabulary()))  # type: ignore[arg-type]
    weights = {f"model.{key}": value for key, value in model.state_dict().items()}
    described = describe(model, files, asdict(Encoding()))
    torch.save({"state_dict": weights, "global_step": 1, KEY: described}, path)
    return path


def asked(pairs: Path, *checkpoints: str) -> list[str]:
    return ["negation", "--checkpoint", *checkpoints, "--pairs", str(pairs)]


@pytest.fixture
def report(pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    install(monkeypatch, {"one": story_of})
    return report_of(tmp_path / "r", *asked(pairs, "one"))


def test_shares_are_those_of_the_rows(report: dict[str, Any]) -> None:
    expected = {
        "org_acc": 2 / 4,  # a, b
        "mod_acc": 2 / 4,  # a, c
        "comb_acc": 1 / 4,
        "org/yes": 2 / 4,
        "org/no": 0.0,
        "org/other": 2 / 4,
        "mod/yes": 3 / 4,
        "mod/no": 1 / 4,
        "mod/other": 0.0,
        "n": 4,
        "failures": 1,
    }
    assert {key: report[key] for key in expected} == pytest.approx(expected)


def test_kinds_of_change_and_data_sets_stand_apart(report: dict[str, Any]) -> None:
    assert (report["edit/scope/org_acc"], report["edit/scope/comb_acc"]) == (1.0, 0.5)
    assert (report["edit/affirmative/mod_acc"], report["edit/affirmative/n"]) == (1.0, 1)
    assert (report["edit/other/n"], report["edit/affirmative/failures"]) == (1, 1)
    assert (report["dataset/coqa/n"], report["dataset/hotpotqa/n"]) == (2, 2)


def test_an_example_is_one_pair_with_both_predictions(report: dict[str, Any], tmp_path: Path) -> None:
    rows = {row["id"]: row for row in examples_of(tmp_path / "r")}
    assert list(rows) == [name for name, *_ in PAIRS]
    assert [rows[name]["right"] for name in "abce"] == [True, False, False, False]
    assert [rows[name]["right_org"] for name in "abce"] == [True, True, False, False]
    assert rows["c"]["prediction_org"] == "the red car"
    assert rows["d"]["failure"] == "timed out"
    assert "right" not in rows["d"]


def test_the_page_says_what_counts(report: dict[str, Any], tmp_path: Path) -> None:
    text = (tmp_path / "r" / "report.md").read_text()
    for part in (
        "guessing gets 50 %, 50 % and 25 %",
        "5 pairs",
        "60.0 %",
        "1 timed out",
        "| one | 50.0 | 50.0 | 25.0 | 4 | 1 |",
    ):
        assert part in text
    assert (tmp_path / "r" / "negation.png").read_bytes().startswith(b"\x89PNG")


def test_checkpoints_side_by_side(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: dict[str, Any]
) -> None:
    install(monkeypatch, {"one": story_of, "two": right, "three": lambda _: "No"})
    several = report_of(tmp_path / "s", *asked(pairs, "one", "best=two", "three"))
    for key, value in numbers(report).items():
        assert several[f"one/{key}"] == value
    assert [several[f"best/{name}_acc"] for name in ("org", "mod", "comb")] == [1, 1, 1]
    assert [several[f"three/{name}_acc"] for name in ("org", "mod", "comb")] == [0.4, 0.6, 0]
    assert len(examples_of(tmp_path / "s")) == 3 * len(PAIRS)


def test_history_goes_along(pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = install(monkeypatch, {"one": right})["one"]
    report_of(tmp_path / "r", *asked(pairs, "one"))
    assert {turn.answer for example in one.asked for turn in example.history} == {"Tom"}
    assert len({example.id for example in one.asked}) == 2 * len(PAIRS)


@pytest.mark.parametrize(("architecture", "heads"), [("bert", "rationale"), ("xlnet", "xlnet")])
def test_a_checkpoint_with_answer_heads(
    architecture: str, heads: AnswerHeadsName, pairs: Path, tmp_path: Path
) -> None:
    """Its predictions are those of the predictor, each beside its own question."""
    path = save_typed(tmp_path / "typed.ckpt", architecture, heads)
    report = report_of(tmp_path / "r", *asked(pairs, str(path)), "--batch-size", "3")
    assert (report["n"], report["failures"]) == (len(PAIRS), 0)
    predictor = Predictor(str(path), device="cpu")
    for row, pair in zip(examples_of(tmp_path / "r"), read_pairs(pairs).pairs, strict=True):
        for side, example in zip(("org", "mod"), pair.examples(), strict=True):
            assert [said.text for said in predictor.said([example])] == [row[f"prediction_{side}"]]


def test_nothing_answered_is_no_number(pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {"one": lambda _: "!max requests reached"})
    report = report_of(tmp_path / "r", *asked(pairs, "one"))
    assert report["org_acc"] is None
    assert (report["n"], report["failures"]) == (0, 5)
    assert not math.isnan(report["n"])


def test_mistakes_cost_one_line(
    pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = save_ckpt(tmp_path / "spans.ckpt")
    message = told(capsys, *asked(pairs, str(spans)), "--output", tmp_path / "r")
    assert "spans.ckpt" in message
    assert "cannot say yes or no" in message
    install(monkeypatch, {"one": right})
    pairs.write_text(pairs.read_text() + "{}\n")
    assert "line 6" in told(capsys, *asked(pairs, "one"), "--output", tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_condaqa_itself(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told from its content; kinds of change are reported."""
    install(monkeypatch, {"one": right})
    report = report_of(tmp_path / "r", *asked(shared / "data" / "condaqa" / "dev.jsonl", "one"))
    assert (report["n"], report["comb_acc"]) == (323, 1.0)
    assert report["edit/scope/n"] + report["edit/affirmative/n"] == 323
    assert report["about"]["left_out"]["paraphrases"] == 282
