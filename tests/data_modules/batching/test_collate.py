"""Padding on either side, and back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data_modules.encoding.windows import PAD_TO, EncodedRow, pad_rows


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
