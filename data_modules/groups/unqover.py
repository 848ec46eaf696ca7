"""UnQover's word lists, and their expansion into underspecified questions (LEI spec 1.1 to 1.3).

subjects     HEAD [cluster |] TEXT            [subj] female | Mary        [subj:dem] French
attributes   HEAD [cluster |] TEXT            [p_act] rude | were rude    [p_act:neg] rude | were polite
templates    context TAB question TAB negated question, with [subj1], [subj2] and the attribute's heads

Lists have one item a line; `#` lines and empty lines are left out. The 2.7 million records of the gender
domain are never stored: they are a few lists and arithmetic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
from pathlib import Path
from typing import Any

from data_modules.groups.advice import Advice, with_advice
from data_modules.schema import NO_CLUSTER, Group, Span, UnderspecifiedQuestion
from storage.errors import DataError, as_data_error
from storage.files import read_text

_SLOT = re.compile(r"\[subj([12])(:[^\]]*)?\]")
# The article before a vowel letter, however the word is spoken ("an European"), between single blanks only:
# a tab keeps it from reaching from the context into a question.
_ARTICLE = re.compile(r"(?<![^ ])[aA](?= [aeiouAEIOU])")


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
class Cell:
    """A template with one attribute filled in: what every pair of subjects is put into."""

    template: int
    """Counts the kept lines of the file from 0."""
    category: str
    attribute: str
    """Its name in ids and keys."""
    line: str

    def fill(self, pair: SubjectPair) -> tuple[list[str], list[Span]]:
        """[context, question, negated question], articles repaired, and where the template put the subjects
        (counted: a search would find one inside another word)."""
        line, *rest = _SLOT.split(self.line)
        spans: dict[str, Span] = {}
        for side, form, text in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
            name = pair[int(side) - 1].forms[form or ""]
            start = len(repair_articles(line + name[0])) - 1
            spans.setdefault(side, Span(start, start + len(name), name))
            line += name + text
        return repair_articles(line).split("\t"), [spans["1"], spans["2"]]


SubjectPair = tuple[Subject, Subject]


def repair_articles(line: str) -> str:
    """`a European` -> `an European`: every lone article before a vowel letter (LEI spec 1.2, step 4)."""
    return _ARTICLE.sub(r"\g<0>n", line)


class Expansion(Sequence[Group]):
    """The groups of some lists, made when they are asked for: every pair of subjects with every cell, without
    advice, or with every `advice` of the cell's category."""

    def __init__(
        self, pairs: Sequence[SubjectPair], cells: Sequence[Cell], advice: Sequence[Advice] | None = None
    ) -> None:
        self.pairs, self.cells = tuple(pairs), tuple(cells)
        self._advised: list[tuple[Cell, Advice | None]] = [
            (cell, item)
            for cell in cells
            for item in ([None] if advice is None else advice)
            if item is None or item.category == cell.category.lower()
        ]

    def __len__(self) -> int:
        return len(self.pairs) * len(self._advised)

    def __getitem__(self, index: int) -> Group:  # type: ignore[override]  # no slices
        pair_index, rest = divmod(range(len(self))[index], len(self._advised))
        pair, (cell, advice) = self.pairs[pair_index], self._advised[rest]
        one, two = sorted(pair, key=lambda subject: subject.name.lower())
        variants: Any = []
        for order, step in (((one, two), 1), ((two, one), -1)):
            (context, *questions), spans = cell.fill(order)
            first, second = spans[::step]
            variants += (UnderspecifiedQuestion(context, text, (first, second)) for text in questions)
        names = (one.name.lower(), two.name.lower())
        parts = (str(cell.template), cell.category.lower(), cell.attribute.lower())
        group = Group(names, *parts, "none", "", tuple(variants))
        return with_advice(group, advice.text, advice.advice_class, advice.id) if advice else group


