"""Checkpoints as answerers: each question once, in any batching, from both kinds of file."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from interventune.data_modules.batching.candidates import ChoiceEncoding
from interventune.data_modules.batching.sets import HIDDEN
from interventune.data_modules.encoding.windows import Encoding
from interventune.data_modules.schema.questions import QAExample, Span
from interventune.evaluation.answering.checkpoint import ChoiceCheckpoint, QuestionCheckpoint
from interventune.evaluation.answering.interface import Asking, Compute
from interventune.evaluation.report import failure_note
from interventune.models.checkpoint import heads_class
from interventune.models.heads.span import ChoiceModel
from interventune.models.loading import start
from tests.evaluation.checkpoints import (
    GROUPS,
    QUESTIONS,
    Naive,
    save_ckpt,
    save_folder,
    save_model,
    tiny_backbone,
    tiny_model,
)


def opened(path: Path | str, **options: Any) -> QuestionCheckpoint:
    return QuestionCheckpoint(str(path), Asking(**{"device": "cpu"} | options))


@pytest.mark.parametrize("architecture", ["bert", "xlnet"])
def test_spans_do_not_depend_on_batches(architecture: str, tmp_path: Path) -> None:
    checkpoint = save_ckpt(tmp_path / "a.ckpt", architecture, max_length=48, doc_stride=24)
    stories = [" ".join(q.context for q in QUESTIONS[i : i + 1 + i % 4]) for i in range(8)]
    examples = [QAExample("1", story, "Where is Anna?") for story in stories]
    runs = [opened(checkpoint, batch_size=size).spans(examples, None, "") for size in (1, 3, 64)]
    for answers in runs:
        assert [answer.example for answer in answers] == list(range(len(examples)))
        assert [answer.text for answer in answers] == [answer.text for answer in runs[0]]
    for story, answer in zip(stories, runs[0], strict=True):
        assert answer.text
        assert story.startswith(answer.text, answer.start)


def test_words_unknown_to_the_tokenizer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = opened(save_ckpt(tmp_path / "a.ckpt"))
    list(model.answers(QUESTIONS))
    assert not caplog.messages
    for _ in range(2):
        list(model.answers([QAExample("1", "Petrus Romam venit.", "Quo vadis?")]))
    (warning,) = caplog.messages
    assert "unknown to the tokenizer" in warning


def test_answers_that_no_window_shows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = opened(save_ckpt(tmp_path / "a.ckpt", max_length=32, doc_stride=8))
    story = " ".join(question.context for question in QUESTIONS)
    spans = Span(0, 4, story[:4]), Span(0, 300, story[:300])
    examples = [QAExample(f"{i}", story, "Where is Anna?", (span,)) for i, span in enumerate(spans)]
    examples.append(QAExample("2", story, "Where is Anna?", references=("elsewhere",)))
    failures = [answer.failure for answer in sorted(model.answers(examples))]
    assert failures == ["", HIDDEN, HIDDEN]
    rows = [{"checkpoint": "a", "failure": one} if one else {"checkpoint": "a"} for one in failures]
    assert f"a: 2 {HIDDEN}" in failure_note(pd.DataFrame(rows), "questions")
    assert f"2 {HIDDEN}" in caplog.text
    caplog.clear()
    failure_note(pd.DataFrame([*rows[:2], *rows[:1] * 50]), "questions")
    assert not caplog.messages  # few are not warned of


def mentions(example: QAExample) -> QAExample:
    """With two of its words as spans."""
    words = [match.span() for match in re.finditer(r"\w\w+", example.context)]
    at = (words[0], words[2])
    spans = tuple(Span(start, end, example.context[start:end]) for start, end in at)
    return replace(example, answers=spans, advice="be fair .")


def test_span_scores_match_transformers(tmp_path: Path) -> None:
    """log S of the span less log S of the classification token, as transformers has it."""
    folder = save_folder(tmp_path / "folder")
    naive, examples = Naive(folder), [mentions(question) for question in QUESTIONS]
    scores = opened(folder, batch_size=3).span_scores(examples)
    for example, score_M in zip(examples, scores, strict=True):
        query = f"{example.advice} {example.question}"
        _, start_T, end_T = naive.logits(example.context, query)
        none = float(start_T.log_softmax(-1)[0] + end_T.log_softmax(-1)[0]) / 2
        for span, score in zip(example.answers, score_M, strict=True):
            start, end = naive.score(example.context, query, span.start, span.end)
            assert score == pytest.approx(math.log(start * end) / 2 - none, abs=1e-4)


@pytest.mark.parametrize(("heads", "architecture"), [("rationale", "bert"), ("xlnet", "xlnet")])
def test_spans_of_heads_score_as_subjects(heads: str, architecture: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    model = start(tiny_backbone(architecture), heads_class(heads)).eval()
    checkpoint = opened(save_model(tmp_path / "a.ckpt", model, Encoding()))
    variant = GROUPS[0].variants[0]
    question = QAExample("q", variant.context, variant.question, tuple(variant.candidates))
    question = replace(question, advice=variant.advice)
    (log_score_C,) = checkpoint.span_scores([question])
    score_NVS = checkpoint.subject_scores(GROUPS[:1])
    ratio = score_NVS[0, 0, 0] / score_NVS[0, 0, 1]
    assert np.exp(log_score_C[0] - log_score_C[1]) == pytest.approx(float(ratio), rel=1e-4)


def test_embeddings_are_unit_vectors_in_the_order_of_the_texts(tmp_path: Path) -> None:
    seed = torch.Generator().manual_seed(0)
    model = ChoiceModel(tiny_model("bert").encoder, "bert", generator=seed)
    path = save_model(tmp_path / "a.ckpt", model, ChoiceEncoding())
    checkpoint = ChoiceCheckpoint(str(path), Compute(device="cpu", batch_size=2))
    texts = ["Anna is in the kitchen.", "red", "Anna is in the kitchen.", "Who has a ball?"]
    vectors = checkpoint.embeddings(texts)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(vectors[0], vectors[2], atol=1e-5)
    hidden = checkpoint.model.encode(dict(checkpoint.tokenizer("red", return_tensors="pt")))
    expected = torch.nn.functional.normalize(hidden.mean(1), dim=-1)[0]
    np.testing.assert_allclose(vectors[1], expected.detach(), atol=1e-5)
