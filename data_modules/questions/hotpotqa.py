"""HotpotQA, distractor setting, and files in its layout; MuSiQue -> QAExample.

The context is the field `story` if a record has one, as in the files of Chaturvedi et al. 2023;
else only the gold paragraphs (section 4.1), without titles, in their order among all paragraphs.
The authors' script for it is not published; this is a reconstruction. Each supporting sentence is a
rationale. Answers are located as in CoQA (see `coqa`), in any case: the authors' search misses
capitals. HotpotQA's sentences begin with the space between them; sentences without any are joined
by one.
"""

import logging
from collections.abc import Iterable, Iterator
from itertools import accumulate
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, NotRequired

from pydantic import AliasChoices, Field, StrictInt
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

from interventune.data_modules.schema.questions import QAExample
from interventune.data_modules.schema.spans import Span
from interventune.storage.errors import DataError
from interventune.storage.json_files import check

from .answer_spans import answered
from .squad import Listed, nearest

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
        story, sentences = _story(record, f"{place} (id {record.id})")
        left_out += len(record.supporting_facts) - len(sentences)
        yield answered(
            str(record.id),
            story,
            record.question,
            record.answer,
            tuple(sorted({*sentences}, key=attrgetter("start", "end"))),
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
        paragraphs = row["paragraphs"]
        story, texts = build_story([paragraph["paragraph_text"]] for paragraph in paragraphs)
        example = answered(
            row["id"],
            story,
            row["question"],
            row["answer"],
            tuple(
                text
                for paragraph, (text,) in zip(paragraphs, texts, strict=True)
                if paragraph["is_supporting"]
            ),
            references=(row["answer"], *row.get("answer_aliases", ())),
            dataset="musique",
        )
        yield example if row.get("answerable", True) else example.unanswered(references=())


def build_story(paragraphs: Iterable[Iterable[str]]) -> tuple[str, list[list[Span]]]:
    """Paragraphs of sentences -> (story, spans): sentences are concatenated, white space is reduced
    to single spaces, paragraphs are stripped and joined by one space.

    spans[p][s] is sentence s of paragraph p in the story, without surrounding white space; empty
    for a sentence of white space. Offsets are counted, not searched for: a sentence ends where the
    text up to it ends.
    """
    story, spans = "", []
    for sentences in paragraphs:
        text = _single_spaced("".join(sentences))
        story += " " if story and text else ""
        ends = [len(story) + len(_single_spaced(begun)) for begun in accumulate(sentences)]
        story += text
        texts = map(_single_spaced, sentences)
        spans.append([Span(end - len(x), end, x) for x, end in zip(texts, ends, strict=True)])
    return story, spans


def _single_spaced(text: str) -> str:
    return " ".join(text.split())


def _story(record: _Question, where: str) -> tuple[str, list[Span]]:
    """(story, supporting sentences in it); the story is made of the paragraphs unless the record
    has one.
    """
    titles = {title for title, _ in record.supporting_facts}
    every = [sentence for _, sentences in record.context for sentence in sentences]
    apart = " " if all(sentence == sentence.strip() for sentence in every) else ""
    gold: dict[str, list[str]] = {}
    for title, sentences in record.context:
        if title in titles:
            gold.setdefault(title, [apart + sentence for sentence in sentences])
    if missing := sorted(titles - gold.keys()):
        raise DataError(
            f"{where}: the supporting fact's title {missing[0]!r} is not among the paragraphs"
        )
    story, spans = build_story(gold.values())
    of_title = dict(zip(gold, spans, strict=True))
    evidence = []
    for title, index in record.supporting_facts:
        if not 0 <= index < len(gold[title]):
            continue
        span: Span | None = of_title[title][index]
        if record.story is not None:
            span = nearest(_single_spaced(gold[title][index]), 0, record.story)
        if span is None:
            raise DataError(
                f"{where}: the supporting sentence {gold[title][index].strip()!r} is not in its "
                "story"
            )
        if span.text:
            evidence.append(span)
    if not evidence:
        raise DataError(f"{where}: no supporting fact is left; at least one must name a sentence")
    return story if record.story is None else record.story, evidence
