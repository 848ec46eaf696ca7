"""Pairs of prompt and choice as rows, and batches of questions with equally many choices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.batching.choice_set import ChoiceEncoding, ChoiceSet
from data_modules.schema.questions import ChoiceQuestion
from tests.data_modules.fixtures.small_tokenizers import tokenizer

ARCHITECTURES = {"wordpiece": "bert", "bytes": "roberta", "xlnet_pieces": "xlnet", "words_xlnet": "xlnet"}
TWO = ChoiceQuestion("two", "who was rude?", ("the tolin met a", "a kessar"), 1)
EMPTY = ChoiceQuestion("empty", "", ("a tolin", "a"), 0)
LONG = ChoiceQuestion("long", "who was " * 30, ("met a " * 20, "a"), 0)


def choice_set(kind: str, *examples: ChoiceQuestion, **encoding: Any) -> ChoiceSet:
    return ChoiceSet(examples, tokenizer(kind), ChoiceEncoding(**encoding), ARCHITECTURES[kind])


def unpadded(data: ChoiceSet, *index: int) -> list[list[list[int]]]:
    """Token ids of every row, by the attention mask."""
    inputs = data[index].inputs
    pairs = zip(inputs["input_ids"], inputs["attention_mask"], strict=True)
    return [[ids[mask == 1].tolist() for ids, mask in zip(*pair, strict=True)] for pair in pairs]


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_rows_are_the_tokenizers_pairs(kind: str) -> None:
    """RoBERTa's with a space before each text; of a longer pair the longer text is cut."""
    data, space = choice_set(kind, TWO, EMPTY, LONG, max_length=24), " " if kind == "bytes" else ""
    for example, rows in zip((TWO, EMPTY, LONG), unpadded(data, 0, 1, 2), strict=True):
        for choice, row in zip(example.choices, rows, strict=True):
            pair = example.prompt and space + example.prompt, space + choice
            assert row == tokenizer(kind)(*pair, truncation="longest_first", max_length=24)["input_ids"]


def test_rows_of_roberta() -> None:
    """An empty prompt keeps its separators (probes spec B1), and a space is not doubled."""
    ((first, _),) = unpadded(choice_set("bytes", EMPTY), 0)
    assert "".join(tokenizer("bytes").convert_ids_to_tokens(first)) == "<s></s></s>ĠaĠtolin</s>"
    spaced = ChoiceQuestion("s", " who was rude?", (" the tolin met a", " a kessar"), 1)
    assert unpadded(choice_set("bytes", TWO), 0) == unpadded(choice_set("bytes", spaced), 0)


def test_parity_pads_every_row_to_the_longest_allowed() -> None:
    dynamic, parity = choice_set("bytes", TWO, EMPTY), choice_set("bytes", TWO, EMPTY, padding="parity")
    assert parity[[1]].inputs["input_ids"].shape == (1, 2, 128)
    assert unpadded(parity, 0, 1) == unpadded(dynamic, 0, 1)


@given(st.lists(st.integers(2, 5), min_size=1, max_size=40), st.integers(1, 30))
def test_batches_hold_each_question_once_with_equal_counts(counts: list[int], rows: int) -> None:
    data = ChoiceSet.__new__(ChoiceSet)
    data.counts = np.array(counts)
    data.lengths = np.random.default_rng(0).integers(1, 9, len(counts))
    batches = data.batches(rows)
    assert sorted(i for batch in batches for i in batch) == list(range(len(counts)))
    for batch in batches:
        assert len({counts[i] for i in batch}) == 1
        assert len(batch) == 1 or len(batch) * counts[batch[0]] <= rows
