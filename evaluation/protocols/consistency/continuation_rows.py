"""Continuations that were written elsewhere, by any method of debiasing, as JSON Lines.

    {"domain": "adversarial", "specification": "original", "prompt": "The man turned and", "text": " left."}
    {"domain": "neutral", "specification": "nonsense", "group": 0, "prompt": "...", "text": "...",
     "scores": {"toxicity": 0.1, ...}}

Rows with the same place and prompt are several continuations of it; `group` tells groups of nonsense apart (1
and "1" are one). `checkpoint`, `method` and `decay` tell
systems in one file apart. `scores`, of all rows or none, are another scorer's. The examples.jsonl of a report
of `consistency`, or its folder, is such a file, too (there a specification is called `variant`, and a text
`continuation`; `failure` says why there is none).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NotRequired

from pydantic import AliasChoices, ConfigDict, Field, with_config
from typing_extensions import TypedDict

from evaluation.report import source_record
from evaluation.results import Row, grouped
from evaluation.scorers.interface import ATTRIBUTES
from metrics.consistency import COMPARED, DOMAINS, VARIANTS, Domain, Variant
from metrics.intervals import Interval
from models.language.text_models import TextFailure
from storage.errors import DataError
from storage.json_files import json_lines

log = logging.getLogger(__name__)

UNNAMED = "given"
"""The scorer of scores in a file that does not name it, and the method of rows that do not."""

SYSTEM = ("checkpoint", "method", "decay")
"""What tells systems apart."""

_Score = Annotated[float, Field(ge=0, le=1)]


@with_config(ConfigDict(extra="allow"))
class _Row(TypedDict):
    domain: Domain
    prompt: str
    variant: Annotated[Variant, Field(validation_alias=AliasChoices("specification", "variant"))]
    continuation: NotRequired[Annotated[str, Field(validation_alias=AliasChoices("text", "continuation"))]]
    failure: NotRequired[str]
    group: NotRequired[int | str | None]
    line: NotRequired[int]
    checkpoint: NotRequired[str]
    method: NotRequired[str]
    decay: NotRequired[float | str]
    scored_by: NotRequired[str]
    scores: NotRequired[dict[str, _Score]]
    other_scores: NotRequired[dict[str, dict[str, _Score]]]


class Written(NamedTuple):
    """Continuations with their places, and what is known about them."""

    title: str
    rows: list[dict[str, Any]]
    """See `measures.long_table`; `judged` holds what `scorers` gave."""
    scorers: list[dict[str, Any]]
    """Whose scores are there already."""
    about: dict[str, Any]
    perplexities: Sequence[tuple[dict[str, Any], tuple[float, Interval, int]]] = ()
    warnings: Sequence[str] = ()
    """What does not go together in the rows."""


def read_written(named: Mapping[str, str], limit: int = 0, *, rescore: bool = False) -> Written:
    """The continuations of files, or of reports of this protocol.

    Args:
        named: path of each, by the checkpoint of rows that name none.
        limit: the first N prompts of each domain of a system; 0 for all.
        rescore: leave out scores that they bring.

    Raises:
        DataError: a row is of another shape, two files hold one system, only some rows have scores by a
            scorer, a specification has no continuations in a domain, or two that are compared have no
            prompt in common.
    """
    rows: list[dict[str, Any]] = []
    file_of: dict[tuple[Any, ...], Path] = {}
    files = {}
    warnings: list[str] = []
    for name, path in named.items():
        files[name] = file = Path(path) / "examples.jsonl" if Path(path).is_dir() else Path(path)
        new = list(_rows(file, name, rescore=rescore))
        for system, members in grouped(new, SYSTEM):
            who = " ".join(str(part) for part in system.values() if part != "")
            if (other := file_of.setdefault(tuple(system.values()), file)) != file:
                raise DataError(
                    f"{file}: {other} holds {who}, too; give rows a 'checkpoint' or 'method' of their own"
                )
            kept = _limited(members, limit, f"{file}: {who}")
            warnings += [f"{who}: {text}" for text in _unbalanced(kept, f"{file}: {who}")]
            rows += kept
    for text in warnings:
        log.warning("%s", text)
    scorers = list(dict.fromkeys(name for row in rows for name in row["judged"]))
    for row in rows:
        if (failure := row.pop("unscored", None)) and scorers:
            row["judged"] = dict.fromkeys(scorers, failure)
    attributes: dict[str, list[str]] = {}
    for scorer in scorers:
        scored = [row["judged"].get(scorer, {}) for row in rows if "failure" not in row]
        scored = [scores for scores in scored if not isinstance(scores, TextFailure)]
        attributes[scorer] = [name for name in ATTRIBUTES if all(name in scores for scores in scored)]
        bare = [row["where"] for row in rows if "failure" not in row and not row["judged"].get(scorer)]
        if not attributes[scorer]:
            what = "the rows' scores by {!r} have no attribute in common"
            where = ", ".join(map(str, files.values()))
            if bare:
                where = min(bare, key=lambda where: int(where.rpartition(" ")[2]))
                what = "only some rows have scores by {!r}, and this one has none"
            raise DataError(
                f"{where}: {what.format(scorer)}; give all of them, or leave them out with --rescore"
            )
    for row in rows:
        del row["where"]
    records = {name: source_record(str(file)) for name, file in files.items()}
    version = " ".join(record["sha256"][:12] for record in records.values())
    return Written(
        "Debiasing consistency",
        rows,
        [{"name": name, "version": version, "attributes": found} for name, found in attributes.items()],
        {"continuations": records},
        warnings=warnings,
    )


def _limited(rows: Sequence[Row], limit: int, where: str) -> list[dict[str, Any]]:
    """The rows of a system's first prompts; DataError where a specification has none in a domain."""
    kept = []
    for domain in DOMAINS:
        domain_rows = [row for row in rows if row["domain"] == domain]
        for variant in VARIANTS:
            if not any(row["variant"] == variant for row in domain_rows):
                raise DataError(
                    f"{where} has no continuations of {domain} prompts with the specification {variant!r}; "
                    f"the protocol compares {', '.join(VARIANTS)} on both domains"
                )
        prompts = list(dict.fromkeys((row.get("line"), row["prompt"]) for row in domain_rows))
        first = set(prompts[: limit or None])
        kept += [dict(row) for row in domain_rows if (row.get("line"), row["prompt"]) in first]
    return kept


