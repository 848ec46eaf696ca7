"""Windows brought together: the best span as text, yes, no, unknown, numbers and options."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from interventune.data_modules.batching.decoding import decode_answers, decode_typed_answers
from interventune.data_modules.batching.sets import QASet, Question
from interventune.data_modules.encoding.windows import Encoding
from interventune.data_modules.schema.questions import Answer, QAExample, Span
from tests.data_modules.fixtures.small_tokenizers import KINDS, tokenizer

BERT = tokenizer("words_bert")
CONTEXT = "A  TOL, met Kess.  " * 8 + "a rude tol"
STORY = "He had 5 red or blue kites."
TOKENS = [(-1, -1, 0), (0, 2, 0), (3, 6, 0), (7, 8, 0), (9, 12, 0), (16, 20, 0), (21, 26, 0)]
scores = st.floats(0, 1, width=32)
TYPES = [(0.02, (2, 0.05), (1, 0.05), "red"), (0.5, (2, 0.05), (1, 0.05), "no")]
TYPES += [(0.02, (4, 0.7), (1, 0.05), "three"), (0.02, (4, 0.1), (2, 0.8), "blue")]


def question(text: str, context: str = CONTEXT) -> QAExample:
    return QAExample(text, context, "Who was rude?", (Span.locate(text, context, ""),))


@pytest.mark.parametrize("kind", KINDS)
def test_gold_spans_come_back_as_written_after_padding(kind: str) -> None:
    examples = [*map(question, ("TOL", "Kess", "rude tol")), question(" Kess ", "met  Kess .")]
    examples += [question("tole\u0301", "a tole\u0301 met")]  # some tokenizers drop the accent
    data = QASet(examples, tokenizer(kind), Encoding(max_length=64, doc_stride=32))
    batch = data[range(len(data.lengths))]
    score = (batch.start_B != batch.cls_B).float()
    found = sorted(decode_answers(data, batch, batch.start_B, batch.end_B, score, score - 1))
    for i, (answer, example) in enumerate(zip(found, examples, strict=True)):
        assert (answer.example, answer.score) == (i, 1)
        assert answer.text == example.answers[0].text.strip()
        assert example.context[answer.start :].startswith(answer.text)
    assert found[2].start == CONTEXT.rindex("rude tol")


@pytest.mark.parametrize(("null", "text"), [([5.0, 5.0], ""), ([5.0, 0.5], "TOL")])
def test_no_answer_must_win_in_every_window(null: list[float], text: str) -> None:
    examples = [question("TOL"), QAExample("2", CONTEXT, "Who slept?")]  # a set that may abstain
    data = QASet(examples, BERT, Encoding(max_length=40, doc_stride=28))
    windows = np.flatnonzero(data.question_N == 0)[:2]
    batch = data[windows]
    score = torch.where(batch.start_B == batch.cls_B, -1.0, 1.0)
    assert sorted(score.tolist()) == [-1, 1]
    (answer,) = decode_answers(data, batch, batch.start_B, batch.end_B, score, torch.tensor(null))
    assert (answer.text, answer.guess) == (text, "TOL")
    assert answer.unknown_score == min(null) - 1


def decoded(
    spans: Any, types: Any, *classes: tuple[int, float], question: str = "Were they red or blue?"
) -> Answer:
    """The answer to windows: spans (score, start, end), scores of types, and (class, score)."""
    asked, count = Question("q", STORY, question, ["5"], "span", ""), len(spans)
    data: Any = SimpleNamespace(question_N=np.zeros(count, int))
    data.questions = lambda index: [asked for _ in index]
    data.tokens = lambda index: [TOKENS for _ in index]
    score, start, end = (torch.tensor(column) for column in zip(*spans, strict=True))
    of_class = [torch.tensor([value]) for pair in classes for value in pair] or [None] * 4
    batch: Any = SimpleNamespace(feature_B=torch.arange(count), shift_B=torch.zeros_like(start))
    (answer,) = decode_typed_answers(data, batch, start, end, score, torch.tensor(types), *of_class)
    return answer


@pytest.mark.parametrize(
    ("spans", "types", "answer"),
    [
        ([(3.0, 4, 6)], [(1.0, 2.0, 0.0)], "red or blue kites"),
        ([(1.0, 4, 4)], [(1.5, 2.0, 0.0)], "no"),
        ([(1.0, 4, 4)], [(1.5, 2.0, 5.0)], "unknown"),
        ([(2.0, 3, 3)], [(2.0, 2.0, 2.0)], "5"),  # of equals; one character is an answer
        # A question is unknown only if every window says so.
        ([(1.0, 4, 4), (2.0, 6, 6)], [(0.0, 0.0, 9.0), (0.0, 0.0, 1.0)], "kites"),
        ([(1.0, 4, 4), (2.0, 6, 6)], [(0.0, 0.0, 9.0), (0.0, 0.0, 3.0)], "unknown"),
    ],
)
def test_of_rationale_heads_the_highest_score_wins(spans: Any, types: Any, answer: Any) -> None:
    assert decoded(spans, types).text == answer


@pytest.mark.parametrize(("no", "number", "option", "answer"), TYPES)
def test_xlnet_answers_the_likeliest_type(no: float, number: Any, option: Any, answer: str) -> None:
    window = [(-1.0, 4, 4)], [(0.01, no, 0.03)], number, option
    assert decoded(*window).text == answer
    if answer == "blue":  # of a question without or it is the span
        assert decoded(*window, question="Which colour?").text == "red"


@pytest.mark.parametrize("classes", [(), ((4, 0.1), (2, 0.1))])
@given(st.lists(st.tuples(scores, scores, scores, scores), min_size=1, max_size=3))
def test_the_guess_is_said_without_unknown(classes: Any, windows: list[tuple[float, ...]]) -> None:
    """Rationale heads say unknown where it scores above the guess; XLNet's give its probability."""
    windows = windows[:1] if classes else windows
    spans, types = [(window[0], 4, 6) for window in windows], [window[1:] for window in windows]
    answer = decoded(spans, types, *classes)
    other = decoded(spans, [(yes, no, -1.0) for yes, no, _ in types], *classes)
    assert answer.guess == other.text == other.guess != "unknown"
    unknown = min(window[3] for window in windows)
    assert answer.unknown_score == (unknown if classes else unknown - other.score)
    if not classes:
        assert (answer.text == "unknown") == (answer.unknown_score > 0)
