"""CoQA, HotpotQA and MuSiQue, whose answers come with their evidence -> QAExample.

Free-form answers are located by `answer_spans.answer_span`, in any case: the authors' search misses
capitals.

CoQA has one example per turn, in the layout of the official file or of the Hub. Offsets are
trusted; `span_text`, which often differs in white space, and `bad_turn` are not read. The Hub's
layout lacks the additional answers, so each question has one reference instead of the official dev
file's four.

HotpotQA's (distractor setting) context is the field `story` if a record has one, as in the files of
Chaturvedi et al. 2023; else only the gold paragraphs (section 4.1), without titles, in their order
among all paragraphs. The authors' script for it is not published; this is a reconstruction. Each
supporting sentence is a rationale. HotpotQA's sentences begin with the space between them;
sentences without any are joined by one.
"""

import logging
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain, compress
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, NotRequired

from pydantic import AliasChoices, BeforeValidator, Field, StrictInt
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

from interventune.data_modules.schema.questions import QAExample, Span, Texts, Turn, single_spaced
from interventune.storage.documents import DataError, Rows, check

from .answer_spans import answered
from .squad import Listed, nearest

logger = logging.getLogger(__name__)


class _Text(TypedDict):
    turn_id: NotRequired[int]  # the Hub's turns have none, and are in order
    input_text: str


class _Answer(_Text):
    span_start: Annotated[
        StrictInt, Field(validation_alias=AliasChoices("span_start", "answer_start"))
    ]
    span_end: Annotated[StrictInt, Field(validation_alias=AliasChoices("span_end", "answer_end"))]


_Asked = BeforeValidator(lambda text: {"input_text": text} if isinstance(text, str) else text)
"""The Hub has bare questions."""


@dataclass
class _Story:
    id: str | int
    source: str
    story: str
    questions: list[Annotated[_Text, _Asked]]
    answers: Listed[_Answer]
    additional_answers: dict[str, list[_Text]] = Field(default_factory=dict)


def read_coqa(rows: Rows, source: str) -> Iterator[QAExample]:
    """(place, story) -> one example per turn, in the order of stories and turns.

    Its id is "STORY TURN", its domain the story's source, its history every earlier turn with the
    primary answer. The rationale is the primary answer's span without white space around it; none
    for -1, -1. References are the primary answer and those of `additional_answers`, in the file's
    order. A story of the Hub, without an id, has the number of its row.

    Raises:
        DataError: names place, story and turn for a rationale outside its story or reversed, a
            question without answer or the reverse.
    """
    from_hub = False
    for index, (place, value) in enumerate(rows):
        from_hub = from_hub or "id" not in value
        story = check({"id": index, **value}, _Story, place)
        where = f"{place} (story {story.id})"
        turns_of: list[Any] = [story.questions, story.answers, *story.additional_answers.values()]
        questions, answers, *others = [_numbered(turns, where) for turns in turns_of]
        history = list[Turn]()
        for number in sorted(questions.keys() | answers.keys()):
            if number not in questions or number not in answers:
                missing = "answer" if number in questions else "question"
                raise DataError(f"{where}: turn {number} has no {missing}; each needs both")
            question = questions[number]["input_text"]
            answer = answers[number]
            start = answer["span_start"]
            end = answer["span_end"]
            if (start, end) == (-1, -1):
                start = end = 0
            if not 0 <= start <= end <= len(story.story):
                raise DataError(
                    f"{where}: turn {number}: the rationale {start} to {end} is no part of its "
                    "story"
                )
            evidence = story.story[start:end].strip()
            start = story.story.find(evidence, start)
            texts = [turns[number]["input_text"] for turns in (answers, *others) if number in turns]
            yield answered(
                f"{story.id} {number}",
                story.story,
                question,
                answer["input_text"],
                (Span(start, start + len(evidence), evidence),) if evidence else (),
                history=tuple(history),
                references=tuple(texts),
                dataset="coqa",
                domain=story.source,
            )
            history.append(Turn(question, answer["input_text"]))
    if from_hub:
        logger.warning(
            f"{source}: CoQA from the Hub has one reference per question, which lowers scores"
        )


def _numbered(turns: Iterable[Any], where: str) -> dict[int, Any]:
    """The turns by number: `turn_id`, else their place. DataError for a number that
    occurs twice.
    """
    by_number = dict[int, Any]()
    for place, turn in enumerate(turns, 1):
        number = turn.get("turn_id", place)
        if by_number.setdefault(number, turn) is not turn:
            raise DataError(f"{where}: two turns have the turn_id {number}; number each once")
    return by_number


class _Paragraph(NamedTuple):
    title: str
    sentences: list[str]


class _Fact(NamedTuple):
    title: str
    sent_id: StrictInt


@dataclass
class _Question:
    """One question; the official files list pairs where the Hub has columns, or objects."""

    id: Annotated[str | StrictInt, Field(validation_alias=AliasChoices("_id", "id"))]
    question: str
    answer: str
    context: Listed[_Paragraph]
    supporting_facts: Listed[_Fact]
    type: str = ""
    story: str | None = None


def read_hotpotqa(rows: Rows, source: str) -> Iterator[QAExample]:
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
        logger.warning(f"{source}: left out {left_out} supporting fact(s) without such a sentence")


class _Evidence(TypedDict):
    paragraph_text: str
    is_supporting: bool


@dataclass
class _Musique:
    id: str
    question: str
    answer: str
    paragraphs: list[_Evidence]
    answer_aliases: Texts = ()
    answerable: bool = True


def read_musique(rows: Rows, source: str) -> Iterator[QAExample]:
    """(place, record of MuSiQue) -> one example per question about all its paragraphs, of which the
    supporting ones are the rationale. It is unknown, without references, unless it is `answerable`.
    """
    for place, value in rows:
        row = check(value, _Musique, place)
        story, texts = build_story([paragraph["paragraph_text"]] for paragraph in row.paragraphs)
        supports = (paragraph["is_supporting"] for paragraph in row.paragraphs)
        example = answered(
            row.id,
            story,
            row.question,
            row.answer,
            tuple(chain(*compress(texts, supports))),
            references=(row.answer, *row.answer_aliases),
            dataset="musique",
        )
        yield example if row.answerable else example.unanswered(references=())


def build_story(paragraphs: Iterable[Iterable[str]]) -> tuple[str, list[list[Span]]]:
    """Paragraphs of sentences -> (story, spans): sentences are concatenated, white space is reduced
    to single spaces, paragraphs are stripped and joined by one space.

    spans[p][s] is sentence s of paragraph p in the story, without surrounding white space; empty
    for a sentence of white space. Offsets are counted, not searched for: a sentence ends where the
    text up to it ends.
    """
    story = ""
    spans = []
    for sentences in paragraphs:
        text = single_spaced("".join(sentences))
        story += " " if story and text else ""
        ends = [len(story) + len(single_spaced(begun)) for begun in accumulate(sentences)]
        story += text
        texts = map(single_spaced, sentences)
        spans.append([Span(end - len(x), end, x) for x, end in zip(texts, ends, strict=True)])
    return story, spans


def _story(record: _Question, where: str) -> tuple[str, list[Span]]:
    """(story, supporting sentences in it); the story is made of the paragraphs unless the record
    has one.
    """
    titles = {title for title, _ in record.supporting_facts}
    every = chain(*(sentences for _, sentences in record.context))
    apart = " " if all(sentence == sentence.strip() for sentence in every) else ""
    gold = dict[str, list[str]]()
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
            span = nearest(single_spaced(gold[title][index]), 0, record.story)
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
