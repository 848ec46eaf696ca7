"""Tokenizers of every kind that the table of backbones uses, on a vocabulary of a few pieces."""

from __future__ import annotations

import string
from functools import cache
from typing import Any

from tokenizers.pre_tokenizers import ByteLevel
from transformers import BertTokenizer, DebertaV2Tokenizer, RobertaTokenizer, XLNetTokenizer

from data_modules.stories.questions import vocabulary
from data_modules.stories.word_tokenizer import build_tokenizer

PIECES = ("tol", "kess", "who", "was", "rude", "a", "met")
WORD_LEVEL = ("bert", "roberta", "xlnet")
KINDS = ("wordpiece", "bytes", "xlnet_pieces", "deberta_pieces", *(f"words_{name}" for name in WORD_LEVEL))


@cache
def tokenizer(kind: str) -> Any:
    """BERT's word pieces, RoBERTa's bytes, XLNet's and DeBERTa's sentence pieces, or the embedded words."""
    if kind.startswith("words_"):
        return build_tokenizer(kind.removeprefix("words_"), vocabulary())  # type: ignore[arg-type]
    if kind == "wordpiece":
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        pieces = [*PIECES, *string.ascii_lowercase, *(f"##{c}" for c in string.ascii_lowercase), *".,?!'-"]
        return BertTokenizer(vocab={piece: i for i, piece in enumerate(dict.fromkeys([*special, *pieces]))})
    if kind == "bytes":
        pieces = ["<s>", "<pad>", "</s>", "<unk>", *sorted(ByteLevel.alphabet()), "<mask>"]
        return RobertaTokenizer(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[])
    words = [
        ("▁", -2.0),
        *((f"▁{p}", -3.0) for p in PIECES),
        *((c, -9.0) for c in string.ascii_letters + ".,?!'-é"),
    ]
    if kind == "xlnet_pieces":
        names = ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>")
        return XLNetTokenizer(vocab=[*((name, 0.0) for name in names), *words])
    assert kind == "deberta_pieces"
    names = ("[PAD]", "[CLS]", "[SEP]", "[UNK]")
    return DebertaV2Tokenizer(vocab=[*((name, 0.0) for name in names), *words, ("[MASK]", 0.0)])
