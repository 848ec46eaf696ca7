from __future__ import annotations

from pathlib import Path

import pytest

from tests.evaluation.checkpoints import save_ckpt, save_groups, save_questions
from tests.malformed.documents import write_companions


@pytest.fixture(scope="session")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good files of every kind, and a checkpoint."""
    folder = tmp_path_factory.mktemp("given")
    write_companions(folder)
    save_ckpt(folder / "bert.ckpt")
    save_groups(folder / "groups.json")
    save_questions(folder / "questions.json")
    return folder
