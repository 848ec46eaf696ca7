"""Windows brought together: the best span as text, yes, no, unknown, numbers and options."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data_modules.batching.decoding import decode_answers, decode_typed_answers
from data_modules.batching.sets import QASet, Question
from data_modules.encoding.windows import Encoding
from data_modules.schema import QAExample, Span
from tests.data_modules.fixtures.small_tokenizers import KINDS, tokenizer

CONTEXT = "A  TOL, met Kess.  " * 8 + "a rude tol"


def question(text: str, context: str = CONTEXT) -> QAExample:
    return QAExample(text, context, "Who was rude?", (Span.locate(text, context, ""),))


@pytest.mark.parametrize("kind", KINDS)
def test_gold_spans_come_back_as_written_after_padding(kind: str) -> None:
    """Round trip on both padding sides: batch positions less the shift are the windows' own."""
    examples = [question("TOL"), question("Kess"), question("rude tol"), question("Kess", "met  Kess .")]
    data = QASet(examples, tokenizer(kind), Encoding(max_length=64, doc_stride=32))
    batch = data[list(range(len(data)))]
    has_answer_B = (batch.start_B != batch.cls_B).float()
    answers = decode_answers(
        data, batch.feature_B, batch.start_B - batch.shift_B, batch.end_B - batch.shift_B, has_answer_B
    )
    found = {answer.example: answer for answer in answers}
    assert sorted(found) == [0, 1, 2, 3]
    for i, example in enumerate(examples):
        assert found[i].text == example.answers[0].text
        assert example.context[found[i].start :].startswith(found[i].text)
        assert found[i].score == 1
    assert found[2].start == CONTEXT.rindex("rude tol")


def test_the_window_with_the_highest_score_answers() -> None:
    data = QASet([question("TOL")], tokenizer("words_bert"), Encoding(max_length=32, doc_stride=20))
    n = len(data)
    assert n > 2
    offsets = [offsets_TE for _, offsets_TE in data.tokens(range(n))]
    first = torch.tensor([int((offsets_TE[:, 0] >= 0).argmax()) for offsets_TE in offsets])
    score = torch.linspace(0, 1, n)[torch.randperm(n, generator=torch.Generator().manual_seed(0))]
    (answer,) = decode_answers(data, torch.arange(n), first, first, score)
    best = int(score.argmax())
    assert answer.score == pytest.approx(1.0)
    assert answer.start == offsets[best][first[best], 0]


@pytest.mark.parametrize(("null", "text"), [([5.0, 5.0], ""), ([5.0, 0.5], "TOL"), ([-9.0, 9.0], "TOL")])
def test_no_answer_must_win_in_every_window(null: list[float], text: str) -> None:
    unanswerable = QAExample("2", CONTEXT, "Who slept?")
    data = QASet(
        [question("TOL"), unanswerable], tokenizer("words_bert"), Encoding(max_length=40, doc_stride=28)
    )
    windows = [i for i, question in enumerate(data.question_N) if question == 0][:2]
    assert len(windows) == 2
    batch = data[windows]
    spans = list(zip(batch.start_B.tolist(), batch.end_B.tolist(), strict=True))
    answered = max(range(2), key=lambda i: spans[i] != (int(batch.cls_B[i]),) * 2)
    score = torch.tensor([-1.0, -1.0])
    score[answered] = 1.0
    start, end = (torch.tensor([span[k] for span in spans]) for k in (0, 1))
    (answer,) = decode_answers(data, torch.tensor(windows), start, end, score, torch.tensor(null))
    assert answer.text == text


def test_without_an_allowed_span_the_answer_is_empty() -> None:
    data = QASet([question("TOL")], tokenizer("words_bert"), Encoding())
    (answer,) = decode_answers(
        data, torch.tensor([0]), torch.tensor([-5]), torch.tensor([-5]), torch.tensor([float("-inf")])
    )
    assert (answer.text, answer.start) == ("", -1)


