"""Originals beside variants: common tokens are the same characters of the same story."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch

from data_modules.batching.pair_set import PairSet
from data_modules.batching.sets import QASet
from data_modules.encoding.windows import Encoding
from data_modules.interventions.variants import perturb
from data_modules.schema.questions import QAExample, Variant
from data_modules.stories.questions import qa_examples
from storage.errors import DataError
from tests.data_modules.fixtures.small_tokenizers import tokenizer

EXAMPLES = list(islice(qa_examples("conversation_dev"), 40))


@pytest.mark.parametrize("kind", ["words_bert", "words_roberta", "words_xlnet"])
@pytest.mark.parametrize("variant", ["ts", "ts_r", "os_r"])
def test_common_tokens_are_the_same_words_in_the_same_places(kind: str, variant: Variant) -> None:
    tok, encoding = tokenizer(kind), Encoding(order="auto").resolved(kind.removeprefix("words_"))
    made = [result for ex in EXAMPLES[::-2] if isinstance(result := perturb(ex, variant), QAExample)]
    assert made
    data = PairSet(QASet(EXAMPLES, tok, encoding), QASet(made, tok, encoding))
    batch = data[range(len(data))]
    places = (batch.original, batch.original_P), (batch.variant, batch.variant_P)
    original_P, changed_P = (half.inputs["input_ids"][batch.row_P, at_P] for half, at_P in places)
    assert torch.equal(original_P, changed_P)
    counts = torch.bincount(batch.row_P, minlength=len(data)).tolist()
    contexts = {example.id: example.context for example in EXAMPLES}
    for example, count in zip([made[q] for q in data.question_N], counts, strict=True):
        kept = "".join(contexts[example.id][a:b] for a, b in example.kept)
        assert count == len(tok(kept, add_special_tokens=False)["input_ids"]), example


@pytest.mark.parametrize("variant", ["ts", "ts_r", "os_r", "reworded", "spaced"])
def test_the_first_window_that_differs_is_read(variant: Variant) -> None:
    """A deletion at the end of a long story is not in the first one; `ts` may cut nothing."""
    tok, encoding = tokenizer("words_bert"), Encoding(max_length=40, doc_stride=10)
    made = [result for ex in EXAMPLES if isinstance(result := perturb(ex, variant), QAExample)]
    data = PairSet(QASet(EXAMPLES, tok, encoding), QASet(made, tok, encoding))
    same = {(ex.context, ex.question) for ex in EXAMPLES}
    changed = [
        i for i, one in enumerate(made) if (one.context, one.question) not in same and variant != "spaced"
    ]
    assert data.question_N.tolist() == changed
    ids = data.originals.token_ids(), data.variants.token_ids()
    for one, other in zip(data.original_N, data.variant_N, strict=True):
        assert not np.array_equal(ids[0][one], ids[1][other])
    later = data.variant_N > data.variants.first_Q[data.question_N]
    assert later.any() == (variant in ("ts", "ts_r", "os_r"))
    unpaired = PairSet(QASet(EXAMPLES[1:], tok, encoding), data.variants)  # its original was left out
    assert len(unpaired) == len(data) - (0 in changed)


def test_originals_of_one_id_cannot_be_told_apart() -> None:
    data = QASet(EXAMPLES[:1] * 2, tokenizer("words_bert"), Encoding())
    with pytest.raises(DataError, match="2 questions have the id"):
        PairSet(data, data)
