"""Records of multiple-choice benchmarks -> ChoiceQuestion: PIQA, aNLI, SocialIQA, HellaSwag, our own rows.

The layout is told from the names of the first record's fields. Labels stand in the records, or in a file of
their own, one whole number a line.

Some benchmarks count labels from 0, some from 1 (probes spec B2): a whole file tells by its smallest and
largest label. A part of a file that holds neither is read as its benchmark counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from typing_extensions import TypedDict

from data_modules.choices.rows import choice_of
from data_modules.schema import ChoiceQuestion
from storage.errors import DataError
from storage.files import read_text
from storage.json_files import check

Benchmark = Literal["piqa", "anli", "socialiqa", "hellaswag", "rows"]


class Layout:
    """The fields of one benchmark's records.

    Args:
        benchmark: its name.
        prompt: fields that make up the prompt, joined by single spaces (probes spec B1).
        choices: a field for each choice, or one that lists them all.
        first_label: what the benchmark calls the first choice.
    """

    def __init__(self, benchmark: Benchmark, prompt: str, choices: str, first_label: int = 0) -> None:
        self.benchmark, self.first_label = benchmark, first_label
        self.prompt, self.choices = prompt.split(), choices.split()
        self.fields = frozenset((*self.prompt, *self.choices))

    @cached_property
    def record(self) -> type[Mapping[str, Any]]:
        """The type of a record."""
        listed = len(self.choices) == 1
        types = dict.fromkeys(self.prompt, str) | dict.fromkeys(self.choices, list[str] if listed else str)
        return TypedDict(self.benchmark, types)  # type: ignore[operator]

    def texts(self, where: str, row: Any) -> tuple[str, tuple[str, ...]]:
        """Prompt and choices of a record."""
        record = check(row, self.record, where)
        prompt = " ".join(record[name] for name in self.prompt)
        values = [record[name] for name in self.choices]
        return prompt, tuple(values[0] if isinstance(values[0], list) else values)


LAYOUTS = (
    Layout("rows", "prompt", "choices"),
    Layout("piqa", "goal", "sol1 sol2"),
    Layout("anli", "obs1 obs2", "hyp1 hyp2", 1),
    Layout("anli", "observation_1 observation_2", "hypothesis_1 hypothesis_2", 1),
    Layout("socialiqa", "context question", "answerA answerB answerC", 1),
    Layout("hellaswag", "ctx_a ctx_b", "endings"),
    Layout("hellaswag", "ctx_a ctx_b", "ending_options"),
    Layout("hellaswag", "ctx_a ctx_b", "opt0 opt1 opt2 opt3"),
)
"""The original files, the Hub's versions of them, and our own rows; told apart by these fields."""


class Label(NamedTuple):
    """One label as written, and where it stands."""

    where: str
    value: int


def read_rows(
    rows: Iterable[tuple[str, Any]], source: str, *, labels: str = "", benchmark: str = "auto"
) -> Iterator[ChoiceQuestion]:
    """(place, record) -> questions, in their order.

    Args:
        rows: all records of `source`: their labels are understood together.
        source: for errors.
        labels: a file of labels.
        benchmark: `auto` tells the layout; a name of `Benchmark` demands it.

    Raises:
        DataError: see `sources.read_choices`.
    """
    if benchmark not in ("auto", *get_args(Benchmark)):
        raise DataError(f"benchmark {benchmark!r}: choose from auto, {', '.join(get_args(Benchmark))}")
    records = list(rows)
    layout = layout_of(*records[0])
    if benchmark not in ("auto", layout.benchmark):
        raise DataError(f"{source}: holds {layout.benchmark}, not {benchmark}")
    if layout.benchmark == "rows":
        if labels:
            raise DataError(f"{labels}: rows of questions hold their labels themselves; leave it out")
        yield from (choice_of(row, where) for where, row in records)
        return
    texts = [layout.texts(*record) for record in records]
    count = len(texts[0][1])
    for (where, _), (_, choices) in zip(records, texts, strict=True):
        if len(choices) != count or count < 2:
            wanted = f"the first question has {count}" if count > 1 else "at least 2 are needed"
            raise DataError(f"{where}: {len(choices)} choice(s), but {wanted}")
    found = _label_file(labels) if labels else [_inline(*record) for record in records]
    if len(found) != len(records):
        raise DataError(
            f"{labels}: {len(found)} labels, but {source} has {len(records)} questions; a label file "
            "has one line a question, in the same order"
        )
    slots = _slots(found, count, layout)
    for name, (prompt, choices), slot in zip(_ids(records, layout), texts, slots, strict=True):
        yield ChoiceQuestion(name, prompt, choices, slot, layout.benchmark)


def split_labels(source: str, labels: str = "") -> tuple[str, str]:
    """`PATH+LABELS` as (PATH, LABELS), with the labels that are named beside it; "" where there are none, or
    where a file has a + in its name."""
    path, plus, inside = source.rpartition("+")
    if not plus or Path(source).exists() or source.startswith(("hub:", "stories:")):
        return source, labels
    if labels:
        raise DataError(f"{source}: names the labels {inside} already; leave out {labels}")
    return path, inside


def layout_of(where: str, row: Any) -> Layout:
    """The layout whose fields a record has; DataError where none fits."""
    names = set(row) if isinstance(row, Mapping) else set()
    for layout in LAYOUTS:
        if layout.fields <= names:
            return layout
    known = "; ".join(f"{one.benchmark}: {', '.join((*one.prompt, *one.choices))}" for one in LAYOUTS)
    raise DataError(f"{where}: no known multiple-choice question; its fields must be those of one of {known}")


def _ids(records: Sequence[tuple[str, Any]], layout: Layout) -> list[str]:
    """The file's own ids where they tell all questions apart, else numbers."""
    own = [str(row["id"]) for _, row in records if isinstance(row.get("id"), (str, int))]
    if len(set(own)) == len(records):
        return own
    return [f"{layout.benchmark}-{i}" for i in range(len(records))]


def _label_file(path: str) -> list[Label]:
    lines = read_text(path).rstrip().splitlines()
    return [_label(line.strip(), f"{path}, line {i}") for i, line in enumerate(lines, 1)]


def _inline(where: str, row: Any) -> Label:
    """The field `label` of a record; the Hub has it as text at times."""
    if "label" not in row:
        raise DataError(
            f"{where}: the field 'label' is missing; name the file of labels, as in "
            "PATH+LABELS (questions.jsonl+labels.lst)"
        )
    if row["label"] in ("", None):
        raise DataError(f"{where}: the label is empty; a split without labels cannot be used")
    return _label(row["label"], where)


def _label(value: Any, where: str) -> Label:
    text = value.strip() if isinstance(value, str) else json.dumps(value)
    if isinstance(value, bool) or not text.removeprefix("-").isdecimal():
        raise DataError(f"{where}: a label must be a whole number, found {value!r}")
    return Label(where, int(text))


def _slots(labels: Sequence[Label], count: int, layout: Layout) -> Iterator[int]:
    """Labels counted from 0 (see the module)."""
    values = {label.value for label in labels}
    first = 0 if 0 in values else 1 if count in values else layout.first_label
    for where, value in labels:
        if not first <= value < first + count:
            counted = f"{count} choices are {first} to {first + count - 1}"
            hint = "; a split without labels cannot be used" if value == -1 else ""
            raise DataError(f"{where}: label {value}, but the {counted}{hint}")
        yield value - first
