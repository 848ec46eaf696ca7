"""Runs of debiasing consistency on a tiny model, with a scorer of words."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from evaluation.__main__ import main
from evaluation.scorers.interface import ScoreFailure, Scores, zeros
from tests.data_modules.tiny_language_models import save

WORDS = {"toxicity": "red", "threat": "dog", "profanity": "is"}
"""What raises the score of an attribute: a half for each such word."""
PROMPTS = {
    "adversarial": [
        "the red dog",
        "the cat ran under the dog",
        "who is not red",
        "a blue dog sat on the mat",
    ],
    "neutral": ["the cat sat", "a", "where is the mat ?"],
}
SPECIFICATIONS = {
    "self": {
        "template": "the {} .",
        "separator": " ",
        "original": ["red dog", "blue cat"],
        "opposite": ["cat sat on", "mat"],
        "nonsense": [["ran ran", "? ?"], ["who who", ". a"]],
    },
    "instructive": {
        "template": "is {} :",
        "separator": " ",
        "original": "not red",
        "opposite": "red",
        "nonsense": ["ran", "? mat"],
    },
}
NEW = 4


class WordScorer:
    """Scores by words; what it was asked stands in `asked`."""

    name, version = "words", "1"
    attributes = tuple(WORDS)

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.failing: Callable[[str], bool] = lambda text: False
        self.dies_after = math.inf

    def about(self) -> dict[str, Any]:
        quality = {"toxicity": {"n": 12, "roc_auc": 0.97224}}
        return {
            "name": self.name,
            "version": self.version,
            "attributes": self.attributes,
            "held_out": quality,
        }

    def score(self, texts: Sequence[str]) -> Iterator[Scores | ScoreFailure]:
        for text in texts:
            if len(self.asked) >= self.dies_after:
                raise KeyboardInterrupt
            self.asked.append(text)
            if self.failing(text):
                yield ScoreFailure("throttled")
            elif not text:
                yield zeros(self.attributes)
            else:
                words = text.split()
                yield {a: min(1.0, 0.5 * words.count(word)) for a, word in WORDS.items()}


@pytest.fixture(name="scorer")
def made_scorer(monkeypatch: pytest.MonkeyPatch) -> WordScorer:
    found = WordScorer()
    monkeypatch.setattr("evaluation.protocols.consistency.command.open_scorer", lambda spec, args: found)
    return found


@pytest.fixture(name="folder", scope="module")
def made_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("model"), "gpt2", padded=False, seed=4)


@pytest.fixture(name="files")
def made_files(tmp_path: Path) -> dict[str, Path]:
    found = {"specifications": tmp_path / "specifications.json"}
    found["specifications"].write_text(json.dumps(SPECIFICATIONS))
    for domain, texts in PROMPTS.items():
        rows = [{"prompt": {"text": text}, "challenging": domain == "adversarial"} for text in texts]
        found[domain] = tmp_path / f"{domain}.jsonl"
        found[domain].write_text("".join(json.dumps(row) + "\n" for row in rows))
    return found


def arguments(folder: str | Path, files: dict[str, Path], output: Path, *more: str) -> list[str]:
    model = folder if isinstance(folder, str) else f"hf:{folder}"
    flags = [part for name, path in files.items() for part in (f"--{name}", str(path))]
    end = ["--new-tokens", str(NEW), "--nonsense-groups", "2", "--scorer", "words", "--device", "cpu"]
    method = [] if "--method" in more else ["--method", "self"]
    return ["consistency", "--model", model, *flags, *end, *method, *more, "--output", str(output)]


def report_of(folder: str | Path, files: dict[str, Path], output: Path, *more: str) -> dict[str, Any]:
    assert main(arguments(folder, files, output, *more)) == 0
    found = json.loads((output / "report.json").read_text())
    assert isinstance(found, dict)
    return found


def long_model(folder: Path, positions: int = 40) -> Path:
    """The tiny model with more positions."""
    save(folder, "gpt2")
    model = AutoModelForCausalLM.from_pretrained(folder)
    torch.manual_seed(0)
    model.config.n_positions = positions
    model.transformer.wpe = torch.nn.Embedding(positions, 16)
    model.save_pretrained(folder)
    return folder
