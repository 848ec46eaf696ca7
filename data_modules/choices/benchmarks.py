"""Multiple-choice benchmarks by one name: `read_multiple_choice(source)`.

PATH             PIQA, aNLI, SocialIQA, HellaSwag as JSON Lines, a JSON list or parquet; or rows of questions
                 (data_modules/choices/rows.py). The format is told from the names of the fields, never from
                 the file's name.
PATH+LABELS      the same, with the labels in a file of their own, one whole number a line: `a.jsonl+a.lst`
FOLDER:SPLIT     one split of a local dataset folder
hub:NAME:SPLIT   a dataset of the Hugging Face Hub, as hub:baber/piqa:validation
stories:SPLIT    the embedded questions: stories:choices_train, stories:choices_dev, also with ?seed=3

Some benchmarks count labels from 0, some from 1 (probes spec B2): a whole file tells by its smallest and
largest label. A part of a file that holds neither is read as its benchmark counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from data_modules.choices.rows import choice_of
from data_modules.schema import ChoiceQuestion
from storage.errors import DataError
from storage.json_files import field, json_lines, load_json, read_text

Benchmark = Literal["piqa", "anli", "socialiqa", "hellaswag", "rows"]


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of one benchmark's records."""

    benchmark: Benchmark
    prompt: tuple[str, ...]
    """Fields that make up the prompt, joined by single spaces (probes spec B1)."""
    choices: tuple[str, ...]
    """A field for each choice, or one that lists them all."""
    first_label: int
    """What the benchmark calls the first choice."""
    listed: bool = False


LAYOUTS = (
    Layout("rows", ("prompt",), ("choices",), 0, listed=True),
    Layout("piqa", ("goal",), ("sol1", "sol2"), 0),
    Layout("anli", ("obs1", "obs2"), ("hyp1", "hyp2"), 1),
    Layout("anli", ("observation_1", "observation_2"), ("hypothesis_1", "hypothesis_2"), 1),
    Layout("socialiqa", ("context", "question"), ("answerA", "answerB", "answerC"), 1),
    Layout("hellaswag", ("ctx_a", "ctx_b"), ("endings",), 0, listed=True),
    Layout("hellaswag", ("ctx_a", "ctx_b"), ("ending_options",), 0, listed=True),
    Layout("hellaswag", ("ctx_a", "ctx_b"), ("opt0", "opt1", "opt2", "opt3"), 0),
)
"""The original files, the Hub's versions of them, and our own rows; told apart by these fields."""


class Record(NamedTuple):
    """One record, and where it stands."""

    where: str
    row: Any


class Label(NamedTuple):
    """One label as written, and where it stands."""

    where: str
    value: int


def read_multiple_choice(
    source: str | Path, *, labels: str | Path = "", benchmark: str = "auto"
) -> list[ChoiceQuestion]:
    """All questions of `source` (see the module), in its order.

    Args:
        source: where they are.
        labels: a file of labels; as PATH+LABELS.
        benchmark: `auto` tells the format; a name of `Benchmark` demands it.

    Raises:
        DataError: a missing file or field, another format, not as many labels as questions, a label that no
            choice has, a number of choices that differs within a benchmark; with the line.
    """
    if benchmark not in ("auto", *get_args(Benchmark)):
        raise DataError(f"benchmark {benchmark!r}: choose from auto, {', '.join(get_args(Benchmark))}")
    text, label_file = split_source(str(source))
    if labels and label_file:
        raise DataError(f"{source}: names the labels {label_file} already; leave out {labels}")
    label_file = str(labels) or label_file
    if text.startswith("stories:"):
        if label_file:
            raise DataError(f"{label_file}: embedded questions hold their labels themselves; leave it out")
        from data_modules.sources import parse_stories
        from data_modules.stories import choices as story_choices

        found: Benchmark = "rows"
        examples = list(story_choices.choice_examples(*parse_stories(text)))
    else:
        records = list(_records(text))
        if not records:
            raise DataError(f"{text}: holds no questions")
        layout = layout_of(records[0])
        found = layout.benchmark
        examples = list(_examples(records, layout, text, label_file))
    if benchmark not in ("auto", found):
        raise DataError(f"{text}: holds {found}, not {benchmark}")
    return examples


def split_source(source: str) -> tuple[str, str]:
    """`PATH+LABELS` as (PATH, LABELS); LABELS is empty where there are none, or where a file has a + in its
    name."""
    path, plus, labels = source.rpartition("+")
    if not plus or Path(source).exists() or source.startswith(("hub:", "stories:")):
        return source, ""
    return path, labels


