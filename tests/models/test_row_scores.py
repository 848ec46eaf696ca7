"""Rows in batches of their own: each once, within the budget, and back in their order."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from data_modules.batching.group_set import GroupSet
from data_modules.encoding.windows import Encoding
from data_modules.stories.groups import groups
from models.row_scores import batches_within, score_rows, side_by_side
from tests.data_modules.fixtures.encoded import rows_of_groups
from tests.data_modules.fixtures.small_tokenizers import tokenizer

GROUPS = list(islice(groups("heldout"), 11))
CPU = torch.device("cpu")


@given(st.lists(st.integers(1, 100), max_size=60), st.integers(1, 400), st.sampled_from([1, 8, 16]))
def test_every_row_once_and_never_more_tokens_than_allowed(
    lengths: list[int], tokens: int, multiple: int
) -> None:
    batches = list(batches_within(np.array(lengths, dtype=np.int64), tokens, multiple))
    assert sorted(i for batch in batches for i in batch.tolist()) == list(range(len(lengths)))
    for batch in batches:
        width = -(-max(lengths[i] for i in batch) // multiple) * multiple
        assert len(batch) == 1 or len(batch) * width <= tokens


def read_off(inputs: dict[str, Tensor], context_BT: Tensor, candidate_BVSE: Tensor) -> Tensor:
    """Scores that say which tokens stand at the candidates, and how long the row and its context are."""
    ids_BVSE = inputs["input_ids"].gather(1, candidate_BVSE.flatten(1)).view(candidate_BVSE.shape)
    assert context_BT.gather(1, candidate_BVSE.flatten(1)).all()  # subjects are part of the context
    lengths_B = inputs["attention_mask"].sum(1) + context_BT.sum(1) / 100
    return ids_BVSE * 1000.0 + lengths_B.view(-1, 1, 1, 1)


@pytest.mark.parametrize("name", ["words_bert", "words_xlnet"])  # padding behind, and before
@pytest.mark.parametrize("tokens", [1, 200, 100_000])
@pytest.mark.parametrize("count", [0, 1, 11])
def test_scores_belong_to_their_rows_in_the_order_of_the_groups(name: str, tokens: int, count: int) -> None:
    groups, tok = GROUPS[:count], tokenizer(name)
    data = GroupSet(groups, tok, Encoding())
    found = score_rows(data.rows, data.lengths, read_off, tokens=tokens, device=CPU, multiple=16)
    found = found.unflatten(0, (-1, 4))
    assert found.shape == (count, 4, 2, 2)
    for n, (ids_V, candidate_VSE) in enumerate(rows_of_groups(groups, tok, Encoding())):
        for v, ids_T in enumerate(ids_V):
            context = tok(groups[n].variants[v].context, add_special_tokens=False)["input_ids"]
            expected = ids_T[candidate_VSE[v]] * 1000 + len(ids_T) + len(context) / 100
            np.testing.assert_allclose(found[n, v].numpy(), expected)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 40])
def test_every_task_is_done_once_under_the_callers_autocast(threads: int, count: int) -> None:
    done: list[int] = []
    modes: set[tuple[bool, torch.dtype]] = set()

    def task(at: int) -> None:
        done.append(at)
        half = torch.ones(2, 2) @ torch.ones(2, 2)
        modes.add((torch.is_inference_mode_enabled(), half.dtype))

    before = torch.get_num_threads()
    with torch.autocast("cpu", torch.bfloat16):
        side_by_side(task, count, threads)
    assert sorted(done) == list(range(count))
    assert modes <= {(True, torch.bfloat16)}
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("threads", [1, 2])
def test_the_first_error_ends_it(threads: int) -> None:
    done: list[int] = []

    def task(at: int) -> None:
        if at == 3:
            raise ValueError("the fourth")
        done.append(at)

    with pytest.raises(ValueError, match="the fourth"):
        side_by_side(task, 100_000, threads)
    assert len(done) < 100_000
