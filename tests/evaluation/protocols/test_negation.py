"""`python -m evaluation negation`: shares against rows counted by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from data_modules.encoding.windows import Encoding
from data_modules.schema import QAExample
from data_modules.tasks.condaqa import read_pairs
from evaluation.answering.checkpoint import QuestionCheckpoint
from evaluation.answering.interface import Asking
from models.backbones import Backbone
from models.checkpoint import heads_class, start
from tests.evaluation.cells import Cells
from tests.evaluation.checkpoints import evaluate, examples_of, save_ckpt, save_model, told
from tests.evaluation.fake_answerer import install, right

# The pair's answers, the kind of change, and what is said to either story.
PAIRS = {
    "a": ("yes", "no", "scope", "yes", "no"),  # both right
    "b": ("yes", "no", "scope", "Yes.", "yes"),  # the original only
    "c": ("no", "yes", "affirmative", "the red car", "yes"),  # the other only
    "d": ("no", "yes", "affirmative", "no", "!timed out"),  # counted apart
    "e": ("yes", "no", "", "unknown", "yes"),  # neither
}


def answer_of(example: QAExample) -> str:
    name, story = example.context.split()
    return PAIRS[name][3 + (story == "mod")]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    rows = [
        {"id": name, "dataset": "coqa" if name in "ab" else "hotpotqa", "edit": edit}
        | {"question": "Was it?", "history": [["Who?", "Tom"]]}
        | {"story_org": f"{name} org", "story_mod": f"{name} mod", "answer_org": org, "answer_mod": mod}
        for name, (org, mod, edit, *_) in PAIRS.items()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def save_typed(path: Path, architecture: str, heads: str) -> Path:
    """A checkpoint of random weights with heads for yes, no and unknown."""
    torch.manual_seed(3)
    sizes = {"d_model": 32, "d_inner": 64} if architecture == "xlnet" else {"hidden_size": 32}
    config = {"vocab_size": 512, **sizes}
    backbone = Backbone(architecture=architecture, checkpoint="random", config=config)  # type: ignore[arg-type]
    return save_model(path, start(backbone, heads_class(heads)), Encoding())


def run(output: Path, pairs: Path, *checkpoints: str) -> Cells:
    return evaluate(output, "negation", "--pairs", pairs, "--checkpoint", *checkpoints)


def test_shares_are_those_of_the_rows(pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {"one": answer_of, "two": right, "three": lambda _: "No"})
    cells = run(tmp_path / "r", pairs, "one", "best=two", "three")
    for story, measure, value in (
        *(("org", "accuracy", 2 / 4), ("org", "yes", 2 / 4), ("org", "no", 0), ("org", "other", 2 / 4)),
        *(("mod", "accuracy", 2 / 4), ("mod", "yes", 3 / 4), ("mod", "no", 1 / 4), ("mod", "other", 0)),
        ("comb", "accuracy", 1 / 4),
    ):
        row = cells.row(measure, checkpoint="one", story=story)
        assert (row["value"], row["n"]) == (pytest.approx(value), 4)
    row = cells.row("failed", checkpoint="one", story="comb")
    assert (row["value"], row["n"]) == (1 / 5, 5)
    comb = {"measure": "accuracy", "checkpoint": "one", "story": "comb"}
    assert (cells(edit="scope", **comb), cells.n(edit="affirmative", **comb)) == (0.5, 1)
    assert cells.n(edit="other", **comb) == 1
    assert [cells.n(data=data, **comb) for data in ("coqa", "hotpotqa")] == [2, 2]
    for name, shares in (("best", (1, 1, 1)), ("three", (0.4, 0.6, 0))):
        assert tuple(cells("accuracy", checkpoint=name, story=s) for s in ("org", "mod", "comb")) == shares
    rows = {row["id"]: row for row in examples_of(tmp_path / "r") if row["checkpoint"] == "one"}
    assert list(rows) == list(PAIRS)
    assert [rows[name]["right"] for name in "abce"] == [True, False, False, False]
    assert [rows[name]["right_org"] for name in "abce"] == [True, True, False, False]
    assert rows["d"]["failure"] == "timed out"
    assert "right" not in rows["d"]


def test_zeros_of_a_model_that_never_says_yes_or_no_are_put_into_words(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, {"spans": lambda _: "the red car", "best": right})
    sentence = "spans: 0 of 10 predictions were yes or no: this model was not trained on such questions."
    run(tmp_path / "both", pairs, "spans", "best")
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(
        "best, of a story and its negation: both right (comb) 100 % (95 % interval 100 to 100"
    )
    assert sentence in last
    assert (tmp_path / "both" / "negation.png").exists()
    run(tmp_path / "one", pairs, "spans")
    assert capsys.readouterr().out.splitlines()[-1].startswith(sentence)
    assert not (tmp_path / "one" / "negation.png").exists()  # a chart of nothing


def test_history_goes_along(pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = install(monkeypatch, {"one": right})["one"]
    run(tmp_path / "r", pairs, "one")
    assert {turn.answer for example in one.asked for turn in example.history} == {"Tom"}
    assert len({example.id for example in one.asked}) == 2 * len(PAIRS)


@pytest.mark.parametrize(("architecture", "heads"), [("bert", "rationale"), ("xlnet", "xlnet")])
def test_a_checkpoint_with_answer_heads(architecture: str, heads: str, pairs: Path, tmp_path: Path) -> None:
    """Each prediction stands beside its own question."""
    torch.manual_seed(3)
    sizes = {"d_model": 32, "d_inner": 64} if architecture == "xlnet" else {"hidden_size": 32}
    config = {"vocab_size": 512, **sizes}
    backbone = Backbone(architecture=architecture, checkpoint="random", config=config)  # type: ignore[arg-type]
    path = save_model(tmp_path / "typed.ckpt", start(backbone, heads_class(heads)), Encoding())
    cells = run(tmp_path / "r", pairs, str(path), "--batch-size", "3")
    assert cells.n("accuracy", checkpoint="typed", story="comb") == len(PAIRS)
    model = QuestionCheckpoint(str(path), Asking(device="cpu"))
    for row, pair in zip(examples_of(tmp_path / "r"), read_pairs(pairs).pairs, strict=True):
        for side, example in zip(("org", "mod"), pair.examples(), strict=True):
            assert [answer.text for answer in model.answers([example])] == [row[f"prediction_{side}"]]


def test_a_model_without_yes_and_no_costs_one_line(
    pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spans = save_ckpt(tmp_path / "spans.ckpt")
    for protocol, stimuli in (("negation", ("--pairs", pairs)), ("predicate-argument", ())):
        error = told(capsys, protocol, "--checkpoint", spans, *stimuli, "--output", tmp_path / "r")
        assert "spans.ckpt" in error
    assert not (tmp_path / "r").exists()


def test_condaqa_itself(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told from its content; kinds of change are reported."""
    install(monkeypatch, {"one": right})
    cells = run(tmp_path / "r", shared / "data" / "condaqa" / "dev.jsonl", "one")
    row = cells.row("accuracy", checkpoint="one", story="comb")
    assert (row["value"], row["n"]) == (1, 323)
    edits = (cells.n("accuracy", checkpoint="one", story="comb", edit=e) for e in ("scope", "affirmative"))
    assert sum(edits) == 323
    about = json.loads((tmp_path / "r" / "report.json").read_text())["about"]
    assert about["left_out"]["paraphrases"] == 282