def layout_of(record: Record) -> Layout:
    """The layout whose fields a record has; DataError where none fits."""
    names = record.row.keys() if isinstance(record.row, Mapping) else ()
    for layout in LAYOUTS:
        if {*layout.prompt, *layout.choices} <= set(names):
            return layout
    known = "; ".join(f"{one.benchmark}: {', '.join((*one.prompt, *one.choices))}" for one in LAYOUTS)
    raise DataError(
        f"{record.where}: no multiple-choice question that is known here; its fields must be those of one of "
        f"{known}"
    )


def _records(source: str) -> Iterator[Record]:
    from data_modules.questions import squad

    if source.startswith("hub:"):
        name = source.removeprefix("hub:")
        yield from _table(squad.hub_rows(name), name)
        return
    path = Path(source)
    folder, colon, _ = source.rpartition(":")
    if path.is_dir() or (colon and not path.exists() and Path(folder).is_dir()):
        yield from _table(squad.hub_rows(source), source)
        return
    try:
        with open(path, "rb") as file:
            head = file.read(4)
    except FileNotFoundError:
        raise DataError(f"{source}: no such file (other sources begin with hub: or stories:)") from None
    except OSError as error:
        raise DataError(f"{source}: cannot be read: {error.strerror}") from None
    if head == b"PAR1":
        yield from _table(squad.parquet_rows(path), source)
    elif head.decode("utf-8-sig", errors="ignore").lstrip().startswith("["):
        yield from (Record(f"{source}: [{i}]", row) for i, row in enumerate(load_json(path)))
    else:
        yield from (Record(where, row) for _, where, row in json_lines(source))


def _table(rows: Iterable[Mapping[str, Any]], source: str) -> Iterator[Record]:
    yield from (Record(f"{source}: row {i}", row) for i, row in enumerate(rows))


def _examples(
    records: Sequence[Record], layout: Layout, source: str, label_file: str
) -> Iterator[ChoiceQuestion]:
    texts = [_texts(record, layout) for record in records]
    counts = [len(choices) for _, choices in texts]
    if layout.benchmark == "rows":
        yield from _own_rows(records, label_file)
        return
    for record, count in zip(records, counts, strict=True):
        if count != counts[0]:
            raise DataError(f"{record.where}: {count} choices, but the first question has {counts[0]}")
    labels = _label_file(label_file) if label_file else [_inline(record) for record in records]
    if len(labels) != len(records):
        raise DataError(
            f"{label_file}: {len(labels)} labels, but {source} has {len(records)} questions; a label file "
            "has one line a question, in the same order"
        )
    slots = _slots(labels, counts[0], layout)
    for name, (prompt, choices), slot in zip(_ids(records, layout), texts, slots, strict=True):
        yield ChoiceQuestion(name, prompt, choices, slot, layout.benchmark)


def _ids(records: Sequence[Record], layout: Layout) -> list[str]:
    """The file's own ids where they tell all questions apart, else numbers."""
    own = [str(record.row["id"]) for record in records if isinstance(record.row.get("id"), (str, int))]
    if len(set(own)) == len(records):
        return own
    return [f"{layout.benchmark}-{i}" for i in range(len(records))]


def _own_rows(records: Sequence[Record], label_file: str) -> Iterator[ChoiceQuestion]:
    if label_file:
        raise DataError(f"{label_file}: rows of questions hold their labels themselves; leave it out")
    yield from (choice_of(record.row, record.where) for record in records)


def _texts(record: Record, layout: Layout) -> tuple[str, tuple[str, ...]]:
    """Prompt and choices of a record."""
    where, row = record
    prompt = " ".join(field(row, name, str, where) for name in layout.prompt)
    if not layout.listed:
        return prompt, tuple(field(row, name, str, where) for name in layout.choices)
    name = layout.choices[0]
    choices = field(row, name, list, where)
    for i, text in enumerate(choices):
        if not isinstance(text, str):
            raise DataError(f"{where}: the field {name!r} must list strings, found {text!r} at {i}")
    if len(choices) < 2:
        raise DataError(f"{where}: {len(choices)} choice(s), at least 2 are needed")
    return prompt, tuple(choices)


def _label_file(path: str) -> list[Label]:
    lines = read_text(path).rstrip().splitlines()
    return [_label(line.strip(), f"{path}, line {i}") for i, line in enumerate(lines, 1)]


def _inline(record: Record) -> Label:
    """The field `label` of a record; the Hub has it as text at times."""
    where, row = record
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
