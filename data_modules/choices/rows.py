"""A multiple-choice question, as every reader yields it and every probe changes it, and its JSONL rows.

    {"id": "piqa-0", "prompt": "...", "choices": ["...", "..."], "label": 0, "benchmark": "piqa",
     "probe": "", "donors": [], "target": "label"}

Only `id`, `prompt`, `choices` and `label` must be there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from storage.errors import DataError
from storage.json_files import atomic_text, field

Target = Literal["label", "uniform"]
"""What training wants of a question: the labelled choice, or all choices alike (there is no right one)."""


@dataclass(frozen=True, slots=True)
class ChoiceExample:
    """One question with its choices, of which one is right (probes spec B2)."""

    id: str
    prompt: str
    """The fields before the choices, joined by single spaces (spec B1); "" is a question left out."""
    choices: tuple[str, ...]
    label: int
    """Slot of the right choice; of a perturbed question, of the pseudo-correct one (spec B3)."""
    benchmark: str = ""
    probe: str = ""
    """The name of the probe that made it, or empty for an original."""
    donors: tuple[int, ...] = ()
    """Indices, among the originals, of the questions that texts were taken from."""
    target: Target = "label"

    def __post_init__(self) -> None:
        if len(self.choices) < 2:
            raise DataError(f"question {self.id}: {len(self.choices)} choice(s), at least 2 are needed")
        if not 0 <= self.label < len(self.choices):
            raise DataError(
                f"question {self.id}: label {self.label}, but the choices are 0 to {len(self.choices) - 1}"
            )


def write_choices(path: str | Path, examples: Iterable[ChoiceExample]) -> int:
    """JSON Lines, whole or not at all; returns how many."""
    count = 0
    with atomic_text(path) as file:
        for example in examples:
            file.write(json.dumps(asdict(example), ensure_ascii=False) + "\n")
            count += 1
    return count


def choice_of(row: Mapping[str, Any], where: str) -> ChoiceExample:
    """The example of one row; DataError begins with `where`."""
    choices = field(row, "choices", list, where)
    for i, text in enumerate(choices):
        if not isinstance(text, str):
            raise DataError(f"{where}: choice {i} must be a string, found {text!r}")
    donors = field(row, "donors", list, where) if "donors" in row else []
    if any(type(donor) is not int for donor in donors):
        raise DataError(f"{where}: the field 'donors' must be a list of whole numbers, found {donors!r}")
    target = row.get("target", "label")
    if target not in get_args(Target):
        raise DataError(f"{where}: the field 'target' must be label or uniform, found {target!r}")
    try:
        return ChoiceExample(
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
