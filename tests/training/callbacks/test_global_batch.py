"""The global batch: kept where it can be, told in any case."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from training.callbacks.run_record import global_batch, in_words, keep_global_batch


def trainer(nodes: int, devices: int, accumulation: int) -> Any:
    data = SimpleNamespace(
        train_set=SimpleNamespace(groups=None, qa=[], choices=None),
        qa_batch_tokens=0,
        qa_batch_size=16,
        groups_per_class=3,
    )
    return SimpleNamespace(world_size=nodes * devices, accumulate_grad_batches=accumulation, datamodule=data)


@given(st.integers(1, 3), st.integers(1, 8), st.integers(1, 4), st.integers(0, 16))
def test_a_step_takes_what_was_planned_or_says_so(
    nodes: int, devices: int, accumulation: int, planned: int
) -> None:
    made = trainer(nodes, devices, accumulation)
    keep_global_batch(made, planned)
    batch = global_batch(made, planned, accumulation)
    assert batch["batches_per_step"] == nodes * devices * made.accumulate_grad_batches
    wanted = (planned or 1) * accumulation
    if planned and wanted % (nodes * devices) == 0:
        assert batch["batches_per_step"] == wanted
    if not planned:
        assert made.accumulate_grad_batches == accumulation
    assert ("THE CONFIGURATION SAYS" in in_words(batch)) == (batch["batches_per_step"] != wanted)
