"""Rows of any file or dataset: JSON, CSV, parquet, and what the `datasets` library loads."""

import csv
import json
import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import starmap
from pathlib import Path
from typing import Any

from interventune.storage.documents import (
    DataError,
    Rows,
    Values,
    as_data_error,
    check,
    json_lines,
    load_json,
    open_file,
)

MARK = "\ufeff"
"""A byte order mark."""


Table = Iterable[Values]


def opened(source: str) -> tuple[set[str], Rows]:
    """Return the fields of a source's first records, and (place, record) of all.

    DataError if there is no such source.
    """
    name = source.removeprefix("hub:")
    path, _ = folder_and_split(source)
    if name != source or os.path.isdir(path):
        table = table_rows(name)
    elif not os.path.exists(path):
        raise DataError(
            f"{source}: no such file (other sources begin with hub:, stories: or domains:)"
        )
    else:
        with open_file(path) as file:
            start = file.read(1 << 20)  # should contain the first record
        head = start.decode(errors="ignore").strip()
        if not head:
            raise DataError(f"{source}: is empty")
        if head[0] in "{[":
            rows = json_lines(source) if re.search(r"}\s*\n\s*{", head) else _document(source)
            return _fields(head), starmap(_record, rows)
        if start.startswith(b"PAR1"):
            from pyarrow.parquet import read_table

            table = read_table(source).to_pylist()
        else:
            table = csv_rows(source, tabs="\t" in head.partition("\n")[0])
    rows = ((f"{name}: row {i}", row) for i, row in enumerate(table))
    return _fields(json.dumps(next(iter(table), {}), default=str)), starmap(_record, rows)


def _record(place: str, row: Any) -> tuple[str, Values]:
    """The fields of a row, without a byte order mark before the first."""
    fields = check(row, Values, place).items()
    return place, {name.removeprefix(MARK): value for name, value in fields}


def _document(source: str) -> Rows:
    """The rows of a JSON list, or of one called `data` or `samples`; another document is a row."""
    place = f"{source}: "
    document = load_json(source)
    for name in ("data", "samples"):
        if isinstance(document, dict) and isinstance(document.get(name), list):
            place += name
            document = document[name]
    if isinstance(document, dict):
        yield f"{source}, line 1", document
    else:
        yield from ((f"{place}[{i}]", row) for i, row in enumerate(document))


def _fields(head: str) -> set[str]:
    """The fields of the first records of JSON, with the names of the fields that contain them."""
    import ijson

    fields = []
    with suppress(ijson.JSONError):  # where the head ends
        for place, event, name in ijson.parse(head.encode(), buf_size=1024, multiple_values=True):
            if place.count(".") > 9:  # places of a file of brackets would fill the memory
                break
            if event == "map_key":
                path = f"{place}.{name.removeprefix(MARK)}".replace("item.", "").removeprefix(".")
                fields.append(path.removeprefix("data."))
    return {"x1|x2"} if fields and fields[0].count("|") >= 7 else {*fields}


def csv_rows(source: str, *, tabs: bool) -> Table:
    """Read the rows of a table separated by commas or tabs, all as text.

    Fields between tabs are quoted only if the whole file follows the rules of quoting. DataError
    for another file, and for a row that is not as long as the header.
    """
    if not tabs:
        return _cells(source, ",", csv.QUOTE_MINIMAL)
    with suppress(DataError):
        return _cells(source, "\t", csv.QUOTE_MINIMAL)
    return _cells(source, "\t", csv.QUOTE_NONE)


def _cells(source: str, delimiter: str, quoting: Any) -> Table:
    csv.field_size_limit(sys.maxsize)
    table = []
    with (
        as_data_error(f"{source}: not a table in JSON Lines, CSV or parquet"),
        open(source, encoding="utf-8-sig", newline="") as file,
    ):
        rows = csv.reader(file, delimiter=delimiter, quoting=quoting, strict=True)
        names = next(rows)
        for row in filter(None, rows):
            if len(row) != len({*names}):
                raise DataError(
                    f"{source}, line {rows.line_num}: {len(row)} fields, and the header has "
                    f"{len({*names})} names; quote a text that holds the separator"
                )
            table.append(dict(zip(names, row, strict=True)))
    return table


def folder_and_split(name: str) -> tuple[Path, str]:
    """Split FOLDER:SPLIT; the split is "" if the name has none, or is no folder's."""
    folder, _, split = name.rpartition(":")
    if os.path.exists(name) or not os.path.isdir(folder):
        return Path(name), ""
    return Path(folder), split


def table_rows(name: str) -> Table:
    """Read the rows of `NAME[:SPLIT]` from the Hugging Face Hub, or of a local folder.

    A slice such as `validation[:100]` is also a split. Without a split there must be only one. A
    third part of a Hub NAME selects a configuration: `hotpotqa/hotpot_qa/distractor:validation`.
    """
    import datasets

    folder, _, split = name.partition(":")
    if not folder:
        raise DataError(
            "hub: names no dataset; write hub:NAME[:SPLIT], as hub:rajpurkar/squad:train"
        )
    parts = folder.split("/")
    path, local_split = folder_and_split(name)
    if os.path.isdir(path):
        folder = str(path)
        split = local_split
        parts = [folder]
    with as_data_error(f"{name}: cannot load this dataset"):
        if any(os.path.isfile(path / file) for file in ("dataset_dict.json", "state.json")):
            table = datasets.load_from_disk(folder)
            table = table[split] if split else table
        else:
            table = datasets.load_dataset("/".join(parts[:2]), *parts[2:], split=split or None)
    if not isinstance(table, dict):
        return table
    if len(table) > 1:
        raise DataError(
            f"{folder}: name one of its splits, as {folder}:{next(iter(table))} "
            f"({', '.join(table)})"
        )
    return next(iter(table.values()))
