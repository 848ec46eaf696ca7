"""Draws have SQuAD's mix of lengths, or come from the user's file; the same seed draws the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from benchmarks.workload import ENCODING, make_workload, sample_lengths
from data_modules.encoding.windows import encode_texts
from data_modules.sources import read_questions


def test_lengths_have_squads_mean_and_its_tail() -> None:
    lengths = sample_lengths(20_000, np.random.default_rng(0))
    assert lengths.mean() == pytest.approx(160.9, abs=2)
    assert lengths.max() == ENCODING.max_length
    assert (lengths == ENCODING.max_length).mean() == pytest.approx(0.0121, abs=0.003)
    assert lengths.min() >= 32


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_every_made_up_question_is_one_window_of_its_length(tmp_path: Path, architecture: str) -> None:
    work = make_workload(tmp_path, draws=[400, 30], architecture=architecture, vocabulary=500)
    tokenizer = AutoTokenizer.from_pretrained(work.tokenizer)
    examples = list(read_questions(str(work.files[0])))
    texts = ((example.context, example.question, example.id) for example in examples)
    windows = [len(row.input_ids_T) for row in encode_texts(texts, tokenizer, ENCODING)]
    assert tuple(windows) == work.lengths[0]
    assert max(work.lengths[0]) == ENCODING.max_length
    assert [len(lengths) for lengths in work.lengths] == [400, 30]
    for example in examples:
        example.answers[0].check(example.context, example.id)


def test_the_same_seed_draws_the_same(tmp_path: Path) -> None:
    texts = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        (tmp_path / name).mkdir()
        (file,) = make_workload(tmp_path / name, draws=[5], vocabulary=100, seed=seed).files
        texts.append(file.read_text())
    assert texts[0] == texts[1] != texts[2]
