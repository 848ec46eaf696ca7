"""Run a command in this process as a user would, and say what came of it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

_ERROR = re.compile(r"^(?:[\w. -]+: )?error: ", re.M)


class Outcome(NamedTuple):
    """What a command left behind: its exit code, and what it wrote on stderr."""

    code: int
    text: str


def outcome(
    main: Callable[..., int | None], arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> Outcome:
    """Exit code and stderr. Fails for any exception that a user would see as a traceback."""
    capsys.readouterr()
    before = sys.argv
    sys.argv = ["command", *arguments]
    try:
        code = main(arguments) if main.__code__.co_argcount else main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except Exception as error:
        pytest.fail(f"a traceback: {type(error).__name__}: {str(error)[:300]}", pytrace=True)
    finally:
        sys.argv = before
    return Outcome(code or 0, capsys.readouterr().err)


def refused(found: Outcome, *words: str) -> None:
    """Non-zero, one message that holds each of the words (or one of `a|b`), no traceback."""
    assert found.code != 0, "was accepted"
    assert "Traceback" not in found.text
    (begins,) = [match.start() for match in _ERROR.finditer(found.text)]
    message = found.text[begins:]
    assert len(message) < 2000, "nobody reads such a message"
    for word in words:
        assert any(part in message for part in word.split("|")), message


def everything_in(folder: Path) -> dict[str, int]:
    """All files and folders with their sizes, hidden ones too."""
    return {str(path.relative_to(folder)): path.stat().st_size for path in sorted(folder.rglob("*"))}
