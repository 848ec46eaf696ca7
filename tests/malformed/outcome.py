"""Run a command in this process as a user would, and say what came of it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.malformed.mutations import Case

_ERROR = re.compile(r"^(?:[\w. -]+: )?error: ", re.M)


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    text: str
    """What it wrote on stderr."""

    @property
    def error(self) -> str:
        """The message from its first `error:` on."""
        found = _ERROR.search(self.text)
        return self.text[found.start() :] if found else ""


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
    """Non-zero, one message that holds each of the words, no traceback."""
    assert found.code != 0, "was accepted"
    assert "Traceback" not in found.text
    assert len(_ERROR.findall(found.text)) == 1, found.text
    assert len(found.error) < 2000, "nobody reads such a message"
    for word in words:
        assert word in found.error, found.error[:1500] or found.text[-1500:]


def everything_in(folder: Path) -> dict[str, int]:
    """All files and folders with their sizes, hidden ones too."""
    return {str(path.relative_to(folder)): path.stat().st_size for path in sorted(folder.rglob("*"))}


def check_one_clear_line(
    case: Case, companions: Path, folder: Path, absent: str, capsys: pytest.CaptureFixture[str]
) -> Outcome:
    """What the command says of a malformed file, which it must leave as it is, beside nothing new.

    Args:
        case: the file, and what must be told of it; None: it is no mistake, or one about something else.
        companions: the folder of all other files that the command needs.
        folder: an empty one, for this file and for what the command writes.
        absent: what the command says when a companion is not there.
        capsys: pytest's.
    """
    given, written = folder / "given", folder / "written"
    given.mkdir()
    written.mkdir()
    path = given / f"bad_{case.form.name}"
    if case.content is None:
        path.mkdir()
    else:
        path.write_bytes(case.content)
    before = everything_in(given)
    main, arguments = case.form.read
    found = outcome(main, arguments(path, companions, written / "out"), capsys)
    if case.told is None:
        assert found.code == 0 or absent in found.error, found.text
        return found
    refused(found, path.name, case.told)
    assert everything_in(written) == {}
    assert everything_in(given) == before
    return found
