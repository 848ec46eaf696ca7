"""Decode token spans into texts of the original context; combine the windows of a question.

Shape letters: B windows of a batch, which holds all windows of its questions; C answer types (yes,
no, unknown).
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from operator import attrgetter
from unicodedata import category

from torch import Tensor

from interventune.data_modules.encoding.prompts import answer_in
from interventune.data_modules.questions.answer_spans import NUMBER_WORDS, option_words
from interventune.data_modules.schema.questions import Answer, TextPair

from .sets import QABatch, QASet

TYPE_THRESHOLD = 0.1
"""XLNet's heads: if the most probable type has at least this probability, it is the answer, else
the span. The share of unknown depends strongly on the authors' low value.
"""


def best_spans(data: QASet, batch: QABatch, *spans: Tensor) -> Iterator[tuple[Answer, list[int]]]:
    """Yield the best span of every question (the first on ties), and its windows' rows."""
    columns_B = *spans, batch.feature_B, batch.shift_B
    start, end, score, windows, shift = (column_B.tolist() for column_B in columns_B)
    rows_of = defaultdict(list)
    for row, question in enumerate(data.question_N[windows].tolist()):
        rows_of[question].append(row)
    best = [max(rows, key=score.__getitem__) for rows in rows_of.values()]
    columns = data.questions(list(rows_of)), data.tokens([windows[row] for row in best])
    for (example, rows), row, question, tokens in zip(rows_of.items(), best, *columns, strict=True):
        text = ""
        at = -1
        if score[row] > -math.inf:
            at = tokens[start[row] - shift[row]][0]
            last = tokens[end[row] - shift[row]][1]
            # A mark that the tokenizer drops belongs to the letter before it.
            while category(question.context[last : last + 1] or " ") == "Mn":
                last += 1
            text = question.context[at:last]
        at = at + len(text) - len(text.lstrip()) if text else -1
        yield Answer(example, text.strip(), score[row], at), rows


def decode_answers(data: QASet, batch: QABatch, *spans: Tensor) -> Iterator[Answer]:
    """Yield every question's answer from its best window.

    If the set allows it (`may_abstain`), the answer is empty when "no answer" scores higher than
    the best span in every window (SQuAD 2.0, with a threshold of 0). `spans` are the fields of
    interventune.models.heads.span.SpanPrediction.
    """
    *best, null_B = spans
    null = null_B.tolist()
    for span, rows in best_spans(data, batch, *best):
        unknown_score = min(null[row] for row in rows) - span.score
        abstains = data.may_abstain and unknown_score > 0
        answer = span._replace(text="", start=-1) if abstains else span
        yield answer._replace(unknown_score=unknown_score, guess=span.text)


def written_answers(data: QASet, feature_B: Tensor, texts: Iterable[TextPair]) -> Iterator[Answer]:
    """Yield the answers in what a decoder wrote, from its texts with their failures."""
    for feature, (text, reason) in zip(feature_B.tolist(), texts, strict=True):
        answer, failure = answer_in(text, reason)
        yield Answer(int(data.question_N[feature]), answer, failure=failure)


def decode_typed_answers(
    data: QASet, batch: QABatch, *prediction: Tensor | None
) -> Iterator[Answer]:
    """Yield the answer of every question: a span, yes, no, unknown, a number or an option.

    Over windows, spans, yes, no, numbers and options take their maximum, unknown its minimum (a
    question is unknown only if it is in every window). With rationale heads the highest score wins;
    on ties a span, then yes, no and unknown. With XLNet's heads, the most probable type wins, if it
    reaches TYPE_THRESHOLD (Chaturvedi et al. 2023, section 4.2, and the authors' code).

    `prediction` has the fields of interventune.models.heads.answers.AnswerPrediction.
    """
    start_B, end_B, score_B, *rest = (column for column in prediction if column is not None)
    types, *of_xlnet = (column.tolist() for column in rest)
    by_score = attrgetter("score")
    for span, rows in best_spans(data, batch, start_B, end_B, score_B):
        at = span.example
        yes, no, none = zip(*(types[row] for row in rows), strict=True)
        others = [Answer(at, "yes", max(yes)), Answer(at, "no", max(no))]
        unknown = Answer(at, "unknown", min(none))
        if not of_xlnet:
            spans = [span] if span.text else []
            guess = max(spans + others, key=by_score)  # the first on ties
            best = max(guess, unknown, key=by_score)
            score = unknown.score - guess.score
        else:
            numbers, number_scores, options, option_scores = of_xlnet
            number_score, number = max((number_scores[row], numbers[row]) for row in rows)
            option_score, option = max((option_scores[row], options[row]) for row in rows)
            words = option_words(data.questions([at])[0].question)
            others += [
                Answer(at, NUMBER_WORDS[number - 1], number_score),
                Answer(at, words[option - 1] if words else span.text, option_score),
            ]
            best, guess = (
                answer if answer.score >= TYPE_THRESHOLD and answer.text else span
                for answer in (max([unknown, *others], key=by_score), max(others, key=by_score))
            )
            best = best if best.text else unknown
            score = unknown.score
        yield best._replace(unknown_score=score, guess=guess.text)
