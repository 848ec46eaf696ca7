"""Layouts, offsets and the round trip of the word-level tokenizer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.stories.word_tokenizer import build_tokenizer

WORDS = ["who", "has", "the", "red", "ball", "anna", "?", ".", "'", "-"]
QUESTION, CONTEXT = "Who has the ball?", "Anna has the red ball."
ARCHITECTURES = ["bert", "roberta", "xlnet"]
PAIRS = [
    ("bert", "[CLS] who has the ball ? [SEP] anna has the red ball . [SEP]", [0] * 7 + [1] * 7),
    ("roberta", "<s> who has the ball ? </s> </s> anna has the red ball . </s>", None),
    ("xlnet", "who has the ball ? <sep> anna has the red ball . <sep> <cls>", [0] * 6 + [1] * 7 + [2]),
]


@pytest.mark.parametrize(("architecture", "tokens", "segments"), PAIRS)
def test_build_tokenizer_lays_pairs_out_as_the_architecture(
    architecture: str, tokens: str, segments: list[int] | None
) -> None:
    tokenizer = build_tokenizer(architecture, WORDS)
    encoded = tokenizer(QUESTION, CONTEXT)
    assert tokenizer.convert_ids_to_tokens(encoded["input_ids"]) == tokens.split()
    assert encoded.get("token_type_ids") == segments


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@given(
    pieces=st.lists(st.sampled_from([*WORDS, "Anna", "BALL", "Unheard"]), min_size=1, max_size=12),
    data=st.data(),
)
def test_build_tokenizer_offsets_cut_words_out_of_the_text(
    architecture: str, pieces: list[str], data: st.DataObject
) -> None:
    gaps = data.draw(st.lists(st.sampled_from([" ", "  ", "\n"]), min_size=len(pieces), max_size=len(pieces)))
    text = "".join(piece + gap for piece, gap in zip(pieces, gaps, strict=True))
    encoded = build_tokenizer(architecture, WORDS)(
        text, return_offsets_mapping=True, add_special_tokens=False
    )
    assert [text[a:b] for a, b in encoded["offset_mapping"]] == pieces