def read_expansion(
    subjects: Sequence[str | Path], templates: str | Path, attributes: str | Path
) -> Expansion:
    """The expansion of list files. Two subject files are paired with each other (UnQover: female, male), one
    with itself. DataError: rows of a list do not pair, a slot is missing, or cannot be filled."""
    lists = [read_subjects(path) for path in subjects]
    if len(lists) not in (1, 2):
        raise DataError(f"subjects: give one file, or two to be paired with each other, not {len(lists)}")
    pairs = list(combinations(lists[0], 2) if len(lists) == 1 else product(lists[0], lists[1]))
    for one, two in pairs:
        if one.name.lower() == two.name.lower():
            raise DataError(f"{subjects[-1]}: {one.name!r} would be paired with itself; name it once")
    rows, cells = [*read_attributes(attributes)], list[Cell]()
    for number, (where, line) in enumerate(listed(templates)):
        context, *questions = line.split("\t")
        used = sorted({(match[1], match[2] or "") for match in _SLOT.finditer(context)})
        if len(questions) != 2 or [side for side, _ in used] != ["1", "2"]:
            expected = "a context with [subj1] and [subj2], each in one form, question and negated question"
            raise DataError(f"{where}: expected {expected}, separated by tabs")
        fitting = [row for row in rows if f"[{row[0]}]" in line]
        if not fitting:
            raise DataError(f"{where}: no head of {attributes}")
        for match, subject in product(_SLOT.finditer(line), chain(*lists)):
            if (match[2] or "") not in subject.forms:
                raise DataError(f"{where}: {subject.name!r} has no row [subj{match[2] or ''}]")
        for kind, text, negation, category, name in fitting:
            filled = line.replace(f"[{kind}]", text).replace(f"[{kind}:neg]", negation)
            cells.append(Cell(number, category, name, filled))
    if not pairs or not cells:
        raise DataError(f"{subjects[-1]}, {templates}: needs two subjects and a template")
    return Expansion(pairs, cells)


def read_subjects(path: str | Path) -> tuple[Subject, ...]:
    """The subjects of a list, rows of different heads aligned by order; the last head's cluster counts."""
    by_head = {"subj": list[tuple[str, str]](), **_by_head(path)}
    suffixes = [head.removeprefix("subj") for head in by_head]
    with as_data_error(f"{path}: each subject needs a row of every head"):
        return tuple(
            Subject(rows[-1][0], dict(zip(suffixes, (text for _, text in rows), strict=True)))
            for rows in zip(*by_head.values(), strict=True)
        )


def read_clusters(paths: Sequence[str | Path]) -> dict[str, str]:
    """Subject, as in keys, to its cluster. DataError for a subject without a cluster, or in two."""
    cluster_of: dict[str, str] = {}
    for path in paths:
        for subject in read_subjects(path):
            known = cluster_of.setdefault(subject.name.lower(), subject.cluster)
            if known != subject.cluster or known == NO_CLUSTER:
                raise DataError(f"{path}: {subject.name!r} needs one cluster: [subj] CLUSTER | NAME")
    return cluster_of


def read_attributes(path: str | Path) -> Iterator[tuple[str, str, str, str, str]]:
    """(kind, text, negation, category, name) of the attributes of a list: kinds (`p_act-single`) in order of
    first appearance, then rows in order. The k-th `:neg` row negates the k-th row of its kind; its cluster
    wins, as in UnQover. The name is the text of the base kind's row (`p_act`)."""
    by_head = _by_head(path)
    for kind in dict.fromkeys(head.partition(":")[0] for head in by_head):
        rows, negated = by_head.get(kind, []), by_head.get(f"{kind}:neg", [])
        names = by_head.get(kind.partition("-")[0], [])
        if len(rows) != len(negated) or len(names) < len(rows):
            raise DataError(f"{path}: {len(rows)} rows [{kind}], but {len(negated)} rows [{kind}:neg]")
        for (_, name), (_, text), (cluster, negation) in zip(names, rows, negated, strict=False):
            yield kind, text, negation, cluster, name


def _by_head(path: str | Path) -> dict[str, list[tuple[str, str]]]:
    """Head -> [(cluster, text), ...], rows in order."""
    rows: dict[str, list[tuple[str, str]]] = {}
    for where, line in listed(path):
        if not (match := re.fullmatch(r"\[([^\[\]\s]+)\] ([^|]*\|)?\s*([^|]*\S)", line)):
            raise DataError(f"{where}: expected [HEAD] TEXT or [HEAD] CLUSTER | TEXT, found {line!r}")
        cluster = (match[2] or NO_CLUSTER).rstrip("|").strip()
        rows.setdefault(match[1], []).append((cluster, match[3]))
    return rows


def listed(path: str | Path) -> Iterator[tuple[str, str]]:
    """(place, line) of a list, without `#` lines and empty ones."""
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip() and not line.strip().startswith("#"):
            yield f"{path}, line {number}", line.strip()
