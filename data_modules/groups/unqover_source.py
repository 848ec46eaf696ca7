"""UnQover's `source.json`, read and written: one object keyed by id, two records (context orders) a group.

Ids have 8 fields, `cluster1|cluster2|x1|x2|template|category|attribute|attribute` with the subjects in
context order, or 9 with the advice's id (LEI spec 1.2, 2.4). Prediction files have the same layout with
numbers in `start` and `end`; these become base scores.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from data_modules.groups.pairing import (
    GroupKey,
    Half,
    Pair,
    ScoredGroup,
    advice_class,
    locate_pair,
    pair_halves,
    split_advice,
)
from data_modules.groups.unqover import Cell, Expansion, SubjectPair
from data_modules.schema import UnderspecifiedQuestion
from storage.errors import DataError
from storage.json_files import BadRecords, atomic_text, field, stream_object

ID_FIELDS = (8, 9)


def read_source(path: str | Path, *, skip_bad: bool = False) -> Iterator[ScoredGroup]:
    """The groups of a source or prediction file; the file is streamed, records waiting for their partner
    are held. Base scores are present where every `start` and `end` of a group is a number.

    Raises DataError naming the file and the id; `skip_bad=True` leaves such records out and logs how many.
    """
    bad = BadRecords(path, skip_bad=skip_bad)
    yield from pair_halves(_halves(path, bad), bad)
    bad.report()


def _halves(path: str | Path, bad: BadRecords) -> Iterator[Half]:
    for record_id, record in stream_object(path):
        try:
            yield _half(record_id, record, f"{path}: id {record_id!r}")
        except DataError as error:
            bad.reject(error)


def _half(record_id: str, record: Any, where: str) -> Half:
    key, swapped = _parse_id(record_id, where)
    context = field(record, "context", str, where)
    parsed = [_question(field(record, q, dict, where), context, key, f"{where}, {q}") for q in ("q0", "q1")]
    if swapped:
        parsed = [
            (
                UnderspecifiedQuestion(q.context, q.question, (q.candidates[1], q.candidates[0]), q.advice),
                scores and (scores[1], scores[0]),
            )
            for q, scores in parsed
        ]
    (one, scores_one), (two, scores_two) = parsed
    if (scores_one is None) != (scores_two is None):
        alone = "q1" if scores_one is None else "q0"
        raise DataError(f"{where}: only {alone} has numbers in start and end; give both questions theirs")
    scores = (scores_one, scores_two) if scores_one and scores_two else None
    return Half(key, swapped, (one, two), where, scores)


def _parse_id(record_id: str, where: str) -> tuple[GroupKey, bool]:
    """The group's key, and whether the context has its subjects in the other order."""
    parts = [part.strip() for part in record_id.split("|")]
    if len(parts) not in ID_FIELDS:
        raise DataError(f"{where}: the id has {len(parts)} fields separated by '|' instead of 8 or 9")
    _, _, one, two, template, category, attribute, again = parts[:8]
    if attribute != again or not all(parts[2:8]):
        raise DataError(f"{where}: fields 3 to 8 must be filled, and fields 7 and 8 (attribute) equal")
    one, two = one.lower(), two.lower()
    if one == two:
        raise DataError(f"{where}: both subjects are {one!r}")
    advice_id = parts[8] if len(parts) == 9 and parts[8] != "none" else ""
    advice_class(advice_id, where)  # before the questions are taken apart on the strength of it
    key = GroupKey((min(one, two), max(one, two)), template, category.lower(), attribute.lower(), advice_id)
    return key, one > two


def _question(
    record: Any, context: str, key: GroupKey, where: str
) -> tuple[UnderspecifiedQuestion, tuple[Pair, Pair] | None]:
    answers = [field(record, name, dict, where) for name in ("ans0", "ans1")]
    first, second = (field(answer, "text", str, f"{where}, ans{i}") for i, answer in enumerate(answers))
    text = field(record, "question", str, where)
    # Without an advice id in the key there is no telling advice from question: it stays as it is.
    advice, question = split_advice(text, where) if key.advice_id else ("", text.strip())
    candidates = locate_pair(context, first, second, where)
    scores = [_score(answer, f"{where}, ans{i}") for i, answer in enumerate(answers)]
    if (scores[0] is None) != (scores[1] is None):
        alone = "ans1" if scores[0] is None else "ans0"
        raise DataError(f"{where}: only {alone} has numbers in start and end; give both answers theirs")
    pair = (scores[0], scores[1]) if scores[0] and scores[1] else None
    return UnderspecifiedQuestion(context, question, candidates, advice), pair


def _score(answer: Any, where: str) -> Pair | None:
    """The (start, end) probability, or None for the placeholders "" and "[TODO]" of a source file."""
    values = [answer.get(name) for name in ("start", "end")]
    numbers = [isinstance(value, (int, float)) and not isinstance(value, bool) for value in values]
    if not any(numbers):
        return None
    if not all(numbers):
        raise DataError(f"{where}: start and end must both be numbers, found {values[0]!r} and {values[1]!r}")
    try:
        return (float(values[0]), float(values[1]))
    except OverflowError:  # a whole number of hundreds of digits: no probability, as whoever needs one says
        return (math.inf, math.inf)


def write_source(expansion: Expansion, path: str | Path) -> int:
    """Stream UnQover's own `source.json` (indent 4, keyed by id); returns the number of records. Atomic.

    Equal byte for byte to `json.dump(everything, indent=4)`, without holding everything.
    """
    with atomic_text(path) as file:
        separator = "{\n"
        for pair, cell in tqdm(_in_order(expansion), total=len(expansion), unit="record", disable=None):
            file.write(separator + _record_text(expansion, pair, cell))
            separator = ",\n"
        file.write("\n}" if len(expansion) else "{}")
    return len(expansion)


def _in_order(expansion: Expansion) -> Iterator[tuple[SubjectPair, Cell]]:
    for flip in (1, -1):
        for pair in expansion.pairs:
            for cell in expansion.cells:
                yield (pair if flip == 1 else pair[::-1]), cell


_ANSWER = """            "ans{}": {{
                "text": {},
                "start": "",
                "end": ""
            }}"""
_QUESTION = """        "q{}": {{
            "question": {},
            "pred": "",
{},
{}
        }}"""


def _record_text(expansion: Expansion, pair: SubjectPair, cell: Cell) -> str:
    context, *questions = expansion.texts(pair, cell)
    attribute, forms = cell.attribute, cell.template.forms
    names = (pair[0].cluster, pair[1].cluster, pair[0].name, pair[1].name)
    key = "|".join((*names, str(cell.template.number), attribute.category, attribute.name, attribute.name))
    answers = [_ANSWER.format(i, json.dumps(pair[i].forms[forms[i]])) for i in (0, 1)]
    blocks = [_QUESTION.format(i, json.dumps(q), *answers) for i, q in enumerate(questions)]
    body = f'        "context": {json.dumps(context)},\n{blocks[0]},\n{blocks[1]}'
    return f"    {json.dumps(key)}: {{\n{body}\n    }}"
