"""Pairs of prompt and choice as rows, and batches of questions with equally many choices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.batching.choice_set import ChoiceSet
from data_modules.encoding.choices import ChoiceEncoding
from data_modules.schema import ChoiceQuestion
from tests.data_modules.fixtures.small_tokenizers import KINDS, tokenizer

ARCHITECTURES = {
    "wordpiece": "bert",
    "bytes": "roberta",
    "xlnet_pieces": "xlnet",
    "deberta_pieces": "deberta-v3",
    "words_bert": "bert",
    "words_roberta": "roberta",
    "words_xlnet": "xlnet",
}
TWO = ChoiceQuestion("two", "who was rude?", ("the tolin met a", "a kessar"), 1)
THREE = ChoiceQuestion("three", "who", ("a", "was rude", "met"), 2)
EMPTY = ChoiceQuestion("empty", "", ("a tolin", "a"), 0)


def choice_set(kind: str, *examples: ChoiceQuestion, **encoding: Any) -> ChoiceSet:
    return ChoiceSet(examples, tokenizer(kind), ChoiceEncoding(**encoding), ARCHITECTURES[kind])


def unpadded(data: ChoiceSet, *index: int) -> list[list[list[int]]]:
    """Token ids of every row, by the attention mask."""
    inputs = data[index].inputs
    pairs = zip(inputs["input_ids"], inputs["attention_mask"], strict=True)
    return [[ids[mask == 1].tolist() for ids, mask in zip(*pair, strict=True)] for pair in pairs]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_the_tokenizers_pairs(kind: str) -> None:
    data = choice_set(kind, TWO, EMPTY)
    single = tokenizer(kind)
    space = " " if ARCHITECTURES[kind] == "roberta" else ""
    for example, rows in zip((TWO, EMPTY), unpadded(data, 0, 1), strict=True):
        prompt = example.prompt and space + example.prompt
        for choice, row in zip(example.choices, rows, strict=True):
            assert row == single(prompt, space + choice)["input_ids"]


def test_an_empty_prompt_keeps_its_separators() -> None:
    """`<s></s></s> choice </s>` (probes spec B1)."""
    roberta = tokenizer("bytes")
    ((first, _),) = unpadded(choice_set("bytes", EMPTY), 0)
    assert "".join(roberta.convert_ids_to_tokens(first)) == "<s></s></s>ĠaĠtolin</s>"


def test_robertas_space_is_not_doubled() -> None:
    spaced = ChoiceQuestion("s", " who was rude?", (" the tolin met a", " a kessar"), 1)
    assert unpadded(choice_set("bytes", TWO), 0) == unpadded(choice_set("bytes", spaced), 0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_longer_text_is_cut(kind: str) -> None:
    """By turns token by token, until the row fits: what transformers calls longest_first."""
    long = ChoiceQuestion("long", "who was " * 30, ("met a " * 20, "a"), 0)
    data = choice_set(kind, long, max_length=16)
    (rows,) = unpadded(data, 0)
    assert [len(row) for row in rows] == [16, 16]
    space = " " if ARCHITECTURES[kind] == "roberta" else ""
    for choice, row in zip(long.choices, rows, strict=True):
        encoded = tokenizer(kind)(
            space + long.prompt, space + choice, truncation="longest_first", max_length=16
        )
        assert row == encoded["input_ids"]
    sides = [side for side in encoded.sequence_ids(0) if side is not None]
    assert sides.count(1) == len(tokenizer(kind)(space + "a", add_special_tokens=False)["input_ids"])


@pytest.mark.parametrize("kind", ["words_bert", "words_xlnet"])
def test_padding(kind: str) -> None:
    dynamic, parity = choice_set(kind, TWO, EMPTY), choice_set(kind, TWO, EMPTY, padding="parity")
    longest = max(len(row) for rows in unpadded(dynamic, 0, 1) for row in rows)
    assert dynamic[[0, 1]].inputs["input_ids"].shape == (2, 2, -(-longest // 8) * 8)
    assert parity[[1]].inputs["input_ids"].shape == (1, 2, 128)
    assert unpadded(parity, 0, 1) == unpadded(dynamic, 0, 1)
    mask_T = parity[[1]].inputs["attention_mask"][0, 0]
    assert mask_T[-1 if kind == "words_xlnet" else 0] == 1  # XLNet pads on the left


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
