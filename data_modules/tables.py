"""Rows of tables: CSV, and anything that the `datasets` library loads from a folder or the Hub."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from interventune.storage.errors import DataError, as_data_error


def csv_rows(source: str, *, tabs: bool) -> Iterable[Mapping[str, Any]]:
    """Read the rows of a table separated by commas or tabs, all as text; DataError for another
    file. Fields between tabs are quoted only if the whole file follows the rules of quoting.
    """
    import pandas as pd

    how: dict[str, Any] = {"sep": "\t"} if tabs else {}
    if tabs and not _quoted(source):
        how["quoting"] = csv.QUOTE_NONE
    try:
        frame = pd.read_csv(source, dtype=str, keep_default_na=False, encoding="utf-8-sig", **how)
    except ValueError as error:  # from pandas, or for text that is not UTF-8
        raise DataError(f"{source}: not a table in JSON Lines, CSV or parquet: {error}") from None
    return frame.to_dict("records")


def _quoted(source: str) -> bool:
    """Whether every row has as many fields as the header when quoted fields may hold tabs and new
    lines.
    """
    with (
        suppress(csv.Error, UnicodeDecodeError),
        open(source, encoding="utf-8-sig", newline="") as file,
    ):
        return len({len(row) for row in csv.reader(file, delimiter="\t", strict=True) if row}) == 1
    return False


def folder_and_split(name: str) -> tuple[Path, str]:
    """Split FOLDER:SPLIT; the split is "" if the name has none, or is no folder's."""
    folder, _, split = name.rpartition(":")
    if os.path.exists(name) or not folder or not os.path.isdir(folder):
        return Path(name), ""
    return Path(folder), split


def table_rows(name: str) -> Iterable[Mapping[str, Any]]:
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
    parts, (path, of_path) = folder.split("/"), folder_and_split(name)
    if os.path.isdir(path):
        folder, split, parts = str(path), of_path, [str(path)]
    with as_data_error(f"{name}: cannot load this dataset"):
        if any(os.path.isfile(path / file) for file in ("dataset_dict.json", "state.json")):
            loaded = datasets.load_from_disk(folder)
            loaded = loaded[split] if split else loaded
        else:
            loaded = datasets.load_dataset("/".join(parts[:2]), *parts[2:], split=split or None)
    splits: dict[str, Iterable[Mapping[str, Any]]] = (
        loaded if isinstance(loaded, dict) else {"": loaded}
    )
    if len(splits) > 1:
        raise DataError(
            f"{folder}: name one of its splits, as {folder}:{next(iter(splits))} "
            f"({', '.join(splits)})"
        )
    return next(iter(splits.values()))
