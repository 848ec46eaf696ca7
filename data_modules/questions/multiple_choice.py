"""Records of multiple-choice benchmarks and own rows -> ChoiceQuestion.

The layout is recognised by the first record's fields. Labels are in the records, or in a separate
file, one per line: a letter, a name that the record lists, or a number. Some benchmarks count from
0, some from 1: the smallest and largest number decide; if neither occurs, the benchmark's own count
does.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from interventune.data_modules.schema.questions import ChoiceQuestion, ChoiceTarget
from interventune.storage.documents import (
    DataError,
    Rows,
    as_data_error,
    check,
    own_yaml,
    read_text,
    refuse,
)


@dataclass
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
    def fields(self) -> list[str]:
        """The fields by which it is recognised."""
        return self.prompt + self.choices


LAYOUTS = own_yaml(__file__, list[Layout])


class _Condition(TypedDict):
    context_condition: NotRequired[Literal["ambig", "disambig"]]
    """Of BBQ."""


def read_rows(rows: Rows, source: str, *, labels: str = "") -> Iterator[ChoiceQuestion]:
    """(place, record) -> questions, in their order.

    Args:
        rows: all records of `source`: their labels are interpreted together.
        source: for errors.
        labels: a file of labels.

    Raises:
        DataError: see `sources.read_choices`.
    """
    if labels:
        unlabelled = list(rows)
        lines = read_text(labels).rstrip().splitlines()
        if len(lines) != len(unlabelled):
            raise DataError(
                f"{labels}: {len(lines)} labels, but {source} has {len(unlabelled)} questions"
            )
        rows = (
            (f"{where} ({labels}, line {i + 1})", row | {"label": lines[i]})
            for i, (where, row) in enumerate(unlabelled)
        )
    layout: Layout | None = None
    records = []
    for where, row in rows:
        if layout is None:
            layout = min(
                LAYOUTS, key=lambda known: sum(_at(row, name) is None for name in known.fields)
            )
            label = "label" if labels else layout.label
            of_choices: Any = str if len(layout.choices) > 1 else list[str]
            fields = dict.fromkeys(layout.prompt, str) | dict.fromkeys(layout.choices, of_choices)
            kind = TypedDict("kind", fields)  # type: ignore[misc]  # known only at run time
        if layout.benchmark == "rows":
            yield check(row, ChoiceQuestion, where)
            continue
        values = {name: value for name in fields if (value := _at(row, name)) is not None}
        check(values, kind, where)
        check(row, _Condition, where)
        prompt = " ".join(layout.words.get(values[name], values[name]) for name in layout.prompt)
        choices = [values[name] for name in layout.choices]
        texts = choices if len(choices) > 1 else choices[0]
        stated = str(_at(row, label))
        letters = _at(row, layout.names) or [*"ABCDEFGHIJ"]
        with as_data_error(
            f"{where}: needs a letter or a whole number as {label!r}, or a file (PATH+LABELS)"
        ):  # neither True nor 1.0
            number = letters.index(stated) if stated in letters else int(stated)
        records.append((where, row, prompt, tuple(texts), number))
    if layout is None:
        return
    if any(number == 0 for *_, number in records):
        lowest = 0
    elif any(number == len(texts) for *_, texts, number in records):
        lowest = 1
    else:
        lowest = layout.first_label
    hint = "; a split without labels cannot be used"
    refuse(
        [
            f"{where}: label {number}, but the {len(texts)} choices are {lowest} to "
            f"{lowest + len(texts) - 1}{hint if number == -1 else ''}"
            for where, _, _, texts, number in records
            if not lowest <= number < lowest + len(texts)
        ]
    )
    ids = [str(row.get("id", row.get("uid", ""))) for _, row, *_ in records]
    if "" in ids or len({*ids}) < len(ids):
        ids = [f"{layout.benchmark}-{i}" for i in range(len(records))]
    for name, (_, row, prompt, texts, number) in zip(ids, records, strict=True):
        ambiguous = layout.benchmark == "bbq" and row.get("context_condition") == "ambig"
        target: ChoiceTarget = "unknown" if ambiguous else "label"
        yield ChoiceQuestion(name, prompt, texts, number - lowest, layout.benchmark, target=target)


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
