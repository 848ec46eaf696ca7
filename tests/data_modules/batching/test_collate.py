"""Padding on either side, and back."""

from __future__ import annotations

from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data_modules.batching.sets import Collator, QASet
from data_modules.encoding.windows import EncodedRow, Encoding
from data_modules.stories.questions import qa_examples
from tests.data_modules.fixtures.encoded import windows_of
from tests.data_modules.fixtures.small_tokenizers import tokenizer

SEEDS = st.integers(0, 2**32 - 1)


def made_row(length: int, rng: np.random.Generator) -> EncodedRow:
    offsets_TE = np.sort(rng.integers(0, 99, (length, 2)), axis=1)
    offsets_TE[rng.random(length) < 0.4] = -1
    ids, types = rng.integers(1, 99, length), rng.integers(0, 3, length)
    return EncodedRow(ids.astype(np.int32), types.astype(np.uint8), offsets_TE, int(rng.integers(length)), 0)


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    multiple=st.integers(1, 17),
    side=st.sampled_from(["left", "right"]),
    seed=SEEDS,
)
def test_unpadding_gives_back_the_rows(lengths: list[int], multiple: int, side: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [made_row(length, rng) for length in lengths]
    collator = Collator(SimpleNamespace(pad_token_id=0, pad_token_type_id=7, padding_side=side), multiple)
    inputs, context_BT, shift_B = collator.pad(rows)
    width = inputs["input_ids"].shape[1]
    assert width % multiple == 0
    assert max(lengths) <= width < max(lengths) + multiple
    for r, row in enumerate(rows):
        at = slice(int(shift_B[r]), int(shift_B[r]) + len(row.input_ids_T))
        assert inputs["input_ids"][r, at].tolist() == row.input_ids_T.tolist()
        assert inputs["token_type_ids"][r, at].tolist() == row.token_type_ids_T.tolist()
        assert context_BT[r, at].tolist() == (row.offsets_TE[:, 0] >= 0).tolist()
        assert inputs["attention_mask"][r, at].all()
        padding = torch.ones(width, dtype=torch.bool)
        padding[at] = False
        assert not inputs["attention_mask"][r, padding].any()
        assert (inputs["input_ids"][r, padding] == 0).all()
        assert (inputs["token_type_ids"][r, padding] == 7).all()
        assert not context_BT[r, padding].any()
        assert (at.stop == width) if side == "left" else (at.start == 0)


@pytest.mark.parametrize("kind", ["words_bert", "words_xlnet"])  # padding behind, and before
def test_positions_of_a_question_batch_point_into_the_padded_rows(kind: str) -> None:
    encoding = Encoding(max_length=64, order="auto")
    examples = list(islice(qa_examples("conversation_dev"), 9))
    windows = windows_of(examples, tokenizer(kind), encoding)
    index = [4, 0, len(windows) - 1]
    batch = QASet(examples, tokenizer(kind), encoding)[index]
    assert batch.feature_B.tolist() == index
    assert batch.inputs["input_ids"].shape[1] % 8 == 0
    for b, i in enumerate(index):
        window = windows[i]
        ids = batch.inputs["input_ids"][b]
        assert ids[batch.start_B[b]] == window.row.input_ids_T[window.start]
        assert ids[batch.end_B[b]] == window.row.input_ids_T[window.end]
        assert ids[batch.cls_B[b]] == window.row.input_ids_T[window.row.cls]
        assert int(batch.end_B[b] - batch.shift_B[b]) == window.end
        shown = slice(int(batch.shift_B[b]), int(batch.shift_B[b]) + len(window.row.input_ids_T))
        for mask_BT, mask_T in (
            (batch.rationale_BT, window.rationale_T),
            (batch.max_context_BT, window.max_context_T),
            (batch.context_BT, window.row.offsets_TE[:, 0] >= 0),
        ):
            assert mask_BT[b, shown].tolist() == mask_T.tolist()
            assert mask_BT[b].sum() == mask_T.sum()
        targets = (batch.answer_type_B[b], batch.number_B[b], batch.option_B[b])
        assert targets == (window.answer_type, window.number, window.option)
