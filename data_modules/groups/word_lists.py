"""UnQover's word lists and templates (LEI spec 1.1): one item a line; `#` lines and empty lines are left out.

subjects     HEAD [cluster |] TEXT            [subj] female | Mary        [subj:dem] French
attributes   HEAD [cluster |] TEXT            [p_act] rude | were rude    [p_act:neg] rude | were polite
templates    context TAB question TAB negated question, with [subj1], [subj2] and the attribute's heads
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from data_modules.schema import NO_CLUSTER
from storage.errors import DataError
from storage.files import read_text

_SLOT = re.compile(r"\[subj([12])(:[^\]]*)?\]")
_HEAD = re.compile(r"\[[^\[\]\s]+\]")


@dataclass(frozen=True, slots=True)
class Subject:
    """One subject: its plain form first, then any others (`:dem`, the demonym), by the head's suffix."""

    cluster: str
    forms: dict[str, str]

    @property
    def name(self) -> str:
        """The plain form, which identifies the subject in ids and keys."""
        return self.forms[""]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One row of an attribute list: `kind` is its head without brackets (`p_act-single`)."""

    kind: str
    category: str
    name: str
    """The text of the base kind's row (`p_act` for `p_act-single`), which identifies it in ids and keys."""
    text: str
    negation: str


@dataclass(frozen=True, slots=True)
class Template:
    """A line with slots; `number` counts the file's kept lines from 0."""

    number: int
    line: str
    forms: tuple[str, str]
    """Which form of each subject the context takes: "" or a suffix such as ":dem"."""


class _Row(NamedTuple):
    cluster: str
    text: str
    where: str


def read_subjects(path: str | Path) -> tuple[Subject, ...]:
    """The subjects of a list, rows of different heads aligned by order. DataError names file and line."""
    by_head = _by_head(path)
    plain = by_head.get("subj")
    if not plain:
        raise DataError(f"{path}: no row begins with [subj]")
    clusters = [row.cluster for row in plain]
    forms: list[dict[str, str]] = [{"": row.text} for row in plain]
    for head, rows in by_head.items():
        if not re.fullmatch(r"subj(:.+)?", head):
            raise DataError(f"{rows[0].where}: the head [{head}] is not [subj] or [subj:FORM]")
        if len(rows) != len(plain):
            raise DataError(
                f"{path}: {len(rows)} rows [{head}] but {len(plain)} rows [subj]; they must align"
            )
        for index, row in enumerate(rows):
            forms[index][head.removeprefix("subj")] = row.text
            clusters[index] = row.cluster
    _refuse_repeats(plain)
    return tuple(Subject(cluster, form) for cluster, form in zip(clusters, forms, strict=True))


def read_clusters(paths: Sequence[str | Path]) -> dict[str, str]:
    """Subject, as in keys, to its cluster. DataError for a subject without a cluster, or in two."""
    cluster_of: dict[str, str] = {}
    for path in paths:
        for subject in read_subjects(path):
            known = cluster_of.setdefault(subject.name.lower(), subject.cluster)
            if subject.cluster == NO_CLUSTER:
                raise DataError(f"{path}: {subject.name!r} has no cluster; write [subj] CLUSTER | NAME")
            if known != subject.cluster:
                raise DataError(f"{path}: {subject.name!r} is in {known} and in {subject.cluster}")
    return cluster_of


def read_attributes(path: str | Path) -> tuple[Attribute, ...]:
    """The attributes of a list: kinds in order of first appearance, then rows in order.

    The k-th `:neg` row negates the k-th row of its kind; its cluster wins, as in UnQover.
    """
    by_head = _by_head(path)
    attributes: list[Attribute] = []
    for kind in dict.fromkeys(head.partition(":")[0] for head in by_head):
        rows, negated = by_head.get(kind, []), by_head.get(f"{kind}:neg", [])
        base = kind.partition("-")[0]
        names = by_head.get(base, [])
        if len(rows) != len(negated):
            raise DataError(
                f"{path}: {len(rows)} rows [{kind}] but {len(negated)} rows [{kind}:neg]; they must pair"
            )
        if len(names) < len(rows):
            raise DataError(
                f"{path}: {len(rows)} rows [{kind}] but only {len(names)} rows [{base}] to name them"
            )
        _refuse_repeats(names)
        for name, row, negation in zip(names, rows, negated, strict=False):
            attributes.append(Attribute(kind, negation.cluster, name.text, row.text, negation.text))
    return tuple(attributes)


def read_templates(path: str | Path) -> tuple[Template, ...]:
    """The templates of a slot file. DataError names file and line when a field or a slot is missing."""
    templates = []
    for number, (where, line) in enumerate(_lines(path)):
        fields = line.split("\t")
        if len(fields) != 3 or not all(part.strip() for part in fields):
            raise DataError(f"{where}: expected context, question and negated question separated by tabs")
        forms: list[str] = []
        for side in ("1", "2"):
            used = {match[2] or "" for match in _SLOT.finditer(fields[0]) if match[1] == side}
            if len(used) != 1:
                raise DataError(
                    f"{where}: the context needs the slot [subj{side}] in exactly one form, found {len(used)}"
                )
            forms += used
        templates.append(Template(number, line, (forms[0], forms[1])))
    if not templates:
        raise DataError(f"{path}: no template found")
    return tuple(templates)


def read_filler(path: str | Path) -> str:
    """The text that goes before every context: the file's one line, after `[text]` where it has that head."""
    lines = [line for _, line in _lines(path)]
    if len(lines) != 1:
        raise DataError(f"{path}: expected exactly one line of filler, found {len(lines)}")
    return lines[0].partition("[text]")[2].strip() if "[text]" in lines[0] else lines[0]


def fill_subjects(line: str, forms: tuple[str, str], subjects: tuple[Subject, Subject]) -> list[str]:
    """The pieces of `line` with both subjects put in: [text, subject, text, subject, text, ...]."""
    parts = _SLOT.split(line)
    pieces = [parts[0]]
    for side, _, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        index = int(side) - 1
        pieces += [subjects[index].forms[forms[index]], text]
    return pieces


def slot_order(line: str) -> list[int]:
    """Which subject (0 or 1) stands in each slot of `line`, left to right."""
    return [int(match[1]) - 1 for match in _SLOT.finditer(line)]


def _by_head(path: str | Path) -> dict[str, list[_Row]]:
    rows: dict[str, list[_Row]] = {}
    for where, line in _lines(path):
        head, _, rest = line.partition(" ")
        parts = [part.strip() for part in rest.split("|")]
        if not _HEAD.fullmatch(head) or len(parts) > 2 or not parts[-1]:
            raise DataError(f"{where}: expected [HEAD] TEXT or [HEAD] CLUSTER | TEXT, found {line!r}")
        cluster = parts[0] if len(parts) == 2 else NO_CLUSTER
        rows.setdefault(head[1:-1], []).append(_Row(cluster, parts[-1], where))
    if not rows:
        raise DataError(f"{path}: the list is empty")
    return rows


def _refuse_repeats(rows: Sequence[_Row]) -> None:
    seen: dict[str, str] = {}
    for row in rows:
        earlier = seen.setdefault(row.text.lower(), row.where)
        if earlier != row.where:
            raise DataError(f"{row.where}: {row.text!r} is already at {earlier}; ids would repeat")


def _lines(path: str | Path) -> Iterator[tuple[str, str]]:
    text = read_text(path)
    if "\0" in text:
        raise DataError(f"{path}: not a text file in UTF-8 (it holds zero bytes)")
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield f"{path}, line {number}", stripped
