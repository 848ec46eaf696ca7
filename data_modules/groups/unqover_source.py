"""UnQover's `source.json`, read and written: one object keyed by id, two records (context orders) a group.

Ids have 8 fields, `cluster1|cluster2|x1|x2|template|category|attribute|attribute` with the subjects in
context order, or 9 with the advice's id (LEI spec 1.2, 2.4). Prediction files have the same layout with
numbers in `start` and `end`; these become base scores. What LEI's fine-tuning writes is read too: an id, its
subjects sorted, mapped to four records of one question each, two for either context order (spec 4.5).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired

from tqdm import tqdm
from typing_extensions import TypedDict

from data_modules.groups.lei import Half, Pair, ScoredGroup, pair_halves, parse_key, split_advice
from data_modules.schema import LEAD_IN, NO_CLUSTER, Group, Span, UnderspecifiedQuestion
from storage.errors import DataError
from storage.files import atomic_text
from storage.json_files import check, stream_object

if TYPE_CHECKING:
    from data_modules.groups.unqover import Cell, Expansion, SubjectPair

logger = logging.getLogger(__name__)

UNNAMED = "ethical_unnamed-0"
"""The advice of groups whose ids name none although their questions begin with `Note that,`: LEI's specified
set (spec 3.6), which draws an ethical sentence for each record."""


class _Answer(TypedDict):
    text: str
    start: NotRequired[Any]
    end: NotRequired[Any]


class _Question(TypedDict):
    question: str
    pred: NotRequired[str]
    ans0: _Answer
    ans1: _Answer


class _Record(TypedDict):
    context: str
    q0: _Question
    q1: _Question


def read_file(path: str | Path, *, skip_bad: bool = False) -> Iterator[Group]:
    """The groups of a source or prediction file; DataError and `skip_bad` as in `read_scored`."""
    yield from (record.group for record in read_scored(path, skip_bad=skip_bad))


def read_scored(path: str | Path, *, skip_bad: bool = False) -> Iterator[ScoredGroup]:
    """The groups with their base scores, where every `start` and `end` of a group is a number.

    The file is streamed; records waiting for their partner are held.

    Raises:
        DataError: names the file and the id; `skip_bad=True` leaves such records out and warns how many.
    """
    unnamed = 0
    for record in pair_halves(_records(path), _half, path, skip_bad=skip_bad):
        unnamed += record.group.advice_id == UNNAMED
        yield record
    if unnamed:
        logger.warning(
            "%s: the ids of %d groups name no advice, but their questions begin with %r: taken as ethical, "
            "as in LEI's specified set; a ninth field of the id, such as adversarial_rude-0, says otherwise",
            *(path, unnamed, LEAD_IN.strip()),
        )


def _records(path: str | Path) -> Iterator[tuple[str, tuple[str, Any]]]:
    """(place, (id, a record, or a list of its parts)), for every context order."""
    for key, value in stream_object(path):
        orders = (value[:2], value[2:]) if isinstance(value, list) and len(value) == 4 else (value,)
        for order in orders:
            yield f"{path}: id {key!r}", (key, order)


def _half(where: str, record: tuple[str, Any]) -> Half:
    parts = record[0].split("|")
    if len(parts) not in (8, 9):
        raise DataError(f"{where}: the id has {len(parts)} fields separated by '|' instead of 8 or 9")
    key, swapped = parse_key((*parts[2:], "")[:7], where)
    named = (parts[1], parts[0]) if swapped else (parts[0], parts[1])
    clusters = None if NO_CLUSTER in named else named
    apart = isinstance(record[1], list)
    value = check(_joined(record[1], where) if apart else record[1], _Record, where)
    context, both = value["context"], (value["q0"], value["q1"])
    if apart:  # one id for both orders
        subjects = (both[0]["ans0"]["text"].lower(), both[0]["ans1"]["text"].lower())
        if subjects not in (key[0], key[0][::-1]):
            raise DataError(f"{where}: the answers {subjects} are not the id's subjects {key[0]}")
        swapped = subjects != key[0]
    if not key[-1] and all(entry["question"].startswith(LEAD_IN) for entry in both):
        key = (*key[:4], "ethical", UNNAMED)
    questions, scores = [], []
    for name, entry in zip(("q0", "q1"), both, strict=True):
        place, answers = f"{where}, {name}", (entry["ans0"], entry["ans1"])
        # Where neither id nor lead-in tells advice from question, the question stays as it is.
        advice, question = "", entry["question"].strip()
        if key[-1]:
            advice, question = split_advice(entry["question"], place)
        candidates = locate_pair(context, answers[0]["text"], answers[1]["text"], place)
        questions.append(UnderspecifiedQuestion(context, question, candidates, advice))
        scores.append([_score(answer, f"{place}, ans{i}") for i, answer in enumerate(answers)])
    return Half(key, swapped, questions, scores, clusters=clusters, answer=both[0].get("pred", ""))


def _joined(parts: list[Any], where: str) -> dict[str, Any]:
    """Question and negated question of one context order, each a record of its own, as one record."""
    records = [check(part, dict[str, Any], where) for part in parts]
    if len(records) != 2 or records[0].get("context") != records[1].get("context"):
        raise DataError(
            f"{where}: a list must hold four records: question and negated question of one context order, "
            "then of the other"
        )
    return records[0] | records[1]


def _score(answer: _Answer, where: str) -> Pair | None:
    """The (start, end) probability, or None for the placeholders "" and "[TODO]" of a source file."""
    values = [answer.get(name) for name in ("start", "end")]
    numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if not numbers:
        return None
    if len(numbers) < 2:
        raise DataError(f"{where}: start and end must both be numbers, found {values[0]!r} and {values[1]!r}")
    try:
        return (float(numbers[0]), float(numbers[1]))
    except OverflowError:
        raise DataError(f"{where}: start and end must be probabilities") from None


def locate_pair(context: str, first: str, second: str, where: str) -> tuple[Span, Span]:
    """The spans of the two subjects when the file gives only their texts; they never overlap.

    `first` is taken at its first occurrence and `second` after it, or the other way round if that fails;
    whole words win over parts of words (Niger is not looked for inside Nigeria).
    """
    for one, two, flip in ((first, second, False), (second, first, True)):
        for pattern in (r"(?<!\w){}(?!\w)", r"{}"):
            head = re.search(pattern.format(re.escape(one)), context)
            tail = head and re.compile(pattern.format(re.escape(two))).search(context, head.end())
            if head and tail:
                spans = (Span(*head.span(), one), Span(*tail.span(), two))
                return spans[::-1] if flip else spans
    raise DataError(f"{where}: {first!r} and {second!r} do not both occur in the context {context!r}")


def write_source(expansion: Expansion, path: str | Path) -> int:
    """Stream UnQover's own `source.json` (indent 4, keyed by id); returns the number of records. Atomic.

    Equal byte for byte to `json.dump(everything, indent=4)`, without holding everything.
    """
    count = 2 * len(expansion)
    with atomic_text(path) as file:
        separator = "{\n"
        for pair, cell in tqdm(expansion.records(), total=count, unit="record", disable=None):
            file.write(separator + _record_text(expansion, pair, cell))
            separator = ",\n"
        file.write("\n}" if count else "{}")
    return count


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
