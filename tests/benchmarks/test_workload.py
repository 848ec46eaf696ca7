"""Draws have SQuAD's mix of lengths, or come from the user's file; the same seed draws the same."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from benchmarks.workload import ENCODING, make_workload, sample_lengths, synthetic, window_lengths
from data_modules.questions.squad import write_squad
from data_modules.sources import read_qa
from data_modules.stories import questions as stories
from storage.errors import DataError


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
    assert max(work.lengths[0]) == ENCODING.max_length
    assert window_lengths(work.files[0], tokenizer) == work.lengths[0]
    assert [len(lengths) for lengths in work.lengths] == [400, 30]
    assert work.lengths[0][:30] != work.lengths[1]


def test_made_up_answers_stand_in_their_context() -> None:
    for example in synthetic(50, 300, 3, np.random.default_rng(1)):
        example.answers[0].check(example.context, example.id)


def test_the_same_seed_draws_the_same(tmp_path: Path) -> None:
    texts = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        (tmp_path / name).mkdir()
        work = make_workload(tmp_path / name, draws=[5], vocabulary=100, seed=seed)
        texts.append(work.files[0].read_text())
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_a_file_of_the_users_gets_a_vocabulary_of_its_own(tmp_path: Path, architecture: str) -> None:
    source = tmp_path / "mine.json"
    write_squad(islice(stories.qa_examples("train"), 30), source)
    work = make_workload(
        tmp_path, draws=[10, 50], data=str(source), architecture=architecture, vocabulary=400
    )
    originals = {example.context for example in read_qa(str(source))}
    assert {example.context for example in read_qa(str(work.files[1]))} <= originals
    tokenizer = AutoTokenizer.from_pretrained(work.tokenizer)
    assert len(tokenizer) <= 400
    row = tokenizer("where?", "the garden", return_offsets_mapping=True)
    assert row["input_ids"][0] == tokenizer.cls_token_id
    assert tokenizer.unk_token_id not in tokenizer(next(iter(originals)))["input_ids"]
    assert window_lengths(work.files[0], tokenizer) == work.lengths[0]


def test_a_file_without_questions_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.json"
    empty.write_text('{"data": [{"paragraphs": [{"context": "Nobody asks.", "qas": []}]}]}')
    with pytest.raises(DataError, match="holds no questions"):
        make_workload(tmp_path, draws=[1], data=str(empty))
