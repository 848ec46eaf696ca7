"""HotpotQA, distractor setting, and files in its layout; MuSiQue -> QAExample (faithfulness spec
1.5).

The context is the field `story` if a record has one, as in the faithfulness paper's own files; else
only the gold paragraphs, without titles, in their order among all paragraphs. The authors' script
for it is not published; this is the specification's reconstruction. Each supporting sentence is a
rationale. Answers are located as in CoQA (see `coqa`), in any case: the authors' search misses
capitals. HotpotQA's sentences begin with the space between them; sentences without any are joined
by one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Annotated, Any, NamedTuple, NotRequired

from pydantic import AliasChoices, Field, StrictInt
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

from interventune.data_modules.questions.answer_spans import answered
from interventune.data_modules.questions.squad import Listed
from interventune.data_modules.schema.questions import QAExample
from interventune.data_modules.schema.spans import Span
from interventune.storage.errors import DataError
from interventune.storage.json_files import check

logger = logging.getLogger(__name__)


class _Paragraph(NamedTuple):
    title: str
    sentences: list[str]


class _Fact(NamedTuple):
    title: str
    sent_id: StrictInt


@dataclass(frozen=True)
class _Question:
    """One question; the official files list pairs where the Hub has columns, or objects."""

    id: Annotated[str | StrictInt, Field(validation_alias=AliasChoices("_id", "id"))]
    question: str
    answer: str
    context: Listed[_Paragraph]
    supporting_facts: Listed[_Fact]
    type: str = ""
    story: str | None = None


def read_rows(rows: Iterable[tuple[str, Any]], source: str) -> Iterator[QAExample]:
    """(place, record) of either layout -> one example per question; the domain is bridge or
    comparison.

    A supporting fact whose sentence the paragraph does not have is left out and counted. In a
    record's own `story`, a supporting sentence is at the first occurrence of its words.

    Raises:
        DataError: names source, place and id for a supporting sentence missing from its `story`, a
            title missing from the paragraphs, or a question without supporting sentences.
    """
    left_out = 0
    for place, row in rows:
        record = check(row, _Question, place)
        where = f"{place} (id {record.id})"
        story, rationale, missed = _story(record, where)
        left_out += missed
        yield answered(
            str(record.id),
            story,
            record.question,
            record.answer,
            rationale,
            references=(record.answer,),
            dataset="hotpotqa",
            domain=record.type,
        )
    if left_out:
        logger.warning(
            "%s: left out %d supporting fact(s) without such a sentence", source, left_out
        )


class _Evidence(TypedDict):
    paragraph_text: str
    is_supporting: bool


class _Musique(TypedDict):
    id: str
    question: str
    answer: str
    answer_aliases: NotRequired[list[str]]
    answerable: NotRequired[bool]
    paragraphs: list[_Evidence]


def read_musique(rows: Iterable[tuple[str, Any]], source: str) -> Iterator[QAExample]:
    """(place, record of MuSiQue) -> one example per question about all its paragraphs, of which the
    supporting ones are the rationale. It is unknown, without references, unless it is `answerable`.
    """
    for place, value in rows:
        row = check(value, _Musique, place)
        story, offsets = build_story([part["paragraph_text"]] for part in row["paragraphs"])
        rationale = tuple(
            Span(start, end, story[start:end])
            for part, ((start, end),) in zip(row["paragraphs"], offsets, strict=True)
            if part["is_supporting"]
        )
        example = answered(
            row["id"],
            story,
            row["question"],
            row["answer"],
            rationale,
            references=(row["answer"], *row.get("answer_aliases", ())),
            dataset="musique",
        )
        yield example if row.get("answerable", True) else example.unanswered(references=())


def build_story(paragraphs: Iterable[Iterable[str]]) -> tuple[str, list[list[tuple[int, int]]]]:
    """Paragraphs of sentences -> (story, offsets): sentences are concatenated, white space is
    reduced to single spaces, paragraphs are stripped and joined by one space.

    offsets[p][s] = (start, end) of sentence s of paragraph p in the story, without surrounding
    white space; start = end for a sentence of white space. They are counted, not searched for: a
    sentence ends where the text up to it ends.
    """
    story, offsets = "", []
    for sentences in paragraphs:
        text = _single_spaced("".join(sentences))
        story += " " if story and text else ""
        ends = [len(story) + len(_single_spaced(begun)) for begun in accumulate(sentences)]
        offsets.append(
            [(end - len(_single_spaced(of)), end) for of, end in zip(sentences, ends, strict=True)]
        )
        story += text
    return story, offsets


def _single_spaced(text: str) -> str:
    return " ".join(text.split())


def _story(record: _Question, where: str) -> tuple[str, tuple[Span, ...], int]:
    """(story, rationales in its order, facts without such a sentence); the story is made unless
    given.
    """
    facts, given = record.supporting_facts, record.story
    wanted = {title for title, _ in facts}
    gold: dict[str, list[str]] = {}
    every = [sentence for _, sentences in record.context for sentence in sentences]
    apart = " " * all(sentence == sentence.strip() for sentence in every)
    for title, sentences in record.context:
        if title in wanted:
            gold.setdefault(title, [apart + sentence for sentence in sentences])
    if missing := sorted(wanted - gold.keys()):
        raise DataError(
            f"{where}: the supporting fact's title {missing[0]!r} is not among the paragraphs"
        )
    story, offsets = build_story(gold.values())
    story = story if given is None else given
    of_title = dict(zip(gold, offsets, strict=True))
    named = [(title, index) for title, index in facts if 0 <= index < len(gold[title])]
    places = []
    for title, index in named:
        if given is None:
            places.append(of_title[title][index])
            continue
        sentence = gold[title][index]
        found = re.search(r"\s+".join(map(re.escape, sentence.split())), given)
        if found is None:
            raise DataError(
                f"{where}: the supporting sentence {sentence.strip()!r} is not in its story"
            )
        places.append(found.span())
    spans = [
        Span(start, end, story[start:end]) for start, end in sorted(set(places)) if start < end
    ]
    if not spans:
        raise DataError(f"{where}: no supporting fact is left; at least one must name a sentence")
    return story, tuple(spans), len(facts) - sum(start < end for start, end in places)
