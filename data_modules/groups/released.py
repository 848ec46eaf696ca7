"""Files of underspecified questions as released: LEI's, with advice, and UnQover's.

Both store a group as two records, one for each context order, anywhere in the file.

LEI's have SQuAD's layout: a paragraph has one context order of a group, with its question and its
negated question, each with the two subjects as "answers" in context order.

UnQover's `source.json` is one object keyed by id. Ids have 8 fields,
`cluster1|cluster2|x1|x2|template|category|attribute|attribute` with the subjects in context order,
or 9 with the id of LEI's advice. Prediction files have the same layout with numbers in `start` and
`end`; these become base scores. Output of LEI's fine-tuning is also accepted: an id with sorted
subjects, mapped to four records of one question each, two per context order.
"""

import logging
import re
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from operator import attrgetter
from os.path import commonprefix
from typing import Annotated, Any, NamedTuple, cast

from pydantic import BaseModel, BeforeValidator, Field

from interventune.data_modules.schema.groups import (
    ADVICE_CLASSES,
    LEAD_IN,
    NO_CLUSTER,
    AdviceClass,
    Group,
    ScoredGroup,
    UnderspecifiedQuestion,
)
from interventune.data_modules.schema.questions import Span, TextPair
from interventune.storage.documents import DataError, Rows, StrPath, Values, check, stream_object

logger = logging.getLogger(__name__)

UNNAMED = "ethical_unnamed-0"
"""The advice id of groups whose ids name none although their questions begin with `Note that,`, as
in the specified set of LEI's authors (Zhao et al. 2021, section 2.2).
"""

GroupKey = tuple[TextPair, str, str, str, AdviceClass, str]
"""The fields of a Group before its variants, in order: those that its two records share."""


class Half(NamedTuple):
    """One record: a question and its negation in one context order. `swapped`: this order differs
    from the key's, which candidates, scores and clusters follow.
    """

    key: GroupKey
    swapped: bool
    questions: list[tuple[UnderspecifiedQuestion, Any]]
    """Each with its scores, if it has them."""
    clusters: TextPair | None = None
    answer: str = ""
    """Answer to the question."""


class _Answer(BaseModel):
    text: str
    answer_start: int
    scores: tuple[float, float] | None = Field(None, alias="start-end-score")

    @property
    def span(self) -> Span:
        return Span(self.answer_start, self.answer_start + len(self.text), self.text)


class _Qa(BaseModel):
    question: str
    answers: tuple[_Answer, _Answer]


class _Paragraph(BaseModel):
    key: str
    context: str
    qas: tuple[_Qa, _Qa]


def read_lei(rows: Rows, source: str) -> Iterator[ScoredGroup]:
    """(place, paragraph) -> the groups with the scores that all their questions have.
    DataError names the place.
    """
    return pair_halves(((place, check(row, _Paragraph, place)) for place, row in rows), _lei_half)


def pair_halves(records: Rows, half_of: Callable[[Any], Half]) -> Iterator[ScoredGroup]:
    """(place, record) -> each group when its second half arrives; only unpaired halves are in
    memory. The two may have different advice of one class: LEI's authors draw it per record, or
    correct a sentence in one order only. DataError, as in `read_lei`, also for records that do not
    pair.
    """
    waiting: dict[GroupKey, tuple[str, Half]] = {}
    for where, record in records:
        try:
            half = half_of(record)
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
        other_where, other = waiting.pop(half.key, ("", None))
        if other and other.swapped == half.swapped:
            raise DataError(f"{where}: the same key and context order occur a second time")
        if other is None:
            waiting[half.key] = where, half
            continue
        if [q.question for q, _ in other.questions] != [q.question for q, _ in half.questions]:
            raise DataError(f"{other_where} and {where}: one key, but not the same question")
        forward, swapped = sorted((other, half), key=attrgetter("swapped"))
        questions = (*forward.questions, *swapped.questions)
        variants, scores = cast(Any, zip(*questions, strict=True))
        yield ScoredGroup(
            Group(*forward.key, variants),
            None if None in scores else scores,
            forward.clusters,
            (forward.answer, swapped.answer),
        )
    for where, half in waiting.values():
        first, second = half.key[0] if half.swapped else half.key[0][::-1]
        raise DataError(
            f"{where}: no record with the subjects in the order {first}, {second} is left"
        )


def parse_key(key: str) -> tuple[GroupKey, bool]:
    """x1|x2|template|category|attribute|attribute|advice id -> the key, and whether the subjects
    are swapped. An advice id such as `adversarial_poverty-1` contains the class; "" or `none`: no
    advice.
    """
    parts = [part.strip() for part in key.split("|")]
    advice = re.fullmatch(rf"({'|'.join(ADVICE_CLASSES)})_.+-\d+|none|", parts[-1])
    if len(parts) != 7 or parts[4] != parts[5] or not all(parts[:6]) or not advice:
        raise DataError(
            "the key needs x1|x2|template|category|attribute|same "
            "attribute|CLASS_CATEGORY-NUMBER of the advice, with CLASS one of "
            f"{', '.join(ADVICE_CLASSES)}; found {key}"
        )
    one, two, _, category, attribute, *_ = map(str.lower, parts)
    subjects = min(one, two), max(one, two)
    advice_class: Any = advice[1] or "none"
    advice_id = parts[6] if advice[1] else ""
    return (subjects, parts[2], category, attribute, advice_class, advice_id), one > two