@pytest.mark.parametrize("kind", KINDS)
@given(context=st.text(alphabet="ab tolkesTéß.,'\n ", min_size=1, max_size=40), data=st.data())
def test_any_span_is_cut_from_the_context(kind: str, context: str, data: st.DataObject) -> None:
    qa = QASet([QAExample("1", context, "who?")], tokenizer(kind), Encoding())
    inside = (qa.tokens([0])[0][1][:, 0] >= 0).nonzero()[0].tolist()
    if not inside:
        return
    start = data.draw(st.sampled_from(inside))
    end = data.draw(st.sampled_from([i for i in inside if i >= start]))
    (answer,) = decode_answers(
        qa, torch.tensor([0]), torch.tensor([start]), torch.tensor([end]), torch.tensor([0.0])
    )
    assert answer.text == answer.text.strip()
    assert context[answer.start : answer.start + len(answer.text)] == answer.text


STORY = "He had 5 red or blue kites."
OFFSETS = np.array([[-1, -1], [0, 2], [3, 6], [7, 8], [9, 12], [16, 20], [21, 26]])


def data(windows: int, question: str = "Were they red or blue?") -> Any:
    asked = Question("q", STORY, question, ["5"], "span", "")
    return SimpleNamespace(
        question_N=[0] * windows,
        questions=lambda index: [asked for _ in index],
        tokens=lambda index: [(None, OFFSETS) for _ in index],
    )


def scores(
    spans: list[tuple[float, int, int]],
    types: list[tuple[float, float, float]],
    numbers: list[tuple[int, float]] | None = None,
    options: list[tuple[int, float]] | None = None,
) -> list[torch.Tensor | None]:
    def column(values: Any, at: int) -> torch.Tensor | None:
        return None if values is None else torch.tensor([value[at] for value in values])

    score, start, end = (torch.tensor([span[i] for span in spans]) for i in range(3))
    n, ns, o, os = column(numbers, 0), column(numbers, 1), column(options, 0), column(options, 1)
    return [start, end, score, torch.tensor(types), n, ns, o, os]


def answer(found: Any, question: str = "Were they red or blue?") -> tuple[str, str]:
    windows = len(found[0])
    (said,) = decode_typed_answers(data(windows, question), torch.arange(windows), *found)
    return said.text, said.answer_type


def test_the_highest_score_wins_and_a_span_where_scores_are_equal() -> None:
    assert answer(scores([(3.0, 4, 6)], [(1.0, 2.0, 0.0)])) == ("red or blue kites", "span")
    assert answer(scores([(1.0, 4, 4)], [(1.5, 2.0, 0.0)])) == ("no", "no")
    assert answer(scores([(1.0, 4, 4)], [(2.5, 2.0, 0.0)])) == ("yes", "yes")
    assert answer(scores([(1.0, 4, 4)], [(1.5, 2.0, 5.0)])) == ("unknown", "unknown")
    assert answer(scores([(2.0, 3, 3)], [(2.0, 2.0, 2.0)])) == ("5", "span")  # one character is an answer


def test_a_question_is_unknown_only_if_every_window_says_so() -> None:
    spans = [(1.0, 4, 4), (2.0, 6, 6)]
    assert answer(scores(spans, [(0.0, 0.0, 9.0), (0.0, 0.0, 1.0)])) == ("kites", "span")
    assert answer(scores(spans, [(0.0, 0.0, 9.0), (0.0, 0.0, 3.0)])) == ("unknown", "unknown")
    assert answer(scores(spans, [(9.0, 0.0, 9.0), (0.0, 0.0, 1.0)])) == ("yes", "yes")


@pytest.mark.parametrize(
    ("types", "number", "option", "said"),
    [
        ((0.01, 0.02, 0.03), (2, 0.05), (1, 0.05), ("red", "span")),
        ((0.01, 0.5, 0.03), (2, 0.05), (1, 0.05), ("no", "no")),
        ((0.01, 0.02, 0.6), (2, 0.05), (1, 0.05), ("unknown", "unknown")),
        ((0.01, 0.02, 0.03), (4, 0.7), (1, 0.05), ("three", "number")),
        ((0.01, 0.02, 0.03), (4, 0.1), (2, 0.8), ("blue", "option")),
    ],
)
def test_xlnets_heads_answer_the_most_probable_type_from_the_threshold_on(
    types: tuple[float, float, float], number: tuple[int, float], option: tuple[int, float], said: Any
) -> None:
    found = scores([(-1.0, 4, 4)], [types], [number], [option])
    assert answer(found) == said


def test_an_option_of_a_question_without_or_is_the_span() -> None:
    found = scores([(-1.0, 4, 4)], [(0.0, 0.0, 0.0)], [(1, 0.0)], [(1, 0.9)])
    assert answer(found, "Which colour?") == ("red", "option")
