"""Checkpoints as answerers: every question once, in any batching, from both kinds of file."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForQuestionAnswering

from data_modules.encoding.windows import Encoding
from data_modules.schema import QAExample, Span
from data_modules.stories.word_tokenizer import build_tokenizer
from evaluation.answering.checkpoint import QuestionCheckpoint
from evaluation.answering.interface import Asking
from models.backbones import Backbone, pick_device
from models.checkpoint import start
from models.heads.answers import RationaleModel
from tests.data_modules.fixtures.encoded import rows_of_groups
from tests.evaluation.checkpoints import GROUPS, QUESTIONS, Naive, save_ckpt, save_folder, save_model


def opened(path: Path | str, **options: Any) -> QuestionCheckpoint:
    return QuestionCheckpoint(str(path), Asking(**{"device": "cpu"} | options))


def long_questions() -> list[QAExample]:
    """Of one to five windows."""
    return [
        QAExample(str(i), " ".join(q.context for q in QUESTIONS[i : i + 1 + i % 4]), QUESTIONS[i].question)
        for i in range(8)
    ]


@pytest.mark.parametrize("architecture", ["bert", "xlnet"])
def test_every_question_is_answered_once_whatever_the_batch(architecture: str, tmp_path: Path) -> None:
    checkpoint = save_ckpt(tmp_path / "a.ckpt", architecture, max_length=48, stride=12)
    examples = long_questions()
    found = {}
    for size in (1, 3, 64):
        answers = list(opened(checkpoint, batch_size=size).spans(examples))
        assert sorted(answer.example for answer in answers) == list(range(len(examples)))
        for answer in answers:
            context = examples[answer.example].context
            assert answer.text
            assert context[answer.start : answer.start + len(answer.text)] == answer.text
        found[size] = {answer.example: answer.text for answer in answers}
    assert found[1] == found[3] == found[64]


def test_scores_come_in_the_order_of_the_groups(tmp_path: Path) -> None:
    path = save_ckpt(tmp_path / "a.ckpt", "xlnet")
    whole = opened(path).group_log_probs(GROUPS)
    assert whole.shape == (len(GROUPS), 4, 2, 2)
    assert whole.dtype == torch.float32
    assert (whole <= 0).all()
    turned = opened(path, batch_size=4).group_log_probs(GROUPS[::-1])
    torch.testing.assert_close(turned.flip(0), whole, atol=1e-4, rtol=1e-4)
    score_NVS = opened(path).subject_scores(GROUPS)
    assert score_NVS.dtype == torch.float64
    torch.testing.assert_close(score_NVS, whole.double().exp().prod(-1).sqrt())


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlnet"])
def test_scores_are_those_of_each_row_alone(architecture: str, tmp_path: Path) -> None:
    """The oracle: transformers' own class, a row at a time, without any padding."""
    path = str(save_folder(tmp_path / "folder", architecture))
    answerer = opened(path)
    found = answerer.group_log_probs(GROUPS)
    theirs = AutoModelForQuestionAnswering.from_pretrained(path).eval() if architecture != "xlnet" else None
    encoded = rows_of_groups(GROUPS, answerer.tokenizer, answerer.encoding)
    for n, (ids_V, types_V, candidate_VSE) in enumerate(encoded):
        for v in range(4):
            inputs = {
                "input_ids": torch.tensor(ids_V[v][None]),
                "attention_mask": torch.ones(1, len(ids_V[v]), dtype=torch.long),
                "token_type_ids": torch.tensor(types_V[v][None]),
            }
            with torch.no_grad():
                if theirs is None:
                    output = answerer.model(inputs)
                    start_T, end_T = output.start_BT[0], output.end_BT[0]
                else:
                    taken = inputs if architecture == "bert" else dict(list(inputs.items())[:2])
                    output = theirs(**taken)
                    start_T, end_T = output.start_logits[0], output.end_logits[0]
            for s, (first, last) in enumerate(candidate_VSE[v].tolist()):
                expected = torch.stack((start_T.log_softmax(0)[first], end_T.log_softmax(0)[last]))
                torch.testing.assert_close(found[n, v, s].exp(), expected.exp(), atol=1e-6, rtol=1e-4)


def mentions(example: QAExample) -> QAExample:
    """With two of its words as spans."""
    words = [match.span() for match in re.finditer(r"\w\w+", example.context)]
    at = (words[0], words[2])
    spans = tuple(Span(start, end, example.context[start:end]) for start, end in at)
    return replace(example, answers=spans, advice="be fair .")


