"""What a model reads is limited by the model alone, and does not depend on the batch."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from interventune.data_modules.schema.questions import ChoiceQuestion, QAExample
from interventune.evaluation.answering.checkpoint import QuestionCheckpoint
from interventune.evaluation.answering.interface import Choosing, open_answerer
from tests.evaluation.cells import evaluate
from tests.evaluation.checkpoints import QUESTIONS, save_ckpt, save_folder
from tests.evaluation.protocol_cases import write_rows

ASKING = Choosing(device="cpu", batch_size=4)


def test_an_encoder_of_few_positions_reads_windows_that_overlap(tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "short", max_position_embeddings=48)
    long = replace(QUESTIONS[0], context=" ".join([QUESTIONS[0].context] * 8))
    model: Any = open_answerer(str(folder), ASKING)
    assert (model.encoding.max_length, model.encoding.doc_stride) == (48, 16)
    assert not any(answer.failure for answer in model.answers([long, *QUESTIONS]))
    chooser = open_answerer(str(folder), ASKING, need="choices")
    question = ChoiceQuestion("1", long.context, ("the attic", "the bank"), 0)
    assert np.isfinite(chooser.choice_logits([question])[0]).all()


def test_an_encoder_that_pads_on_the_left_answers_as_alone(tmp_path: Path) -> None:
    """Padding before a text would move its positions with the longest text of the batch."""
    folder = save_folder(tmp_path / "qa")
    settings = folder / "tokenizer_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "padding_side": "left"}))
    assert AutoTokenizer.from_pretrained(folder).padding_side == "left"
    model = QuestionCheckpoint(str(folder), ASKING)
    short, long = QUESTIONS[0], replace(QUESTIONS[1], context=" ".join([QUESTIONS[1].context] * 5))
    together = [answer.unknown_score for answer in model.answers([short, long])]
    alone = [answer.unknown_score for one in (short, long) for answer in model.answers([one])]
    assert together == pytest.approx(alone, abs=1e-4)


@pytest.mark.parametrize("architecture", ["bert", "xlnet"])
@pytest.mark.parametrize("context", ["", "\n\t"])
def test_an_empty_text_has_no_answer(architecture: str, context: str, tmp_path: Path) -> None:
    path = save_ckpt(tmp_path / "a.ckpt", architecture)
    examples = [QAExample("1", context, "where is anna ?"), QUESTIONS[0]]
    answers = sorted(QuestionCheckpoint(str(path), ASKING).answers(examples))
    assert answers[0].text == ""
    assert answers[1].text


def test_a_story_too_long_for_a_decoder_is_left_out(room: Path, tmp_path: Path) -> None:
    """A failure of its question; the shift of the three others is reported."""
    rows = []
    for number, story in enumerate(["", "", "Dora went to the bank. " * 60, ""]):
        context = f"Ben is in the bank. {story} Anna is in the attic. Cara is in the cellar."
        answers = {"text": ["attic"], "answer_start": [context.index("attic. Cara")]}
        row = {"id": str(number), "context": context, "question": "where is anna ?"}
        rows.append(row | {"answers": answers})
    write_rows(tmp_path / "qa.jsonl", rows)
    flags = f"--checkpoint m={room}/causal --data {tmp_path}/qa.jsonl --variants os".split()
    cells = evaluate(tmp_path / "f", "faithfulness", *flags)
    row = cells.row("failed", checkpoint="m", variant="os")
    assert (row["value"], row["n"]) == (0.25, 4)
    cells = evaluate(tmp_path / "s", "shift", *flags, "ts")
    assert cells.n("cosine", checkpoint="m", variant="ts", embedding="cls", layer="last") == 3
    assert "Left out: m: 1 questions in ts (too" in (tmp_path / "s/report.md").read_text()
