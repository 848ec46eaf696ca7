"""Padding on either side, and back."""

from __future__ import annotations

from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.batching.sets import PAD_TO, QASet, pad_rows
from data_modules.encoding.windows import EncodedRow, Encoding
from data_modules.stories.questions import qa_examples
from tests.data_modules.fixtures.encoded import windows_of
from tests.data_modules.fixtures.small_tokenizers import tokenizer


def made_row(length: int, rng: np.random.Generator) -> EncodedRow:
    offsets_TE = np.sort(rng.integers(0, 99, (length, 2)), axis=1)
    offsets_TE[rng.random(length) < 0.4] = -1
    ids, types = rng.integers(1, 99, length), rng.integers(0, 3, length)
    return EncodedRow(ids.astype(np.int32), types.astype(np.uint8), offsets_TE, int(rng.integers(length)), 0)


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    side=st.sampled_from(["left", "right"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_unpadding_gives_back_the_rows(lengths: list[int], side: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [made_row(length, rng) for length in lengths]
    pads: Any = SimpleNamespace(pad_token_id=0, pad_token_type_id=7, padding_side=side)
    inputs, context_BT, shift_B = pad_rows(rows, pads)
    width = inputs["input_ids"].shape[1]
    assert width % PAD_TO == 0
    assert max(lengths) <= width < max(lengths) + PAD_TO
    for r, (row, shift) in enumerate(zip(rows, shift_B.tolist(), strict=True)):
        room = width - len(row.input_ids_T)
        assert shift == (room if side == "left" else 0)
        inside, columns = row.offsets_TE[:, 0] >= 0, (shift, room - shift)
        for found_BT, values_T, padding in (
            (inputs["input_ids"], row.input_ids_T, 0),
            (inputs["token_type_ids"], row.token_type_ids_T, 7),
            (inputs["attention_mask"], np.ones(len(inside)), 0),
            (context_BT, inside, False),
        ):
            assert found_BT[r].tolist() == np.pad(values_T, columns, constant_values=padding).tolist()


@pytest.mark.parametrize("kind", ["words_bert", "words_xlnet"])  # padding behind, and before
def test_positions_of_a_question_batch_point_into_the_padded_rows(kind: str) -> None:
    encoding = Encoding(max_length=64, order="auto")
    examples = list(islice(qa_examples("conversation_dev"), 9))
    windows = windows_of(examples, tokenizer(kind), encoding)
    index = [4, 0, len(windows) - 1]
    batch = QASet(examples, tokenizer(kind), encoding)[index]
    assert batch.feature_B.tolist() == index
    for b, window in enumerate(windows[i] for i in index):
        row, shift = window.row, int(batch.shift_B[b])
        shown = slice(shift, shift + len(row.input_ids_T))
        assert batch.inputs["input_ids"][b, shown].tolist() == row.input_ids_T.tolist()
        positions = (batch.start_B[b], batch.end_B[b], batch.cls_B[b])
        assert [int(at) - shift for at in positions] == [window.start, window.end, row.cls]
        for mask_BT, mask_T in (
            (batch.rationale_BT, window.rationale_T),
            (batch.max_context_BT, window.max_context_T),
            (batch.context_BT, row.offsets_TE[:, 0] >= 0),
        ):
            assert mask_BT[b, shown].tolist() == mask_T.tolist()
            assert mask_BT[b].sum() == mask_T.sum()
        targets = (batch.answer_type_B[b], batch.number_B[b], batch.option_B[b])
        assert targets == (window.answer_type, window.number, window.option)
