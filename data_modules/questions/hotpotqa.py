"""HotpotQA, distractor setting: the official JSON file, or rows in the Hub's layout -> QAExample
(faithfulness spec 1.5).

    from data_modules.questions.hotpotqa import read_hotpotqa
    for example in read_hotpotqa("hotpot_dev_distractor_v1.json"): ...

The context is the gold paragraphs alone, without titles, in their order among all paragraphs. The authors'
script for it is not published; this is the specification's reconstruction. Each supporting sentence is a
rationale. Answers are located as in CoQA (see `coqa`), in any case: the authors' search misses capitals.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from data_modules.questions.answer_spans import AnswerLocator, answer_type
from data_modules.schema import QAExample, Span
from storage.errors import DataError
from storage.json_files import BadRecords, field, load_json

logger = logging.getLogger(__name__)

_SPACE = re.compile(r"\s+")


def read_hotpotqa(path: str | Path, *, skip_bad: bool = False) -> Iterator[QAExample]:
    """One example per question of an official file, in its order; the domain is bridge or comparison.

    A supporting fact that names a sentence which its paragraph does not have is left out and counted; the
    count is logged once. Raises DataError naming file, place and id for a title that is not among the
    paragraphs, a question without any supporting sentence left, a repeated id, an empty story or question;
    `skip_bad=True` leaves these out and logs how many. A wrong shape is never skipped.
    """
    yield from hotpotqa_examples(load_json(path), path, skip_bad=skip_bad)


def hotpotqa_examples(document: Any, source: str | Path, *, skip_bad: bool = False) -> Iterator[QAExample]:
    """The same for a document that is already parsed; `source` names it in errors."""
    if not isinstance(document, list):
        raise DataError(f"{source}: expected a list of questions, found {type(document).__name__}")
    yield from _examples(((f"{source}: [{i}]", item) for i, item in enumerate(document)), source, skip_bad)


def rows_to_hotpotqa(
    rows: Iterable[Mapping[str, Any]], source: str, *, skip_bad: bool = False
) -> Iterator[QAExample]:
    """Rows in the Hub's layout (id, question, answer, type, context {title [P], sentences [P][]},
    supporting_facts {title [F], sent_id [F]}) -> examples."""
    yield from _examples(((f"{source}: row {i}", row) for i, row in enumerate(rows)), source, skip_bad)


def build_story(paragraphs: Iterable[Iterable[str]]) -> tuple[str, list[list[tuple[int, int]]]]:
    """Paragraphs of sentences -> (story, offsets): sentences joined by nothing, runs of white space made one
    space, paragraphs stripped and joined by one space.

    offsets[p][s] = (start, end) of sentence s of paragraph p in the story, without the space around it;
    start = end for a sentence of white space. They are counted while joining, never searched for.
    """
    story = ""
    offsets = []
    for sentences in paragraphs:
        text, places = _paragraph(sentences)
        story += " " if story and text else ""
        offsets.append([(start + len(story), end + len(story)) for start, end in places])
        story += text
    return story, offsets


def _paragraph(sentences: Iterable[str]) -> tuple[str, list[tuple[int, int]]]:
    text = ""
    places = []
    for sentence in sentences:
        piece = _SPACE.sub(" ", sentence)
        if not text or text.endswith(" "):
            piece = piece.lstrip(" ")
        start = len(text) + piece.startswith(" ")
        places.append((start, start + len(piece.strip(" "))))
        text += piece
    return text.rstrip(" "), places


def _examples(records: Iterable[tuple[str, Any]], source: str | Path, skip_bad: bool) -> Iterator[QAExample]:
    bad, locator = BadRecords(source, skip_bad=skip_bad), AnswerLocator(source)
    seen: set[str] = set()
    left_out = 0
    for where, record in records:
        key = "_id" if isinstance(record, dict) and "_id" in record else "id"
        record_id = str(field(record, key, (str, int), where))
        where = f"{where} (id {record_id})"
        if record_id in seen:
            bad.reject(DataError(f"{where}: this id occurs twice; ids must tell the questions apart"))
            continue
        seen.add(record_id)
        paragraphs = _pairs(record, "context", ("title", "sentences"), list, where)
        facts = _pairs(record, "supporting_facts", ("title", "sent_id"), int, where)
        question, answer, domain = (field(record, n, str, where) for n in ("question", "answer", "type"))
        kind = answer_type(answer, question)
        try:
            if not question.strip():
                raise DataError(f"{where}: the question is empty")
            story, rationale, missed = _story(paragraphs, facts, where)
        except DataError as error:
            bad.reject(error)
            continue
        left_out += missed
        yield QAExample(
            record_id,
            story,
            question,
            locator.spans(answer, kind, story, rationale),
            answer_type=kind,
            rationale=rationale,
            references=(answer,),
            dataset="hotpotqa",
            domain=domain,
        )
    if left_out:
        logger.warning("%s: left out %d supporting fact(s) without such a sentence", source, left_out)
    bad.report()
    locator.report()


def _story(
    paragraphs: list[tuple[str, list[str]]], facts: list[tuple[str, int]], where: str
) -> tuple[str, tuple[Span, ...], int]:
    """(story, rationales in its order, facts without such a sentence)."""
    wanted = {title for title, _ in facts}
    gold: dict[str, list[str]] = {}
    for title, sentences in paragraphs:
        if title in wanted:
            gold.setdefault(title, sentences)
    if missing := sorted(wanted - gold.keys()):
        raise DataError(f"{where}: the supporting fact's title {missing[0]!r} is not among the paragraphs")
    story, offsets = build_story(gold.values())
    if facts and not story:
        raise DataError(f"{where}: the story is empty")
    of_title = dict(zip(gold, offsets, strict=True))
    places = [of_title[title][index] for title, index in facts if 0 <= index < len(of_title[title])]
    spans = [Span(start, end, story[start:end]) for start, end in sorted(set(places)) if start < end]
    if not spans:
        raise DataError(f"{where}: no supporting fact is left; at least one must name a sentence")
    return story, tuple(spans), len(facts) - sum(start < end for start, end in places)


def _pairs(record: Any, name: str, keys: tuple[str, str], second: type, where: str) -> list[tuple[str, Any]]:
    """A list of pairs, as in the official files, from either layout; both parts are checked."""
    value = field(record, name, (list, dict), where)
    place = f"{where}.{name}"
    if isinstance(value, dict):
        columns = [field(value, key, list, place) for key in keys]
        if len(columns[0]) != len(columns[1]):
            raise DataError(f"{place}: {len(columns[0])} {keys[0]} but {len(columns[1])} {keys[1]}")
        value = list(zip(*columns, strict=True))
    pairs = []
    for index, item in enumerate(value):
        if isinstance(item, dict):
            item = tuple(item.get(key) for key in keys)
        pair: Any = item if isinstance(item, (list, tuple)) and len(item) == 2 else (None, None)
        fits = isinstance(pair[0], str) and isinstance(pair[1], second)
        if not fits:
            raise DataError(f"{place}[{index}]: expected a pair ({keys[0]}, {keys[1]}), found {item!r:.60}")
        if second is list and not all(isinstance(sentence, str) for sentence in pair[1]):
            raise DataError(f"{place}[{index}]: the sentences must be a list of strings")
        pairs.append((pair[0], pair[1]))
    return pairs
