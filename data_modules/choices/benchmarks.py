"""Records of multiple-choice benchmarks -> ChoiceQuestion: PIQA, aNLI, SocialIQA, HellaSwag, our own rows.

The layout is told from the names of the first record's fields. Labels stand in the records, or in a file of
their own, one whole number a line.

Some benchmarks count labels from 0, some from 1 (probes spec B2): a whole file tells by its smallest and
largest label. A part of a file that holds neither is read as its benchmark counts.

Our own rows are JSON Lines, of which only `id`, `prompt`, `choices` and `label` must be there:

    {"id": "piqa-0", "prompt": "...", "choices": ["...", "..."], "label": 0, "benchmark": "piqa",
     "probe": "", "donors": [], "target": "label"}
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, NamedTuple, NotRequired, get_args

from pydantic import StrictInt
from typing_extensions import TypedDict

from data_modules.schema import ChoiceQuestion, ChoiceTarget
from storage.errors import DataError
from storage.files import read_text
from storage.json_files import check, field, write_json_lines

Benchmark = Literal["piqa", "anli", "socialiqa", "hellaswag", "bbq", "rows"]


class Layout(NamedTuple):
    """The fields of one benchmark's records."""

    benchmark: Benchmark
    prompt: str
    """Fields that make up the prompt, joined by single spaces (probes spec B1)."""
    choices: str
    """A field for each choice, or one that lists them all."""
    first_label: int = 0
    """What the benchmark calls the first choice."""


LAYOUTS = (
    Layout("rows", "prompt", "choices"),
    Layout("piqa", "goal", "sol1 sol2"),
    Layout("anli", "obs1 obs2", "hyp1 hyp2", 1),
    Layout("anli", "observation_1 observation_2", "hypothesis_1 hypothesis_2", 1),
    Layout("socialiqa", "context question", "answerA answerB answerC", 1),
    Layout("socialiqa", "context question", "options", 1),
    Layout("bbq", "context question", "ans0 ans1 ans2"),
    Layout("hellaswag", "ctx_a ctx_b", "endings"),
    Layout("hellaswag", "ctx_a ctx_b", "ending_options"),
    Layout("hellaswag", "ctx_a ctx_b", "opt0 opt1 opt2 opt3"),
)
"""The original files, the Hub's versions of them, and our own rows; told apart by these fields."""
NESTED = "example"
"""The object that holds a question's fields in ChaosNLI's version of aNLI, beside aNLI's own `old_label`."""
LABELS = ("label", "old_label", "answer")
"""Fields that may hold the label; the first that a record has counts. An `answer` is the text of a choice, or
its letter."""


