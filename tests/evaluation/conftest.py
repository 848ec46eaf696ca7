"""Figures are drawn only where a test looks at them: drawing was a third of the time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from tests.conftest import once
from tests.evaluation.protocol_cases import make_room

DRAW = Figure.savefig


@contextmanager
def undrawn() -> Iterator[None]:
    """The first bytes of a picture in its place."""

    def begin(figure: Figure, target: Any, **how: Any) -> None:
        if isinstance(target, Path):
            target.write_bytes(b"\x89PNG")
        else:
            DRAW(figure, target, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", begin)
        yield


@pytest.fixture(autouse=True, scope="module")
def _undrawn() -> Iterator[None]:
    with undrawn():
        yield


@pytest.fixture(scope="session")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models and files that all protocol cases name. Nobody changes it."""
    with once(tmp_path_factory, "room") as (folder, wanted):
        if wanted:
            make_room(folder)
    return folder
