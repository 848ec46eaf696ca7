"""Tables of any fields: of the Hugging Face Hub, a folder, parquet, JSON or CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from storage.errors import DataError, as_data_error
from storage.files import open_file
from storage.json_files import json_lines, load_json


def labelled_rows(source: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(place, row) of a table of any fields: from the Hub, a folder, parquet, JSON Lines, a JSON list, or CSV
    (with tabs too). DataError where there is none, and for a file without rows."""
    return rows_of(source, *begun(source))


def begun(source: str) -> tuple[str, Iterable[Mapping[str, Any]] | None]:
    """How a file of text begins; or "" and the rows of a dataset of the Hub, a folder or a parquet file.
    DataError where there is none."""
    name, path = source.removeprefix("hub:"), Path(source)
    folder, colon, _ = source.rpartition(":")
    if name != source or path.is_dir() or (colon and not path.exists() and Path(folder).is_dir()):
        return "", table_rows(name)
    if not path.exists():
        raise DataError(f"{source}: no such file (other sources begin with hub:, stories: or domains:)")
    with open_file(path) as file:
        head = file.read(1 << 20)  # which should hold the first record
    if head[:4] != b"PAR1":
        return head.decode("utf-8-sig", errors="ignore").lstrip(), None
    import datasets  # slow to import, and only tables need it
    from pyarrow.parquet import read_table

    return "", datasets.Dataset(read_table(source))


def rows_of(source: str, head: str, table: Iterable[Mapping[str, Any]] | None) -> Iterator[tuple[str, Any]]:
    if table is None and head[:1] == "[":
        yield from ((f"{source}: [{i}]", row) for i, row in enumerate(load_json(source, list[Any])))
        return
    if table is None and head[:1] == "{":
        yield from json_lines(source, dict[str, Any])
        return
    if table is None:
        import pandas as pd

        tabs = "\t" in head.partition("\n")[0]
        how: dict[str, Any] = {"sep": "\t", "quoting": csv.QUOTE_NONE} if tabs else {}
        try:
            frame = pd.read_csv(source, dtype=str, keep_default_na=False, encoding="utf-8-sig", **how)
        except ValueError as error:  # of pandas, and of texts that are not UTF-8
            raise DataError(f"{source}: not a table in JSON Lines, CSV or parquet: {error}") from None
        table = frame.to_dict("records")
    yield from ((f"{source.removeprefix('hub:')}: row {i}", row) for i, row in enumerate(table))


def table_rows(name: str) -> Iterable[Mapping[str, Any]]:
    """The rows of `NAME[:SPLIT]` from the Hugging Face Hub, or of a local folder.

    A slice such as `validation[:100]` is a split too. Without a split there must be only one. A third part of
    a NAME of the Hub chooses among its configurations: `hotpotqa/hotpot_qa/distractor:validation`.
    """
    import datasets

    folder, _, split = name.rpartition(":")
    if Path(name).is_dir():
        folder, split = name, ""
    elif not folder or not Path(folder).is_dir():
        folder, _, split = name.partition(":")
    if not folder:
        raise DataError("hub: names no dataset; write hub:NAME[:SPLIT], as hub:rajpurkar/squad:train")
    parts = folder.split("/") if not Path(folder).exists() else [folder]
    with as_data_error(f"{name}: cannot load this dataset"):
        if any((Path(folder) / file).is_file() for file in ("dataset_dict.json", "state.json")):
            loaded = datasets.load_from_disk(folder)
            loaded = loaded[split] if split else loaded
        else:
            names = ("/".join(parts[:2]), parts[2]) if len(parts) == 3 else (folder,)
            loaded = datasets.load_dataset(*names, split=split or None)
    splits: dict[str, Iterable[Mapping[str, Any]]] = loaded if isinstance(loaded, dict) else {"": loaded}
    if len(splits) > 1:
        known = ", ".join(splits)
        raise DataError(f"{folder}: name one of its splits, as {folder}:{next(iter(splits))} ({known})")
    return next(iter(splits.values()))
