"""Good files of every kind, and a command that must be refused in one line."""

import io
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from interventune.data_modules.__main__ import main as data
from interventune.evaluation.__main__ import main as evaluation
from interventune.models.__main__ import main as models
from interventune.training.__main__ import main as training
from tests.data_modules.fixtures.tiny_lists import write_lists
from tests.evaluation.checkpoints import save_ckpt, save_groups, save_questions

GIVEN = Path(__file__).resolve().parent / "given"
ENTRIES: dict[str, Callable[[list[str]], int]] = {"data": data, "evaluation": evaluation}
ENTRIES |= {"models": models, "training": training}


def outcome(entry: str, arguments: list[str]) -> tuple[int, str]:
    """Exit code and stderr of a command; an exception would be a traceback for the user."""
    errors = io.StringIO()
    with redirect_stderr(errors), redirect_stdout(io.StringIO()):
        try:
            code: Any = ENTRIES[entry](arguments)
        except SystemExit as stop:
            code = stop.code
    return code or 0, errors.getvalue()


def everything_in(folder: Path) -> dict[str, bytes | None]:
    """All files with what they hold, and all folders; hidden ones too."""
    paths = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*"))}
    return {name: path.read_bytes() if path.is_file() else None for name, path in paths.items()}


def refused(entry: str, arguments: list[str], *named: str) -> None:
    """Exit code 2, and one line on stderr that holds every word of `named`."""
    code, errors = outcome(entry, arguments)
    assert code == 2, errors
    (line,) = (line for line in errors.splitlines() if "error: " in line)
    assert errors.endswith(line + "\n")  # and no more
    assert len(line) < 2000
    for word in named:
        assert word in line


@pytest.fixture(scope="session")
def given_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good files of every kind, and a checkpoint."""
    folder = tmp_path_factory.mktemp("mistakes") / "given"
    shutil.copytree(GIVEN, folder)
    write_lists(folder)
    save_ckpt(folder / "bert.ckpt")
    save_groups(folder / "groups.json")
    save_questions(folder / "questions.json")
    return folder
