"""UnQover's word lists, the questions that are made from them, and its `source.json` (Li et al.
2020; Zhao et al. 2021, section 2.2).

subjects     HEAD [cluster |] TEXT            [subj] female | Mary        [subj:dem] French
attributes   HEAD [cluster |] TEXT            [p_act] rude | were rude    [p_act:neg] rude | were
polite templates    context TAB question TAB negated question, with [subj1], [subj2] and the
attribute's heads

Lists have one item per line; `#` lines and empty lines are ignored. UnQover's gender domain has 2.7
million records; they are computed from a few lists and never stored.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
from typing import Any, NamedTuple

from interventune.data_modules.schema.groups import (
    NO_CLUSTER,
    Advice,
    Group,
    UnderspecifiedQuestion,
    with_advice,
)
from interventune.data_modules.schema.questions import Span, TextPair, Texts
from interventune.storage.documents import (
    DataError,
    StrPath,
    Values,
    as_data_error,
    atomic_text,
    read_text,
)
from interventune.storage.progress import progress

SLOT = re.compile(r"\[subj([12])(:[^\]]*)?\]")
# The article before a vowel letter, whatever the pronunciation ("an European"), between single
# spaces only: a tab separates contexts from questions.
_ARTICLE = re.compile(r"(?<![^ ])[aA](?= [aeiouAEIOU])")


@dataclass(frozen=True)
class Subject:
    """One subject: its plain form first, then any others (`:dem`, the demonym), by the head's
    suffix.
    """

    forms: dict[str, str]
    cluster: str = NO_CLUSTER

    @property
    def name(self) -> str:
        """The plain form, which identifies the subject in ids and keys."""
        return self.forms[""]


@dataclass(frozen=True)
class Cell:
    """A template with one attribute filled in, to be combined with every pair of subjects."""

    template: int
    """Index among the kept lines of the file, from 0."""
    category: str
    attribute: str
    """Its name in ids and keys."""
    line: str
    advice: Advice | None = None

    def fill(self, pair: Sequence[Subject]) -> tuple[list[str], list[Span]]:
        """Return [context, question, negated question], with articles repaired, and the spans of
        the subjects (counted, because a search could find one inside another word).
        """
        line, *rest = SLOT.split(self.line)
        spans: dict[str, Span] = {}
        for side, form, text in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
            name = pair[int(side) - 1].forms[form or ""]
            start = len(repair_articles(line + name[0])) - 1
            spans.setdefault(side, Span(start, start + len(name), name))
            line += name + text
        return repair_articles(line).split("\t"), [spans["1"], spans["2"]]

    def group(self, *subjects: Subject) -> Group:
        """Return the group about two subjects, with the cell's advice."""
        pair = sorted(subjects, key=lambda subject: subject.name.lower())
        variants: Any = []
        for step in (1, -1):
            (context, *questions), spans = self.fill(pair[::step])
            first, second = spans[::step]
            variants += [
                UnderspecifiedQuestion(context, text, (first, second)) for text in questions
            ]
        names: Any = tuple(subject.name.lower() for subject in pair)
        what = (str(self.template), self.category.lower(), self.attribute.lower())
        group = Group(names, *what, "none", "", tuple(variants))
        if advice := self.advice:
            return with_advice(group, advice.text, advice.advice_class, advice.id)
        return group


def repair_articles(line: str) -> str:
    """`a European` -> `an European`: every separate article before a vowel letter, as UnQover's
    authors do.
    """
    return _ARTICLE.sub(r"\g<0>n", line)


class Expansion(NamedTuple):
    """The parts of groups: every pair is combined with every cell, and this with each advice of its
    category.
    """

    pairs: Sequence[Sequence[Subject]]
    cells: Sequence[Cell]
    advice: Sequence[Advice] = ()


def read_expansion(
    subjects: Sequence[StrPath], templates: StrPath, attributes: StrPath
) -> Expansion:
    """Read the expansion of list files. Two subject files are paired with each other (UnQover:
    female, male), one with itself. DataError: rows of a list do not pair, or a slot is missing or
    cannot be filled.
    """
    lists = [read_subjects(path) for path in subjects]
    if len(lists) not in (1, 2):
        raise DataError(
            f"subjects: give one file, or two to be paired with each other, not {len(lists)}"
        )
    pairs = list(product(*lists) if len(lists) == 2 else combinations(lists[0], 2))
    for one, two in pairs:
        if one.name.lower() == two.name.lower():
            raise DataError(
                f"{subjects[-1]}: {one.name!r} would be paired with itself; name it once"
            )
    rows = [*read_attributes(attributes)]
    cells = []
    for number, (where, line) in enumerate(listed(templates)):
        context, *questions = line.split("\t")
        slots = sorted({*SLOT.findall(context)})
        if len(questions) != 2 or [side for side, _ in slots] != ["1", "2"]:
            raise DataError(
                f"{where}: expected a context with [subj1] and [subj2], each in one form, "
                "question and negated question, separated by tabs"
            )
        fitting = [row for row in rows if f"[{row[0]}]" in line]
        if not fitting:
            raise DataError(f"{where}: no head of {attributes}")
        for (_, form), subject in product(SLOT.findall(line), chain(*lists)):
            if form not in subject.forms:
                raise DataError(f"{where}: {subject.name!r} has no row [subj{form}]")
        for kind, text, negation, category, name in fitting:
            filled = line.replace(f"[{kind}]", text).replace(f"[{kind}:neg]", negation)
            cells.append(Cell(number, category, name, filled))
    if not pairs or not cells:
        raise DataError(f"{subjects[-1]}, {templates}: needs two subjects and a template")
    return Expansion(pairs, cells)


