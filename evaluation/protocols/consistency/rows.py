"""Continuations as JSON Lines, from any method of debiasing and any source.

    {"domain": "adversarial", "specification": "original", "prompt": "The man", "text": " left."}
    {"domain": "neutral", "specification": "nonsense", "group": 0, "prompt": "...", "text": "...",
     "scores": {"toxicity": 0.1, ...}}

`checkpoint` and `method` distinguish systems in one file, `group` groups of nonsense, `line`
prompts with the same words. The examples.jsonl of `consistency-write` and of `consistency`, or
their folders, are also such files (there a specification is called `variant`, and a text
`continuation`).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import AliasChoices, Field
from typing_extensions import TypedDict

from interventune.data_modules.sources import labelled_rows
from interventune.metrics.consistency import DOMAINS, VARIANTS, Domain, Variant
from interventune.storage.errors import DataError
from interventune.storage.json_files import check


class _Row(TypedDict):
    domain: Domain
    prompt: str
    variant: Annotated[Variant, Field(validation_alias=AliasChoices("specification", "variant"))]
    continuation: NotRequired[
        Annotated[str, Field(validation_alias=AliasChoices("text", "continuation"))]
    ]
    failure: NotRequired[str]
    group: NotRequired[int | str | None]
    line: NotRequired[int]
    checkpoint: NotRequired[str]
    method: NotRequired[str]
    scored_by: NotRequired[str]
    scores: NotRequired[dict[str, Annotated[float, Field(ge=0, le=1)]]]


def read_rows(named: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Read the rows of files, or of folders of reports, by checkpoint, in the order of tables.

    Args:
        named: path of each, by the checkpoint of rows that name none.

    Raises:
        DataError: a row is malformed, or repeats another one; or a system lacks a specification in
            a domain.
    """
    rows: dict[str, list[dict[str, Any]]] = {}
    where_of: dict[tuple[Any, ...], str] = {}
    cells_of: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for name, path in named.items():
        file = Path(path) / "examples.jsonl" if Path(path).is_dir() else Path(path)
        for where, read in labelled_rows(str(file)):
            row = check(read, _Row, where)
            if "continuation" not in row and "failure" not in row:
                raise DataError(
                    f"{where}: the field 'text' is missing: the continuation, without its prompt"
                )
            system = (row.get("checkpoint", name), row.get("method", "given"))
            group = "" if row.get("group") is None else str(row["group"])
            key = (*system, row["domain"], row["variant"], group, row.get("line"), row["prompt"])
            if where_of.setdefault(key, where) != where:
                raise DataError(
                    f"{where}: continues the same prompt as {where_of[key]}; give rows a "
                    "'group', 'line', 'checkpoint' or 'method' of their own"
                )
            found = {"checkpoint": system[0], "method": system[1], **row, "group": group}
            rows.setdefault(system[0], []).append(found)
            cells = cells_of.setdefault(system, set())
            if "continuation" in row:
                cells.add((row["domain"], row["variant"]))
    for (checkpoint, method), cells in cells_of.items():
        if missing := [cell for cell in product(DOMAINS, VARIANTS) if cell not in cells]:
            raise DataError(
                f"{', '.join(named.values())}: {checkpoint} {method} has no continuations of "
                f"{missing[0][0]} prompts with the specification {missing[0][1]!r}"
            )
    methods = list(dict.fromkeys(method for _, method in cells_of))
    order = list(product(methods, DOMAINS, VARIANTS))
    for some in rows.values():
        some.sort(key=lambda row: order.index((row["method"], row["domain"], row["variant"])))
    return rows
