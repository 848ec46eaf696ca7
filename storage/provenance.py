"""Provenance of numbers: the code's revision, the versions of libraries, and warnings."""

import logging
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

PACKAGES = (
    "torch",
    "pytorch-lightning",
    "transformers",
    "tokenizers",
    "datasets",
    "torchmetrics",
    "numpy",
)


def revision() -> str:
    """Return the checkout's commit, followed by `+` if files differ; empty outside a checkout."""
    git = partial(
        subprocess.check_output, cwd=Path(__file__).parent, stderr=subprocess.DEVNULL, text=True
    )
    try:
        commit = git(["git", "rev-parse", "HEAD"]).strip()
        return f"{commit}+" if git(["git", "status", "--porcelain"]) else commit
    except (OSError, subprocess.CalledProcessError):
        return ""


def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed libraries that numbers depend on."""
    from importlib.metadata import version  # takes a tenth of a second

    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


@contextmanager
def logged_warnings() -> Iterator[dict[str, None]]:
    """Collect the texts of this package's warnings, each once."""
    handler = _Texts(logging.WARNING)
    logger = logging.getLogger("interventune")
    logger.addHandler(handler)
    try:
        yield handler.texts
    finally:
        logger.removeHandler(handler)


class _Texts(logging.Handler):
    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.texts = dict[str, None]()

    def emit(self, record: logging.LogRecord) -> None:
        self.texts[record.getMessage()] = None
