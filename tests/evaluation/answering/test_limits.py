"""What a model reads is limited by the model alone, and does not depend on the batch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForQuestionAnswering

from data_modules.schema.questions import ChoiceQuestion, QAExample
from data_modules.stories.questions import vocabulary
from data_modules.stories.word_tokenizer import build_tokenizer
from evaluation.__main__ import main
from evaluation.answering.checkpoint import QuestionCheckpoint
from evaluation.answering.choice_checkpoint import ChoiceCheckpoint
from evaluation.answering.interface import Choosing
from evaluation.answering.open import open_answerer
from tests.evaluation.cells import Cells
from tests.evaluation.checkpoints import QUESTIONS, save_ckpt, save_folder
from tests.evaluation.protocol_cases import save_causal, write_rows

ASKING = Choosing(device="cpu", batch_size=4)


def bert_of(folder: Path, positions: int) -> Path:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_hidden_layers": 1}
    config = BertConfig(vocab_size=320, max_position_embeddings=positions, **sizes)
    BertForQuestionAnswering(config).save_pretrained(folder)
    build_tokenizer("bert", vocabulary()).save_pretrained(folder)
    return folder


def test_an_encoder_of_few_positions_reads_windows_that_overlap(tmp_path: Path) -> None:
    folder = bert_of(tmp_path / "short", 48)
    long = replace(QUESTIONS[0], context=" ".join([QUESTIONS[0].context] * 8))
    model: Any = open_answerer(str(folder), ASKING)
    assert (model.encoding.max_length, model.encoding.doc_stride) == (48, 16)
    assert [answer.failure for answer in model.answers([long, *QUESTIONS])] == [""] * (1 + len(QUESTIONS))
    chooser: Any = open_answerer(str(folder), ASKING, need="choices")
    question = ChoiceQuestion("1", long.context, ("the attic", "the bank"), 0)
    assert isinstance(chooser, ChoiceCheckpoint)
    assert np.isfinite(chooser.choice_logits([question])[0]).all()


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_an_encoder_whose_tokenizer_pads_on_the_left_answers_as_alone(
    architecture: str, tmp_path: Path
) -> None:
    """Padding before a text would move its positions with the longest text of the batch."""
    folder = save_folder(tmp_path / "qa", architecture)
    settings = folder / "tokenizer_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "padding_side": "left"}))
    assert AutoTokenizer.from_pretrained(folder).padding_side == "left"
    model = QuestionCheckpoint(str(folder), ASKING)
    short, long = QUESTIONS[0], replace(QUESTIONS[1], context=" ".join([QUESTIONS[1].context] * 5))
    together = [answer.unknown_score for answer in model.answers([short, long])]
    alone = [answer.unknown_score for one in (short, long) for answer in model.answers([one])]
    assert together == pytest.approx(alone, abs=1e-4)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlnet"])
@pytest.mark.parametrize("context", ["", " ", "\n\t"])
def test_a_question_about_an_empty_text_has_no_answer(
    architecture: str, context: str, tmp_path: Path
) -> None:
    path = save_ckpt(tmp_path / "a.ckpt", architecture)
    asked = [QAExample("1", context, "where is anna ?"), QUESTIONS[0]]
    found = sorted(QuestionCheckpoint(str(path), ASKING).answers(asked))
    assert found[0].text == ""
    assert found[1].text


LONG = " ".join(["Dora went to the bank."] * 60)


def stories(path: Path) -> Path:
    """One story that a decoder of few positions cannot read, and three that it can."""
    rows = []
    for number, story in enumerate(["", "", LONG, ""]):
        context = f"Ben is in the bank. {story} Anna is in the attic. Cara is in the cellar."
        at = context.index("attic. Cara")
        answer = {"text": "attic", "answer_start": at}
        rows.append({"id": str(number), "context": context, "question": "where is anna ?"})
        rows[-1]["answers"] = {"text": [answer["text"]], "answer_start": [answer["answer_start"]]}
    write_rows(path, rows)
    return path


@pytest.mark.parametrize("form", ["{}", "hf:{}"])
def test_a_story_that_is_too_long_for_a_decoder_is_a_counted_failure(form: str, tmp_path: Path) -> None:
    save_causal(tmp_path / "m", positions=128, spread=0.5)
    asked = ["--checkpoint", form.format(f"m={tmp_path}/m" if form == "{}" else f"{tmp_path}/m")]
    asked += ["--data", str(stories(tmp_path / "qa.jsonl")), "--variants", "os", "--device", "cpu"]
    assert main(["faithfulness", *asked, "--output", str(tmp_path / "r")]) == 0
    frame = Cells(tmp_path / "r").frame
    failed = frame.query("measure == 'failed' and variant == 'os'").iloc[0]
    assert (failed["value"], failed["n"]) == (0.25, 4)


def test_stories_that_are_too_long_leave_the_shift_of_the_others(tmp_path: Path) -> None:
    save_causal(tmp_path / "m", positions=128, spread=0.5)
    asked = ["--checkpoint", f"m={tmp_path}/m", "--data", str(stories(tmp_path / "qa.jsonl"))]
    asked += ["--variants", "os", "ts"]
    assert main(["shift", *asked, "--device", "cpu", "--output", str(tmp_path / "r")]) == 0
    frame = Cells(tmp_path / "r").frame
    cosine = frame.query("measure == 'cosine' and variant == 'ts' and embedding == 'cls' and stories == ''")
    assert cosine["n"].tolist() == [3]
    assert "1 of 4 stories are longer than the model's context" in (tmp_path / "r" / "report.md").read_text()
