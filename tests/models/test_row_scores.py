"""Rows in batches of their own: within the budget, and back in their order."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch
from torch import Tensor

from data_modules.batching.group_set import GroupSet
from data_modules.encoding.windows import Encoding
from data_modules.stories.groups import groups
from models.row_scores import score_rows
from tests.data_modules.fixtures.encoded import rows_of_groups
from tests.data_modules.fixtures.small_tokenizers import tokenizer

GROUPS = list(islice(groups("heldout"), 11))


@pytest.mark.parametrize("name", ["words_bert", "words_xlnet"])  # padding behind, and before
@pytest.mark.parametrize("tokens", [1, 200, 100_000])
@pytest.mark.parametrize("count", [0, 1, 11])
def test_score_rows_keeps_order_and_budget(name: str, tokens: int, count: int) -> None:
    def read_off(inputs: dict[str, Tensor], context_BT: Tensor, candidate_BVSE: Tensor) -> Tensor:
        """Scores that say which tokens stand at the candidates, and how long the row and its context are."""
        assert len(context_BT) == 1 or context_BT.numel() <= tokens
        ids_BVSE = inputs["input_ids"].gather(1, candidate_BVSE.flatten(1)).view(candidate_BVSE.shape)
        lengths_B = inputs["attention_mask"].sum(1) + context_BT.sum(1) / 100
        return ids_BVSE * 1000.0 + lengths_B.view(-1, 1, 1, 1)

    groups, tok = GROUPS[:count], tokenizer(name)
    data = GroupSet(groups, tok, Encoding())
    found = score_rows(data.rows, data.lengths, read_off, tokens=tokens, device=torch.device("cpu"))
    found = found.unflatten(0, (-1, 4))
    assert found.shape == (count, 4, 2, 2)
    for n, (ids_V, candidate_VSE) in enumerate(rows_of_groups(groups, tok, Encoding())):
        for v, ids_T in enumerate(ids_V):
            context = tok(groups[n].variants[v].context, add_special_tokens=False)["input_ids"]
            expected = ids_T[candidate_VSE[v]] * 1000 + len(ids_T) + len(context) / 100
            np.testing.assert_allclose(found[n, v].numpy(), expected)
