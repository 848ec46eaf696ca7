"""A word-level tokenizer for tiny models, with the special tokens and pair layout of a real architecture.

    tokenizer = build_tokenizer("roberta", vocabulary())
    tokenizer(question, context, return_offsets_mapping=True)

Code that works with it also works with the pretrained tokenizer of the same architecture: same special
tokens, same segment ids, same padding side, same `sequence_ids` and offsets. (Only padding may differ: it
has segment id 0, where XLNet's own tokenizer has 3; no model uses it.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast


class Layout(NamedTuple):
    """An architecture's format of a text and of a pair; `:n` after a piece is its segment id."""

    single: str
    pair: str
    special: str
    """The special tokens in the order of their ids, each after its role."""
    pads_left: bool = False


LAYOUTS: dict[str, Layout] = {
    "bert": Layout(
        single="[CLS] $A [SEP]",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special="pad [PAD], unk [UNK], cls [CLS], sep [SEP], mask [MASK]",
    ),
    "roberta": Layout(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        # RoBERTa uses <s> as both bos and cls; its pad id is 1, from which it numbers positions.
        special="bos <s>, pad <pad>, eos </s>, unk <unk>, cls <s>, sep </s>, mask <mask>",
    ),
    "xlnet": Layout(
        single="$A:0 <sep>:0 <cls>:2",
        pair="$A:0 <sep>:0 $B:1 <sep>:1 <cls>:2",
        special="unk <unk>, bos <s>, eos </s>, cls <cls>, sep <sep>, pad <pad>, mask <mask>",
        pads_left=True,
    ),
    "llama": Layout("<s> $A", "<s> $A $B", special="bos <s>, eos </s>, unk <unk>, pad <pad>"),
}
LAYOUTS |= dict.fromkeys(("gpt2", "qwen2", "qwen3"), LAYOUTS["llama"]._replace(single="$A", pair="$A $B"))


def build_tokenizer(architecture: str, words: Iterable[str]) -> PreTrainedTokenizerFast:
    """Build a fast tokenizer: lower-casing, split at white space and punctuation, one id per word.

    Ids: special tokens first, then the words in the order given (without repetitions). Words outside the
    vocabulary become the unknown token. Raises ValueError for an architecture without a layout.
    """
    if architecture not in LAYOUTS:
        raise ValueError(f"no token layout of {architecture!r}; choose from {', '.join(LAYOUTS)}")
    layout = LAYOUTS[architecture]
    special = {f"{role}_token": token for role, token in map(str.split, layout.special.split(", "))}
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
        padding_side="left" if layout.pads_left else "right",
        model_input_names=inputs if ":" in layout.pair else [inputs[0], inputs[2]],
        model_max_length=512,
        clean_up_tokenization_spaces=False,
    )
