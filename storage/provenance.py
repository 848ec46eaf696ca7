"""Where numbers come from: the code's revision and the versions of libraries."""

from __future__ import annotations

import platform
import subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path

PACKAGES = ("torch", "pytorch-lightning", "transformers", "tokenizers", "datasets", "torchmetrics", "numpy")


def revision() -> str:
    """The commit of the checkout, with `+` behind it where files differ from it; empty outside a checkout."""
    git = partial(subprocess.check_output, cwd=Path(__file__).parent, stderr=subprocess.DEVNULL, text=True)
    try:
        return git(["git", "rev-parse", "HEAD"]).strip() + "+" * bool(git(["git", "status", "--porcelain"]))
    except (OSError, subprocess.CalledProcessError):
        return ""


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that numbers depend on, as far as they are there."""
    from importlib.metadata import PackageNotFoundError, version  # a tenth of a second, when it is wanted

    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
