"""Originals beside variants: common tokens are the same characters of the same story."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from data_modules.batching.sets import PairSet, QASet
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
    for example, count in zip(made, counts, strict=True):
        kept = "".join(contexts[example.id][a:b] for a, b in example.kept)
        assert count == len(tok(kept, add_special_tokens=False)["input_ids"]), example


def test_originals_of_one_id_cannot_be_told_apart() -> None:
    data = QASet(EXAMPLES[:1] * 2, tokenizer("words_bert"), Encoding())
    with pytest.raises(DataError, match="2 questions have the id"):
        PairSet(data, data)
