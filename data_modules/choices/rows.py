"""Multiple-choice questions as rows of JSON Lines.

    {"id": "piqa-0", "prompt": "...", "choices": ["...", "..."], "label": 0, "benchmark": "piqa",
     "probe": "", "donors": [], "target": "label"}

Only `id`, `prompt`, `choices` and `label` must be there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NotRequired

from pydantic import StrictInt
from typing_extensions import TypedDict

from data_modules.schema import ChoiceQuestion, ChoiceTarget
from storage.errors import DataError
from storage.files import atomic_text
from storage.json_files import check


class _Row(TypedDict):
    id: str | StrictInt
    prompt: str
    choices: list[str]
    label: StrictInt
    benchmark: NotRequired[str]
    probe: NotRequired[str]
    donors: NotRequired[list[StrictInt]]
    target: NotRequired[ChoiceTarget]


def write_choices(path: str | Path, examples: Iterable[ChoiceQuestion]) -> int:
    """JSON Lines, whole or not at all; returns how many."""
    count = 0
    with atomic_text(path) as file:
        for example in examples:
            file.write(json.dumps(asdict(example), ensure_ascii=False) + "\n")
            count += 1
    return count


def choice_of(row: Any, where: str) -> ChoiceQuestion:
    """The question of one row; DataError begins with `where`."""
    fields: dict[str, Any] = {**check(row, _Row, where)}
    fields |= {
        "id": str(fields["id"]),
        "choices": tuple(fields["choices"]),
        "donors": tuple(fields.get("donors", ())),
    }
    try:
        return ChoiceQuestion(**fields)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
