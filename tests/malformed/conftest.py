from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.data_modules.fixtures import tiny_language_models
from tests.evaluation.checkpoints import save_ckpt, save_groups, save_questions
from tests.malformed.documents import GIVEN
from tests.malformed.outcome import everything_in, outcome, refused


@pytest.fixture(scope="session")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good files of every kind, two checkpoints, and a language model of a few words."""
    folder = tmp_path_factory.mktemp("malformed") / "given"
    shutil.copytree(GIVEN, folder)
    save_ckpt(folder / "bert.ckpt")
    save_ckpt(folder / "roberta.ckpt", "roberta")
    save_groups(folder / "groups.json")
    save_questions(folder / "questions.json")
    tiny_language_models.save(folder / "model", "gpt2")
    return folder


@pytest.fixture
def refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., None]:
    """Run a command that must be refused in one line with these words, and leave the test's folder alone."""

    def check(main: Any, arguments: list[str], *words: str) -> None:
        before = everything_in(tmp_path)
        refused(outcome(main, arguments, capsys), *words)
        assert everything_in(tmp_path) == before

    return check