class _Row(TypedDict):
    id: str | StrictInt
    prompt: str
    choices: list[str]
    label: StrictInt
    benchmark: NotRequired[str]
    probe: NotRequired[str]
    donors: NotRequired[list[StrictInt]]
    target: NotRequired[ChoiceTarget]


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
    records = [(where, _flat(row)) for where, row in rows]
    where, first = records[0]
    names = set(first) if isinstance(first, Mapping) else set()
    layout = next((one for one in LAYOUTS if names >= {*one.prompt.split(), *one.choices.split()}), None)
    if layout is None:
        fields = ((one.benchmark, ", ".join(f"{one.prompt} {one.choices}".split())) for one in LAYOUTS)
        known = "; ".join(map(": ".join, fields))
        raise DataError(
            f"{where}: no known multiple-choice question; its fields must be those of one of {known}"
        )
    if benchmark not in ("auto", layout.benchmark):
        raise DataError(f"{source}: holds {layout.benchmark}, not {benchmark}")
    if layout.benchmark == "rows":
        if labels:
            raise DataError(f"{labels}: rows of questions hold their labels themselves; leave it out")
        yield from (choice_of(row, where) for where, row in records)
        return
    prompt_fields, choice_fields = layout.prompt.split(), layout.choices.split()
    texts: list[tuple[str, list[str]]] = []
    for where, row in records:
        prompt = " ".join(field(row, name, str, where) for name in prompt_fields)
        if len(choice_fields) > 1:
            choices = [field(row, name, str, where) for name in choice_fields]
        else:
            choices = check(
                field(row, choice_fields[0], list, where), list[str], f"{where}: {choice_fields[0]}"
            )
        texts.append((prompt, choices))
        count = len(texts[0][1])
        if len(choices) != count or count < 2:
            wanted = f"the first question has {count}" if count > 1 else "at least 2 are needed"
            raise DataError(f"{where}: {len(choices)} choice(s), but {wanted}")
    if labels:
        lines = read_text(labels).rstrip().splitlines()
        if len(lines) != len(records):
            raise DataError(
                f"{labels}: {len(lines)} labels, but {source} has {len(records)} questions; a label file "
                "has one line a question, in the same order"
            )
        found = [_label(line.strip(), f"{labels}, line {i}") for i, line in enumerate(lines, 1)]
    else:
        found = []
        for (where, row), (_, choices) in zip(records, texts, strict=True):
            name = next((name for name in LABELS if name in row), "")
            if not name:
                raise DataError(
                    f"{where}: the field 'label' is missing; name the file of labels, as in "
                    "PATH+LABELS (questions.jsonl+labels.lst)"
                )
            if name == "answer":
                found.append((where, layout.first_label + _answer(row[name], choices, where)))
            else:
                found.append(_label(row[name], where))
    values = {value for _, value in found}
    lowest = 0 if 0 in values else 1 if count in values else layout.first_label
    name = next((name for name in ("id", "uid") if name in first), "id")
    ids = [str(row[name]) for _, row in records if isinstance(row.get(name), (str, int))]
    if len(set(ids)) < len(records):  # else the file's own tell all questions apart
        ids = [f"{layout.benchmark}-{i}" for i in range(len(records))]
    for (where, value), name, (prompt, choices), (_, row) in zip(found, ids, texts, records, strict=True):
        if not lowest <= value < lowest + count:
            counted = f"{count} choices are {lowest} to {lowest + count - 1}"
            hint = "; a split without labels cannot be used" if value == -1 else ""
            raise DataError(f"{where}: label {value}, but the {counted}{hint}")
        ambiguous = layout.benchmark == "bbq" and row.get("context_condition") == "ambig"
        target: ChoiceTarget = "unknown" if ambiguous else "label"
        yield ChoiceQuestion(name, prompt, tuple(choices), value - lowest, layout.benchmark, target=target)


def split_labels(source: str, labels: str = "") -> tuple[str, str]:
    """`PATH+LABELS` as (PATH, LABELS), with the labels that are named beside it; "" where there are none, or
    where a file has a + in its name."""
    path, plus, inside = source.rpartition("+")
    if not plus or Path(source).exists() or source.startswith(("hub:", "stories:")):
        return source, labels
    if labels:
        raise DataError(f"{source}: names the labels {inside} already; leave out {labels}")
    return path, inside


def write_choices(path: str | Path, examples: Iterable[ChoiceQuestion]) -> int:
    """JSON Lines, whole or not at all; returns how many."""
    return write_json_lines(path, map(asdict, examples))


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


def _flat(row: Any) -> Any:
    """A record with the fields of its `example` beside its own."""
    nested = row.get(NESTED) if isinstance(row, Mapping) else None
    return {**nested, **row} if isinstance(nested, Mapping) else row


def _answer(value: Any, choices: Sequence[str], where: str) -> int:
    """The slot of the choice that an `answer` names: by its text (case and spaces apart), or its letter."""
    texts = [" ".join(text.split()).casefold() for text in choices]
    wanted = " ".join(str(value).split()).casefold()
    slots = [slot for slot, text in enumerate(texts) if text == wanted]
    slots = slots or [slot for slot in range(len(texts)) if wanted == string.ascii_lowercase[slot : slot + 1]]
    if len(slots) != 1:
        raise DataError(
            f"{where}: the answer {value!r:.60} is {'several' if slots else 'none'} of its choices; "
            "it must be the text or the letter of one"
        )
    return slots[0]


def _label(value: Any, where: str) -> tuple[str, int]:
    """Where a label stands, and the label; the Hub has it as text at times."""
    if value in ("", None):
        raise DataError(f"{where}: the label is empty; a split without labels cannot be used")
    text = value.strip() if isinstance(value, str) else json.dumps(value)
    if isinstance(value, bool) or not text.removeprefix("-").isdecimal():
        raise DataError(f"{where}: a label must be a whole number, found {value!r}")
    return where, int(text)
