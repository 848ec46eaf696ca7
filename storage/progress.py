"""Progress bars."""

import os
from collections.abc import Iterable
from typing import Any


def progress(
    items: Iterable[Any] | None, what: str, unit: str = "batch", total: int | None = None
) -> Any:
    """Return a bar of tqdm over `items`, shown on a terminal by the first process of torchrun."""
    from tqdm import tqdm  # takes 50 ms, too long for --help

    hidden = int(os.environ.get("RANK", 0)) > 0
    return tqdm(items, what, total, unit=unit, disable=hidden or None)
