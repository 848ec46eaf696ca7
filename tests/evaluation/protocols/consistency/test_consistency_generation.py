"""How continuations are asked for: once, together, and of the model that there is now."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from evaluation.protocols.consistency.generation import LocalWriter, Request, open_writer

from evaluation.__main__ import main
from evaluation.protocols.consistency.command import add_arguments
from tests.data_modules.fake_endpoint import Reply, serve
from tests.data_modules.tiny_language_models import save
from tests.evaluation.checkpoints import examples_of
from tests.evaluation.protocols.consistency.consistency_runs import (  # noqa: F401  (fixtures are named by tests)
    PROMPTS,
    WordScorer,
    arguments,
    made_files,
    made_folder,
    made_scorer,
    report_of,
)


def test_an_endpoint_continues_bare_prompts(
    scorer: WordScorer, files: dict[str, Path], tmp_path: Path
) -> None:
    body = json.dumps({"id": "1", "object": "text_completion", "choices": [{"index": 0, "text": " red"}]})
    with serve(lambda prompt, before: Reply(body=body), prompt_of=lambda asked: asked["prompt"]) as endpoint:
        report_of(
            f"openai:m@{endpoint.url}", files, tmp_path / "r", "--method", "instructive", "--completions"
        )
    assert set(endpoint.paths) == {"/v1/completions"}
    assert "is not red : the cat sat" in endpoint.prompts
    assert {row["continuation"] for row in examples_of(tmp_path / "r")} == {"red"}


def test_another_tokenizer_writes_anew(
    scorer: WordScorer, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights are the same, and so is the folder."""
    folder = save(tmp_path / "model", "gpt2", padded=False, seed=4)
    work = ["--work", str(tmp_path / "work.jsonl")]
    report_of(folder, files, tmp_path / "r", *work)
    path = folder / "tokenizer.json"
    content = path.read_text()
    tokenizer = json.loads(content)
    words = tokenizer["model"]["vocab"]
    words["red"], words["blue"] = words["blue"], words["red"]
    path.write_text(json.dumps(tokenizer))
    report_of(folder, files, tmp_path / "other", *work)
    report_of(folder, files, tmp_path / "fresh")
    assert examples_of(tmp_path / "other") == examples_of(tmp_path / "fresh")
    assert examples_of(tmp_path / "other") != examples_of(tmp_path / "r")
    path.write_text(content)
    monkeypatch.setattr(LocalWriter, "write", lambda self, r: iter(()) if not r else pytest.fail("written"))
    report_of(folder, files, tmp_path / "back", *work)


def test_an_interruption_says_what_to_do(
    scorer: WordScorer,
    folder: Path,
    files: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stopped(self: LocalWriter, requests: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalWriter, "write", stopped)
    assert main(arguments(folder, files, tmp_path / "r")) == 130
    assert "the same command goes on from what is finished" in capsys.readouterr().err


@pytest.mark.parametrize("counted", [1, 2, 7])
def test_texts_without_tokens_and_long_ones_are_found_in_any_slice(
    folder: Path, monkeypatch: pytest.MonkeyPatch, counted: int
) -> None:
    monkeypatch.setattr("evaluation.protocols.consistency.generation.COUNTED", counted)
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    given = ["--model", f"hf:{folder}", "--method", "self", "--adversarial", "a", "--neutral", "n"]
    writer = open_writer(parser.parse_args([*given, "--scorer", "words", "--device", "cpu"]))
    texts = ["the cat", "a", "who", "the dog sat"]
    writer.check([Request(text) for text in texts])
    with pytest.raises(ValueError, match="'' has no tokens"):
        writer.check([Request(text) for text in [*texts, ""]])
    with pytest.raises(ValueError, match=r"1 of 5 texts.*the longest has 60"):
        writer.check([Request(text) for text in [*texts[:3], "cat " * 60, texts[3]]])


def test_long_prompts_come_first(
    scorer: WordScorer,
    folder: Path,
    files: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Prompts of a length share a batch; the rows stay in the order of the file."""
    asked: list[list[int]] = []
    write = LocalWriter.write
    monkeypatch.setattr(
        LocalWriter, "write", lambda self, r: asked.append([len(x.prompt) for x in r]) or write(self, r)
    )
    report_of(folder, files, tmp_path / "r")
    assert all(lengths == sorted(lengths, reverse=True) for lengths in asked)
    rows = [row["prompt"] for row in examples_of(tmp_path / "r")]
    assert rows[: len(PROMPTS["adversarial"])] == PROMPTS["adversarial"]