def _half(key: GroupKey, swapped: bool, context: str, questions: Iterable[Any], *more: Any) -> Half:
    """The half of (text, (span, scores) of its subjects in context order), and of `more` fields.

    `Note that, ... . Who ...?` is cut at the last full stop that the question and its negation
    share, unless the key names no advice. Some published files have two spaces before the question.
    """
    questions = [*questions]
    texts = [text for text, _ in questions]
    shared = commonprefix(texts) if key[-1] else ""  # noqa: RUF071 (not of paths)
    advice = shared[: shared.rfind(". ") + 1]
    variants = []
    for text, subjects in questions:
        question = text[len(advice) :].strip()
        if key[-1] and not (advice.strip() and question):
            raise DataError(f"no advice with a full stop that {text!r} and its negation share")
        spans, scores = zip(*subjects[:: -1 if swapped else 1], strict=True)
        variant = UnderspecifiedQuestion(context, question, spans, advice.strip())
        variants.append((variant, None if None in scores else scores))
    return Half(key, swapped, variants, *more)


def _lei_half(paragraph: _Paragraph) -> Half:
    key, _ = parse_key(paragraph.key)
    order = tuple(answer.text.lower() for answer in paragraph.qas[0].answers)
    if order not in (key[0], key[0][::-1]):
        raise DataError(f"the answers {order} are not the subjects of the key {paragraph.key}")
    questions = (
        (qa.question, [(answer.span, answer.scores) for answer in qa.answers])
        for qa in paragraph.qas
    )
    return _half(key, order != key[0], paragraph.context, questions)


_Probability = Annotated[float | None, BeforeValidator(lambda x: None if isinstance(x, str) else x)]
"""None for the placeholders "" and "[TODO]" of a source file."""


class _Prediction(BaseModel):
    text: str
    start: _Probability = None
    end: _Probability = None

    @property
    def scores(self) -> tuple[float, float] | None:
        return None if self.start is None or self.end is None else (self.start, self.end)


class _Question(BaseModel):
    question: str
    pred: str = ""
    ans0: _Prediction
    ans1: _Prediction


class _Record(BaseModel):
    context: str
    q0: _Question
    q1: _Question


def read_unqover_file(path: StrPath) -> Iterator[ScoredGroup]:
    """Yield the groups, with their base scores if every `start` and `end` of a group is a number.
    DataError names the file and the id.
    """
    unnamed = 0
    records = (
        (f"{path}: id {key!r}", (key, order))
        for key, value in stream_object(path)
        for order in ((value[:2], value[2:]) if isinstance(value, list) else (value,))
    )
    for record in pair_halves(records, _unqover_half):
        unnamed += record.group.advice_id == UNNAMED
        yield record
    if unnamed:
        logger.warning(
            "%s: %d groups have no advice in their ids, but their questions begin with %r: it "
            "counts as ethical, as in LEI's specified set",
            path,
            unnamed,
            LEAD_IN.strip(),
        )


def _unqover_half(entry: tuple[str, Any]) -> Half:
    name, content = entry
    one, two, *parts = (*name.split("|"), "")[:9]
    key, swapped = parse_key("|".join(parts))
    clusters = None
    if NO_CLUSTER not in (one, two):
        clusters = (two, one) if swapped else (one, two)
    of_both_orders = isinstance(content, list)  # whose question and negation are separate
    if of_both_orders:
        content = dict(ChainMap(*check(content, list[Values], "its list")))
    record = check(content, _Record, "its record")
    both = record.q0, record.q1
    spans = locate_pair(record.context, record.q0.ans0.text, record.q0.ans1.text)
    if of_both_orders:
        swapped = tuple(span.text.lower() for span in spans) != key[0]
    if not key[-1] and all(asked.question.startswith(LEAD_IN) for asked in both):
        key = (*key[:4], "ethical", UNNAMED)
    questions = [
        (asked.question, [*zip(spans, (asked.ans0.scores, asked.ans1.scores), strict=True)])
        for asked in both
    ]
    return _half(key, swapped, record.context, questions, clusters, record.q0.pred)


def locate_pair(context: str, *names: str) -> list[Span]:
    """Find the spans of the two subjects when the file gives only their texts; they never overlap.

    The first is found at its first occurrence and the second after it, or the other way round if
    that fails; whole words take precedence over parts of words (Niger is not found inside Nigeria).
    """
    for step, pattern in product((1, -1), (r"(?<!\w)({})(?!\w)", "({})")):
        patterns = [pattern.format(re.escape(name)) for name in names[::step]]
        if match := re.search(".*?".join(patterns), context, re.DOTALL):
            return [Span(*match.span(group), match[group]) for group in (1, 2)][::step]
    first, second = names
    raise DataError(f"{first!r} and {second!r} do not both occur in the context {context!r}")