def _unbalanced(rows: Sequence[Row], where: str) -> list[str]:
    """What does not go together in the rows of a system: prompts that only some specifications continue,
    different numbers of continuations, and groups that are not what they seem. DataError where two
    specifications that are compared share no prompt."""
    missing, unequal, ungrouped = list[str](), list[str](), list[str]()
    names: dict[str, set[str]] = {}
    for domain in DOMAINS:
        prompts: dict[str, set[Any]] = {}
        times: dict[
            str, Counter[Any]
        ] = {}  # how often each specification, or group of it, continues a prompt
        for cell, members in grouped(rows, ("domain", "variant", "group")):
            if cell["domain"] == domain:
                group = "" if cell["group"] is None else f" (group {cell['group']})"
                number = Counter((row.get("line"), row["prompt"]) for row in members)
                times[cell["variant"] + group] = number
                prompts.setdefault(cell["variant"], set()).update(number)
        names[domain] = set(times)
        for one, other in COMPARED:
            if not prompts[one] & prompts[other]:
                raise DataError(
                    f"{where}, {domain}: no prompt is continued with both {one!r} and {other!r}; they are "
                    "compared on the same prompts (same text, and same 'line' where rows have one)"
                )
        total = len(set().union(*prompts.values()))
        for name, number in times.items():
            if left := total - len(number):
                missing.append(f"{name}: {left} of {total} {domain} prompts have no continuation")
            if len(several := Counter(number.values())) > 1:
                counts = ", ".join(f"{count} with {n}" for n, count in sorted(several.items()))
                unequal.append(f"{name}: {domain} prompts have different numbers of continuations ({counts})")
        most = max(times.get("nonsense", Counter()).values(), default=0)
        if "default" in times and most > max(times["default"].values()):
            ungrouped.append(
                f"nonsense without 'group': up to {most} continuations of one of the {domain} prompts "
                "count as draws of one specification; give rows a 'group' where they are of several"
            )
    if only := names["adversarial"] ^ names["neutral"]:
        ungrouped.append(f"on prompts of one domain only: {', '.join(sorted(only))}")
    return [
        *_joined(missing, "a rate counts what there is, a difference only prompts that both have"),
        *_joined(unequal, "rates weight continuations alike, differences prompts; are rows there twice?"),
        *ungrouped,
    ]


def _joined(parts: Sequence[str], why: str) -> list[str]:
    """One line of them, or none."""
    more = f"; and {len(parts) - 3} more" if len(parts) > 3 else ""
    return [f"{'; '.join(parts[:3])}{more} ({why})"] if parts else []


def _rows(file: Path, name: str, *, rescore: bool) -> Iterator[dict[str, Any]]:
    """The rows as the measures take them; `unscored` says why there are no scores."""
    unread: dict[str, str] = {}
    for where, row in json_lines(file, _Row, expected="domain, specification, prompt and text"):
        for key in row.keys() - _Row.__annotations__.keys():
            unread.setdefault(key, where)
        if "continuation" not in row and "failure" not in row:
            raise DataError(f"{where}: the field 'text' is missing: the continuation, without its prompt")
        if unknown := sorted({a for scores in _scores(row).values() for a in scores} - set(ATTRIBUTES)):
            raise DataError(f"{where}: no attribute {unknown[0]!r}; expected {', '.join(ATTRIBUTES)}")
        found: dict[str, Any] = {
            "checkpoint": row.get("checkpoint", name),
            "method": row.get("method", UNNAMED),
            "decay": row.get("decay", ""),
            "domain": row["domain"],
            "variant": row["variant"],
            "group": None if (group := row.get("group")) is None else str(group),
            **({"line": row["line"]} if "line" in row else {}),
            "prompt": row["prompt"],
            "where": where,
        }
        found["judged"] = {} if rescore else _scores(row)
        if "continuation" not in row:
            found["failure"] = TextFailure(row["failure"])
        else:
            found["continuation"] = row["continuation"]
            if "failure" in row and not rescore:  # was written, and could not be scored
                found["unscored"] = TextFailure(row["failure"])
        yield found
    if unread:
        first = next(iter(unread.values()))
        log.warning("%s: fields that are not read: %s", first, ", ".join(map(repr, sorted(unread))))


def _scores(row: _Row) -> dict[str, dict[str, float]]:
    """By scorer."""
    first = {row.get("scored_by", UNNAMED): row["scores"]} if "scores" in row else {}
    return {**first, **row.get("other_scores", {})}
