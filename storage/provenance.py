"""Provenance of numbers: the code's revision and the versions of libraries."""

import platform
import subprocess
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
