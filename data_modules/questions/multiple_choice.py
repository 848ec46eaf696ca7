"""Records of multiple-choice benchmarks -> ChoiceQuestion: PIQA, aNLI, SocialIQA, HellaSwag, BBQ, own rows.

The layout is recognised by the first record's fields. Labels are in the records, or in a separate file, one
integer per line. Some benchmarks count them from 0, some from 1 (probes spec B2): the smallest and largest
label decide; if neither occurs, the benchmark's own count applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from data_modules.schema.questions import ChoiceQuestion, ChoiceTarget
from storage.documents import load_yaml, read_text
from storage.errors import DataError, as_data_error
from storage.json_files import check


@dataclass(frozen=True)
class Layout:
    """The fields of one benchmark's records (multiple_choice.yaml)."""

    benchmark: str
    prompt: list[str]
    choices: list[str]
    first_label: int = 0

    @property
    def fields(self) -> str:
        """The fields by which it is recognised."""
        return " ".join(self.prompt + self.choices)


LAYOUTS = load_yaml(Path(__file__).with_suffix(".yaml"), list[Layout])


def read_rows(rows: Iterable[tuple[str, Any]], source: str, *, labels: str = "") -> Iterator[ChoiceQuestion]:
    """(place, record) -> questions, in their order.

    Args:
        rows: all records of `source`: their labels are interpreted together.
        source: for errors.
        labels: a file of labels.

    Raises:
        DataError: see `sources.read_choices`.
    """
    records = [(where, check(row, dict[str, Any], where)) for where, row in rows]
    _, first = records[0]
    layout = next(one for one in LAYOUTS if first.keys() >= {*one.fields.split()})
    if labels:
        lines = read_text(labels).rstrip().splitlines()
        if len(lines) != len(records):
            raise DataError(f"{labels}: {len(lines)} labels, but {source} has {len(records)} questions")
        for i, (where, row) in enumerate(records):
            records[i] = f"{where} ({labels}, line {i + 1})", {**row, "label": lines[i]}
    if layout.benchmark == "rows":
        yield from (check(row, ChoiceQuestion, where) for where, row in records)
        return
    choices, stated, names = list[tuple[str, ...]](), list[int](), layout.choices
    of_choices: Any = dict.fromkeys(names, str if len(names) > 1 else list[str])
    of_bbq = {"context_condition": NotRequired[Literal["ambig", "disambig"]]}
    fields = dict.fromkeys(layout.prompt, str) | of_choices | of_bbq
    texts_of = TypedDict("texts_of", fields)  # type: ignore[misc]
    for where, row in records:
        check(row, texts_of, where)
        listed = [row[name] for name in names]
        choices.append(tuple(listed if len(names) > 1 else listed[0]))
        with as_data_error(f"{where}: needs a whole number as 'label', inside or in a file (PATH+LABELS)"):
            stated.append(int(str(row["label"])))  # neither True nor 1.0; the Hub sometimes has text
    counts_from_1 = any(value == len(texts) for value, texts in zip(stated, choices, strict=True))
    lowest = 0 if 0 in stated else 1 if counts_from_1 else layout.first_label
    ids = [str(row.get("id", row.get("uid", ""))) for _, row in records]
    if len({*ids, ""}) <= len(ids):  # some missing or repeated
        ids = [f"{layout.benchmark}-{i}" for i in range(len(records))]
    for (where, row), name, texts, value in zip(records, ids, choices, stated, strict=True):
        if not lowest <= value < lowest + len(texts):
            hint = "; a split without labels cannot be used" if value == -1 else ""
            raise DataError(
                f"{where}: label {value}, but the {len(texts)} choices are "
                f"{lowest} to {lowest + len(texts) - 1}{hint}"
            )
        prompt = " ".join(row[part] for part in layout.prompt)
        target: ChoiceTarget = "unknown" if row.get("context_condition") == "ambig" else "label"
        yield ChoiceQuestion(name, prompt, texts, value - lowest, layout.benchmark, target=target)
