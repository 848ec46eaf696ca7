"""Multiple-choice questions as rows of JSON Lines.

    {"id": "piqa-0", "prompt": "...", "choices": ["...", "..."], "label": 0, "benchmark": "piqa",
     "probe": "", "donors": [], "target": "label"}

Only `id`, `prompt`, `choices` and `label` must be there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from data_modules.schema import ChoiceQuestion, ChoiceTarget
from storage.errors import DataError
from storage.json_files import atomic_text, field


def write_choices(path: str | Path, examples: Iterable[ChoiceQuestion]) -> int:
    """JSON Lines, whole or not at all; returns how many."""
    count = 0
    with atomic_text(path) as file:
        for example in examples:
            file.write(json.dumps(asdict(example), ensure_ascii=False) + "\n")
            count += 1
    return count


def choice_of(row: Mapping[str, Any], where: str) -> ChoiceQuestion:
    """The example of one row; DataError begins with `where`."""
    choices = field(row, "choices", list, where)
    for i, text in enumerate(choices):
        if not isinstance(text, str):
            raise DataError(f"{where}: choice {i} must be a string, found {text!r}")
    donors = field(row, "donors", list, where) if "donors" in row else []
    if any(type(donor) is not int for donor in donors):
        raise DataError(f"{where}: the field 'donors' must be a list of whole numbers, found {donors!r}")
    target = row.get("target", "label")
    if target not in get_args(ChoiceTarget):
        raise DataError(f"{where}: the field 'target' must be label or uniform, found {target!r}")
    try:
        return ChoiceQuestion(
            id=str(field(row, "id", (str, int), where)),
            prompt=field(row, "prompt", str, where),
            choices=tuple(choices),
            label=field(row, "label", int, where),
            benchmark=str(row.get("benchmark", "")),
            probe=str(row.get("probe", "")),
            donors=tuple(donors),
            target=target,
        )
    except DataError as error:
        raise DataError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None
