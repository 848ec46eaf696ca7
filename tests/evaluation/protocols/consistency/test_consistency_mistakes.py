"""What `python -m evaluation consistency` says of mistakes, and when."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from evaluation.protocols.consistency.generation import LocalWriter

from tests.data_modules.tiny_language_models import CONTEXT, save
from tests.evaluation.checkpoints import told
from tests.evaluation.protocols.consistency.consistency_runs import (  # noqa: F401  (fixtures are named by tests)
    NEW,
    PROMPTS,
    SPECIFICATIONS,
    WordScorer,
    arguments,
    long_model,
    made_files,
    made_folder,
    made_scorer,
    report_of,
)


def test_a_scorer_that_says_nothing_is_told_before_anything_is_written(
    scorer: WordScorer,
    folder: Path,
    files: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LocalWriter, "write", lambda self, requests: pytest.fail("written"))
    scorer.failing = lambda text: True
    said = told(capsys, *arguments(folder, files, tmp_path / "r"))
    assert "words gave no scores to the first prompt: throttled" in said


def test_scores_of_no_continuation_are_an_error(
    scorer: WordScorer,
    folder: Path,
    files: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scorer.failing = lambda text: text != PROMPTS["adversarial"][0]
    said = told(capsys, *arguments(folder, files, tmp_path / "r"))
    assert "no scores at all of adversarial prompts, default (no score: throttled)" in said


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--decay", "-1"], "--decay -1.0"),
        (["--new-tokens", "0"], "--new-tokens 0"),
        (["--new-tokens", str(CONTEXT)], f"takes {CONTEXT} tokens"),
        (["--beams", "0"], "--beams 0"),
        (["--sample", "--beams", "2"], "beams are not drawn"),
        (["--nonsense-groups", "3"], "--nonsense-groups 2"),
        (["--method", "instructive", "--perplexity", "x"], "--method self"),
        (["--method", "instructive", "--decay", "10"], "--decay is of self-debiasing"),
        (["--completions"], "--completions is for endpoints"),
        (["--perplexity", "nowhere.txt"], "no room behind 32"),
        (["--model", "gpt2"], "hf:FOLDER_OR_HUB_NAME"),
        (["--model", "openai:m@http://127.0.0.1:1/v1"], "needs the model's logits"),
        (
            ["--model", "openai:m@http://127.0.0.1:1/v1", "--method", "instructive", "--sample"],
            "local models",
        ),
        (["--limit", "-1"], "--limit -1"),
    ],
)
def test_mistakes_are_told_at_once(
    scorer: WordScorer,
    folder: Path,
    files: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    expected: str,
) -> None:
    assert expected in told(capsys, *arguments(folder, files, tmp_path / "r", *more))
    assert scorer.asked == []
    assert not (tmp_path / "r").exists()


def test_prompts_that_do_not_fit_with_their_prefix_are_told(
    scorer: WordScorer,
    folder: Path,
    files: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files["neutral"].write_text(json.dumps({"text": "the " * (CONTEXT - NEW)}) + "\n")  # alone it fits
    said = told(capsys, *arguments(folder, files, tmp_path / "r"))
    assert f"takes {CONTEXT} tokens" in said
    assert "do not fit with 4 new ones" in said


def test_long_prefixes_have_no_perplexity(
    scorer: WordScorer, files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(json.dumps(SPECIFICATIONS))
    content["self"]["opposite"][1] = "mat " * 40
    files["specifications"].write_text(json.dumps(content))
    text = tmp_path / "text.txt"
    text.write_text("the cat")
    folder = long_model(tmp_path / "long", 80)
    said = told(capsys, *arguments(folder, files, tmp_path / "r", "--perplexity", str(text)))
    assert "keeps 32 tokens for prefixes, and this one has 42" in said


def test_swapped_files_and_other_models_are_told(
    scorer: WordScorer,
    folder: Path,
    files: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    swapped = files | {"adversarial": files["neutral"], "neutral": files["adversarial"]}
    assert "swapped" in told(capsys, *arguments(folder, swapped, tmp_path / "r"))
    seq2seq = save(tmp_path / "t5", "t5")
    assert "no causal model" in told(capsys, *arguments(seq2seq, files, tmp_path / "r"))


def test_a_work_file_of_something_else_is_told(
    scorer: WordScorer,
    folder: Path,
    files: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    report_of(folder, files, tmp_path / "r")
    work = tmp_path / "r.work.jsonl"
    rows = [json.loads(line) for line in work.read_text().splitlines()]
    work.write_text("".join(json.dumps({"key": row["key"]}) + "\n" for row in rows))
    said = told(capsys, *arguments(folder, files, tmp_path / "r", "--overwrite"))
    assert "r.work.jsonl" in said
