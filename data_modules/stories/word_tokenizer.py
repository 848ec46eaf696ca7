"""A word-level tokenizer for tiny models, with the special tokens and pair layout of a real
architecture.

    tokenizer = build_tokenizer("roberta", vocabulary())
    tokenizer(question, context, return_offsets_mapping=True)

Code that works with it also works with the pretrained tokenizer of the same architecture: same
special tokens, same segment ids, same padding side, same `sequence_ids` and offsets. (Only padding
may differ: it has segment id 0, where XLNet's own tokenizer has 3; no model uses it.)
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from interventune.storage.documents import load_yaml


class Layout(BaseModel):
    """An architecture's format of a text and of a pair (layouts.yaml)."""

    single: str
    pair: str
    special: dict[str, str]
    side: Literal["left", "right"] = "right"
    """The side of padding."""


LAYOUTS = load_yaml(Path(__file__).with_name("layouts.yaml"), dict[str, Layout])


def build_tokenizer(architecture: str, words: Iterable[str]) -> PreTrainedTokenizerFast:
    """Build a fast tokenizer: lower-casing, split at white space and punctuation, one id per word.

    Ids: special tokens first, then the words in the order given (without repetitions). Words
    outside the vocabulary become the unknown token. Raises ValueError for an architecture without a
    layout.
    """
    if architecture not in LAYOUTS:
        raise ValueError(f"no token layout of {architecture!r}; choose from {', '.join(LAYOUTS)}")
    layout = LAYOUTS[architecture]
    special = layout.special
    pieces = dict.fromkeys([*special.values(), *(word.lower() for word in words)])
    ids = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=special["unk_token"]))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=layout.single,
        pair=layout.pair,
        special_tokens=[(token, ids[token]) for token in dict.fromkeys(special.values())],
    )
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **special,
        padding_side=layout.side,
        model_input_names=inputs if ":" in layout.pair else [inputs[0], inputs[2]],
        model_max_length=512,
        clean_up_tokenization_spaces=False,
    )
