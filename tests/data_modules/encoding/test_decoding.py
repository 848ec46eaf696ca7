"""Token spans back to texts: cut from the raw context, from the best of all windows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data_modules.batching.decoding import decode_answers
from data_modules.batching.sets import QASet
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
    data = QASet(examples, tokenizer(kind), Encoding(max_length=64, stride=16))
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
    data = QASet([question("TOL")], tokenizer("words_bert"), Encoding(max_length=32, stride=4))
    n = len(data)
    assert n > 2
    offsets = data.offsets(range(n))
    first = torch.tensor([int((offsets_TE[:, 0] >= 0).argmax()) for offsets_TE in offsets])
    score = torch.linspace(0, 1, n)[torch.randperm(n, generator=torch.Generator().manual_seed(0))]
    (answer,) = decode_answers(data, torch.arange(n), first, first, score)
    best = int(score.argmax())
    assert answer.score == pytest.approx(1.0)
    assert answer.start == offsets[best][first[best], 0]


@pytest.mark.parametrize(("null", "text"), [([5.0, 5.0], ""), ([5.0, 0.5], "TOL"), ([-9.0, 9.0], "TOL")])
def test_no_answer_must_win_in_every_window(null: list[float], text: str) -> None:
    unanswerable = QAExample("2", CONTEXT, "Who slept?")
    data = QASet([question("TOL"), unanswerable], tokenizer("words_bert"), Encoding(max_length=40, stride=4))
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
@settings(max_examples=40, deadline=None)
@given(context=st.text(alphabet="ab tolkesTéß.,'\n ", min_size=1, max_size=40), data=st.data())
def test_any_span_is_cut_from_the_context(kind: str, context: str, data: st.DataObject) -> None:
    qa = QASet([QAExample("1", context, "who?")], tokenizer(kind), Encoding())
    inside = (qa.offsets([0])[0][:, 0] >= 0).nonzero()[0].tolist()
    if not inside:
        return
    start = data.draw(st.sampled_from(inside))
    end = data.draw(st.sampled_from([i for i in inside if i >= start]))
    (answer,) = decode_answers(
        qa, torch.tensor([0]), torch.tensor([start]), torch.tensor([end]), torch.tensor([0.0])
    )
    assert answer.text == answer.text.strip()
    assert context[answer.start : answer.start + len(answer.text)] == answer.text
