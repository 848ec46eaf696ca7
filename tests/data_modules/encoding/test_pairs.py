"""Originals beside variants: common tokens are the same characters of the same story."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data_modules.batching.sets import PairSet
from data_modules.encoding.pairs import encode_pairs, in_original
from data_modules.encoding.tables import in_memory
from data_modules.encoding.windows import Encoding
from data_modules.interventions.variants import perturb
from data_modules.schema import QAExample, Variant
from data_modules.stories.questions import qa_examples, vocabulary
from data_modules.stories.word_tokenizer import build_tokenizer
from storage.errors import DataError

EXAMPLES = tuple(islice(qa_examples("conversation_dev"), 40))
EXAMPLES_BY_ID = {example.id: example for example in EXAMPLES}


def pairs_of(variant: Variant) -> list[tuple[QAExample, QAExample]]:
    results = ((example, perturb(example, variant)) for example in EXAMPLES)
    return [(example, result) for example, result in results if isinstance(result, QAExample)]


def pair_set(variant: Variant, tokenizer: Any, encoding: Encoding) -> PairSet:
    encode = partial(encode_pairs, tokenizer=tokenizer, encoding=encoding)
    return PairSet(in_memory(pairs_of(variant), encode), tokenizer, encoding, variant)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlnet"])
@pytest.mark.parametrize("variant", ["ts", "ts_r", "os_r"])
def test_common_tokens_are_the_same_words_in_the_same_places(architecture: str, variant: Variant) -> None:
    tokenizer = build_tokenizer(architecture, vocabulary())  # type: ignore[arg-type]
    encoding = Encoding(order="auto").resolved(architecture)
    data = pair_set(variant, tokenizer, encoding)
    batch = data[range(len(data))]
    original = batch.original["input_ids"][batch.row_P, batch.original_P]
    changed = batch.variant["input_ids"][batch.row_P, batch.variant_P]
    assert torch.equal(original, changed)
    cls = batch.original["input_ids"][torch.arange(len(data)), batch.original_cls_B]
    assert (cls == tokenizer.cls_token_id).all()
    counts = torch.bincount(batch.row_P, minlength=len(data)).tolist()
    for (_, example), count in zip(pairs_of(variant), counts, strict=True):
        kept = "".join(EXAMPLES_BY_ID[example.id].context[a:b] for a, b in example.kept)
        words = tokenizer(kept, add_special_tokens=False)["input_ids"]
        assert count == len(words), example


def test_a_variant_of_another_story_is_refused() -> None:
    (first, _), (_, second) = pairs_of("ts")[:2]
    with pytest.raises(DataError, match="not made from"):
        encode_pairs([(first, second)], build_tokenizer("bert", vocabulary()), Encoding())


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), min_size=1, max_size=4), st.data())
def test_places_in_a_variant_are_places_of_the_same_characters(
    gaps: list[tuple[int, int]], data: st.DataObject
) -> None:
    kept, at = [], 0
    for gap, length in gaps:
        kept.append((at + gap, at + gap + length))
        at += gap + length
    text = "".join(chr(97 + i % 26) for i in range(at))
    variant = "".join(text[a:b] for a, b in kept)
    start = data.draw(st.integers(0, len(variant) - 1))
    end = data.draw(st.integers(start + 1, len(variant)))
    moved = in_original(start, end, kept)
    if moved is not None:
        assert text[moved[0] : moved[1]] == variant[start:end]