def read_subjects(path: StrPath) -> tuple[Subject, ...]:
    """Read the subjects of a list, aligning rows of different heads; the last head's cluster
    counts.
    """
    by_head = {"subj": [], **_by_head(path)}
    suffixes = [head.removeprefix("subj") for head in by_head]
    with as_data_error(f"{path}: each subject needs a row of every head"):
        return tuple(
            Subject(dict(zip(suffixes, (text for _, text in rows), strict=True)), rows[-1][0])
            for rows in zip(*by_head.values(), strict=True)
        )


def read_clusters(paths: Sequence[StrPath]) -> dict[str, str]:
    """Subject, as in keys, to its cluster. DataError for a subject without a cluster, or in two."""
    cluster_of: dict[str, str] = {}
    for path in paths:
        for subject in read_subjects(path):
            known = cluster_of.setdefault(subject.name.lower(), subject.cluster)
            if known != subject.cluster or known == NO_CLUSTER:
                raise DataError(
                    f"{path}: {subject.name!r} needs one cluster: [subj] CLUSTER | NAME"
                )
    return cluster_of


def read_attributes(path: StrPath) -> Iterator[Texts]:
    """Yield (kind, text, negation, category, name) of a list's attributes: kinds (`p_act-single`)
    in order of first appearance, then rows in order. The k-th `:neg` row negates the k-th row of
    its kind; its cluster wins, as in UnQover. The name is the text of the base kind's row
    (`p_act`).
    """
    by_head = _by_head(path)
    for kind in dict.fromkeys(head.partition(":")[0] for head in by_head):
        rows = by_head[kind]
        negated = by_head[f"{kind}:neg"]
        names = by_head[kind.partition("-")[0]]
        if len(rows) != len(negated) or len(names) < len(rows):
            raise DataError(
                f"{path}: {len(rows)} rows [{kind}], but {len(negated)} rows [{kind}:neg]"
            )
        for (_, name), (_, text), (cluster, negation) in zip(names, rows, negated, strict=False):
            yield kind, text, negation, cluster, name


def _by_head(path: StrPath) -> dict[str, list[TextPair]]:
    """Head -> [(cluster, text), ...], rows in order; no rows for any other head."""
    by_head = defaultdict(list)
    for where, line in listed(path):
        match = re.fullmatch(r"\[([^\[\]\s]+)\] (?:([^|]*)\|)?\s*([^|]*\S)", line)
        if match is None:
            raise DataError(
                f"{where}: expected [HEAD] TEXT or [HEAD] CLUSTER | TEXT, found {line!r}"
            )
        head, cluster, text = match.groups(NO_CLUSTER)
        by_head[head].append((cluster.strip(), text))
    return by_head


def listed(path: StrPath) -> Iterator[TextPair]:
    """(place, line) of a list, without `#` lines and empty ones."""
    for number, line in enumerate(map(str.strip, read_text(path).split("\n")), start=1):
        if line and not line.startswith("#"):
            yield f"{path}, line {number}", line


def write_source(expansion: Expansion, path: StrPath) -> int:
    """Stream UnQover's own `source.json`, byte for byte as `json.dump(everything, indent=4)`;
    return the number of records, at least one.
    """
    pairs = [*expansion.pairs, *(pair[::-1] for pair in expansion.pairs)]
    count = len(pairs) * len(expansion.cells)
    records = progress(product(pairs, expansion.cells), "", "record", count)
    with atomic_text(path) as file:
        for i, ((one, two), cell) in enumerate(records):
            (context, *questions), spans = cell.fill((one, two))
            record: Values = {"context": context}
            answers = {
                f"ans{j}": {"text": span.text, "start": "", "end": ""}
                for j, span in enumerate(spans)
            }
            for j, text in enumerate(questions):
                record[f"q{j}"] = {"question": text, "pred": "", **answers}
            key = (
                f"{one.cluster}|{two.cluster}|{one.name}|{two.name}|"
                f"{cell.template}|{cell.category}|{cell.attribute}|{cell.attribute}"
            )
            file.write((",\n" if i else "{\n") + json.dumps({key: record}, indent=4)[2:-2])
        file.write("\n}")
    return count
