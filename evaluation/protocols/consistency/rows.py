"""Continuations as JSON Lines, from any method of debiasing and any source.

    {"domain": "adversarial", "specification": "original", "prompt": "The man", "text": " left."}
    {"domain": "neutral", "specification": "nonsense", "group": 0, "prompt": "...", "text": "...",
     "scores": {"toxicity": 0.1, ...}}

`checkpoint` and `method` distinguish systems in one file, `group` groups of nonsense, `line`
prompts with the same words. The examples.jsonl of `consistency-write` and of `consistency`, or
their folders, are also such files (there a specification is called `variant`, and a text
`continuation`).
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import AliasChoices, Field
from typing_extensions import TypedDict

from interventune.data_modules.sources import labelled_rows
from interventune.evaluation.results import Row
from interventune.metrics.consistency import DOMAINS, VARIANTS, Domain, Variant
from interventune.storage.documents import DataError, check
from interventune.storage.progress import progress


class Continuation(TypedDict):
    """A row of a file."""

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


KEY = ("checkpoint", "method", "domain", "variant", "group", "line", "prompt")
"""The fields that no two rows have in common."""


def read_rows(named: Mapping[str, str]) -> dict[str, list[Row]]:
    """Read the rows of files, or of folders of reports, by checkpoint, in the order of tables.

    Args:
        named: path of each, by the checkpoint of rows that name none.

    Raises:
        DataError: a row is malformed, or repeats another one; or a system lacks a specification in
            a domain.
    """
    every = list[Row]()
    place_of: dict[tuple[Any, ...], str] = {}
    for name, path in named.items():
        file = Path(path) / "examples.jsonl" if Path(path).is_dir() else path
        for where, value in labelled_rows(file):
            row: Row = {"checkpoint": name, "method": "given"}
            row |= check(value, Continuation, where)
            if not {"continuation", "failure"} & {*row}:
                raise DataError(
                    f"{where}: the field 'text' is missing: the continuation, without its prompt"
                )
            row["group"] = "" if row.get("group") is None else str(row["group"])
            key = tuple(map(row.get, KEY))
            if place_of.setdefault(key, where) != where:
                raise DataError(
                    f"{where}: continues the same prompt as {place_of[key]}; give rows a "
                    "'group', 'line', 'checkpoint' or 'method' of their own"
                )
            every.append(row)
    systems = dict.fromkeys((row["checkpoint"], row["method"]) for row in every)
    cells = {tuple(map(row.get, KEY[:4])) for row in every if "continuation" in row}
    for system, domain, variant in product(systems, DOMAINS, VARIANTS):
        if (*system, domain, variant) not in cells:
            raise DataError(
                f"{', '.join(named.values())}: {' '.join(system)} has no continuations of "
                f"{domain} prompts with the specification {variant!r}"
            )
    methods = dict.fromkeys(method for _, method in systems)
    order: list[tuple[Any, ...]] = [*product(methods, DOMAINS, VARIANTS)]
    every.sort(key=lambda row: order.index(tuple(map(row.get, KEY[1:4]))))
    return {name: [row for row in every if row["checkpoint"] == name] for name, _ in systems}


def by_text(
    values_of: Callable[[list[str]], Iterable[Any]], texts: Iterable[str], what: str
) -> dict[str, Any]:
    """Return the value of every different text, computed from the longest to the shortest; `what`
    names the progress bar.
    """
    different = sorted(set(texts), key=lambda text: (-len(text), text))
    bar = progress(values_of(different), what, "text", len(different))
    return dict(zip(different, bar, strict=True))
