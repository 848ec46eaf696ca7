"""Records of multiple-choice benchmarks and own rows -> ChoiceQuestion.

The layout is recognised by the first record's fields. Labels are in the records, or in a separate
file, one per line: a letter, a name that the record lists, or a number. Some benchmarks count from
0, some from 1 (probes spec B2): the smallest and largest number decide; if neither occurs, the
benchmark's own count does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from interventune.data_modules.schema.questions import ChoiceQuestion, ChoiceTarget
from interventune.storage.documents import load_yaml, read_text
from interventune.storage.errors import DataError, as_data_error, refuse
from interventune.storage.json_files import check


@dataclass(frozen=True)
class Layout:
    """The fields of one benchmark's records (multiple_choice.yaml)."""

    benchmark: str
    prompt: list[str]
    choices: list[str]
    label: str = "label"
    names: str = ""
    first_label: int = 0
    words: dict[str, str] = field(default_factory=dict)

    @property
    def fields(self) -> str:
        """The fields by which it is recognised."""
        return " ".join(self.prompt + self.choices)


LAYOUTS = load_yaml(Path(__file__).with_suffix(".yaml"), list[Layout])


class _Condition(TypedDict):
    context_condition: NotRequired[Literal["ambig", "disambig"]]
    """Of BBQ."""


def read_rows(
    rows: Iterable[tuple[str, Any]], source: str, *, labels: str = ""
) -> Iterator[ChoiceQuestion]:
    """(place, record) -> questions, in their order.

    Args:
        rows: all records of `source`: their labels are interpreted together.
        source: for errors.
        labels: a file of labels.

    Raises:
        DataError: see `sources.read_choices`.
    """
    if labels:
        rows, lines = list(rows), read_text(labels).rstrip().splitlines()
        if len(lines) != len(rows):
            raise DataError(
                f"{labels}: {len(lines)} labels, but {source} has {len(rows)} questions"
            )
        rows = (
            (f"{where} ({labels}, line {i + 1})", row | {"label": lines[i]})
            for i, (where, row) in enumerate(rows)
        )
    layout: Layout | None = None
    asked = list[tuple[str, dict[str, Any], str, tuple[str, ...], int]]()
    for where, row in rows:
        if layout is None:
            layout = min(
                LAYOUTS, key=lambda one: sum(_at(row, name) is None for name in one.fields.split())
            )
            listed = len(layout.choices) == 1
            of_choices: Any = dict.fromkeys(layout.choices, list[str] if listed else str)
            fields = dict.fromkeys(layout.prompt, str) | of_choices
            texts_of = TypedDict("texts_of", fields)  # type: ignore[misc]
            label = "label" if labels else layout.label
        if layout.benchmark == "rows":
            yield check(row, ChoiceQuestion, where)
            continue
        values = {
            name: text for name in layout.fields.split() if (text := _at(row, name)) is not None
        }
        check(values, texts_of, where)
        check(row, _Condition, where)
        prompt = " ".join(layout.words.get(values[name], values[name]) for name in layout.prompt)
        texts = values[layout.choices[0]] if listed else [values[name] for name in layout.choices]
        stated, names = str(_at(row, label)), _at(row, layout.names) or [*"ABCDEFGHIJ"]
        with as_data_error(
            f"{where}: needs a letter or a whole number as {label!r}, or a file (PATH+LABELS)"
        ):
            value = names.index(stated) if stated in names else int(stated)  # neither True nor 1.0
        asked.append((where, row, prompt, tuple(texts), value))
    if layout is None or not asked:
        return
    counts_from_1 = any(value == len(texts) for *_, texts, value in asked)
    lowest = (
        0 if any(value == 0 for *_, value in asked) else 1 if counts_from_1 else layout.first_label
    )
    refuse(
        [
            f"{where}: label {value}, but the {len(texts)} choices are {lowest} to "
            f"{lowest + len(texts) - 1}" + "; a split without labels cannot be used" * (value == -1)
            for where, _, _, texts, value in asked
            if not lowest <= value < lowest + len(texts)
        ]
    )
    ids = [str(row.get("id", row.get("uid", ""))) for _, row, *_ in asked]
    if len({*ids, ""}) <= len(ids):  # some missing or repeated
        ids = [f"{layout.benchmark}-{i}" for i in range(len(asked))]
    for name, (_, row, prompt, texts, value) in zip(ids, asked, strict=True):
        ambiguous = layout.benchmark == "bbq" and row.get("context_condition") == "ambig"
        target: ChoiceTarget = "unknown" if ambiguous else "label"
        yield ChoiceQuestion(name, prompt, texts, value - lowest, layout.benchmark, target=target)


def _at(value: Any, path: str) -> Any:
    """The value of `field`, of `field.inner`, or of each part of a list; None where
    there is none.
    """
    for name in path.split("."):
        if isinstance(value, list) and all(isinstance(part, dict) for part in value):
            value = [part.get(name) for part in value]
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value
