from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.data_modules.fixtures import tiny_language_models
from tests.evaluation.checkpoints import save_ckpt, save_groups, save_questions
from tests.malformed.documents import GIVEN
from tests.malformed.outcome import everything_in, outcome, refused


class Hung(BaseException):
    """No command catches this one."""


@pytest.fixture(autouse=True)
def no_hang(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test fails after `LIMIT_S` seconds (of its module, or 60), also where it waits for a file."""
    seconds = getattr(request.module, "LIMIT_S", 60)

    def stop(*args: object) -> None:
        raise Hung(f"nothing came of it in {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


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
def refuse(tmp_path: Path) -> Callable[..., None]:
    """Run a command that must be refused in one line with these words, and leave the test's folder alone."""

    def check(main: Any, arguments: list[str], *words: str) -> None:
        before = everything_in(tmp_path)
        refused(outcome(main, arguments), *words)
        assert everything_in(tmp_path) == before

    return check