def test_mentions_are_scored_beside_no_answer(tmp_path: Path) -> None:
    """log S of the span less log S of the classification token, as transformers has it."""
    folder = save_folder(tmp_path / "folder")
    naive, examples = Naive(folder), [mentions(question) for question in QUESTIONS]
    found = opened(folder, batch_size=3).span_scores(examples)
    for example, score_M in zip(examples, found, strict=True):
        query = f"{example.advice} {example.question}"
        _, start_T, end_T = naive.logits(example.context, query)
        none = float(start_T.log_softmax(-1)[0] + end_T.log_softmax(-1)[0]) / 2
        for span, score in zip(example.answers, score_M, strict=True):
            start, end = naive.score(example.context, query, span.start, span.end)
            assert score == pytest.approx(math.log(start * end) / 2 - none, abs=1e-4)


def test_mentions_stand_beside_the_unknown_of_rationale_heads(tmp_path: Path) -> None:
    """Of the softmax that types and positions share; unknown may need more."""
    torch.manual_seed(0)
    config = {"vocab_size": 320, "hidden_size": 32, "intermediate_size": 64}
    model = start(Backbone(architecture="bert", checkpoint="random", config=config), RationaleModel)
    path = save_model(tmp_path / "a.ckpt", model.eval(), Encoding())
    example = mentions(QUESTIONS[0])
    checkpoint = opened(path)
    (found,) = checkpoint.span_scores([example])
    encoded = checkpoint.tokenizer(
        f"{example.advice} {example.question}", example.context, return_tensors="pt"
    )
    inside_BT = torch.tensor([[side == 1 for side in encoded.sequence_ids(0)]])
    with torch.no_grad():
        output = checkpoint.model(dict(encoded), torch.tensor([0]), inside_BT)
    for span, score in zip(example.answers, found, strict=True):
        at = encoded.char_to_token(0, span.start, sequence_index=1)
        position = output.start_BT[0, at] + output.end_BT[0, at]
        assert score == pytest.approx(float(position / 2 - output.type_BC[0, 2]), abs=1e-4)
    (reluctant,) = opened(path, unknown_threshold=3.0).span_scores([example])
    assert reluctant[0] - found[0] == pytest.approx(1.5, abs=1e-5)


def test_scores_in_parts_and_in_bfloat16_stay_near(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_ckpt(tmp_path / "a.ckpt")
    whole = opened(path).group_log_probs(GROUPS)
    monkeypatch.setattr("evaluation.answering.checkpoint.PART", 5)
    torch.testing.assert_close(opened(path).group_log_probs(GROUPS), whole, atol=1e-5, rtol=1e-5)
    assert opened(path).group_log_probs([]).shape == (0, 4, 2, 2)
    near = opened(path, dtype="bfloat16").group_log_probs(GROUPS)
    torch.testing.assert_close(near.exp(), whole.exp(), atol=0.02, rtol=0.1)
    assert not torch.equal(near, whole)


def test_the_encoding_is_that_of_the_training(tmp_path: Path) -> None:
    ours = opened(save_ckpt(tmp_path / "a.ckpt", max_length=199, order="context_first"))
    assert ours.encoding == Encoding(max_length=199, order="context_first").resolved("bert")
    folder = opened(save_folder(tmp_path / "folder"))
    assert folder.encoding == Encoding().resolved("bert")


def test_devices() -> None:
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device("auto").type in ("cpu", "cuda")
    for name in ("nonsense", "cuda:99"):
        with pytest.raises(ValueError, match=f"--device {name}"):
            pick_device(name)


def test_identity_is_of_what_answers_depend_on(tmp_path: Path) -> None:
    path = save_ckpt(tmp_path / "a.ckpt")
    one = opened(path).identity
    assert opened(save_ckpt(tmp_path / "b.ckpt"), batch_size=3).identity == one
    assert opened(path, dtype="bfloat16").identity != one
    assert opened(save_ckpt(tmp_path / "c.ckpt", seed=2)).identity != one
    assert opened(save_ckpt(tmp_path / "d.ckpt", max_length=64, stride=16)).identity != one


def test_a_tokenizer_that_does_not_fit_is_one_line(tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "none")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises(ValueError, match="vocabulary"):
        opened(folder)
    build_tokenizer("bert", [f"word{i}" for i in range(400)]).save_pretrained(folder)
    with pytest.raises(ValueError, match="405 tokens"):
        opened(folder)
