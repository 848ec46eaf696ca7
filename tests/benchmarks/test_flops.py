"""Counted arithmetic agrees with torch's own counter."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForQuestionAnswering

from benchmarks.training import BASE, LARGE, matrix_weights, sizes, training_flops

CONFIG = sizes(2, 48, 3, 80, 100)


def counted(architecture: str, config: dict, rows: int, tokens: int) -> int:
    model = AutoModelForQuestionAnswering.from_config(
        AutoConfig.for_model(architecture, **config), attn_implementation="eager"
    )
    ids_BT = torch.randint(5, 100, (rows, tokens))
    at_B = torch.zeros(rows, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        model(input_ids=ids_BT, start_positions=at_B, end_positions=at_B).loss.backward()
    return counter.get_total_flops()


@pytest.mark.parametrize(("rows", "tokens"), [(1, 7), (3, 64)])
def test_a_step_counts_as_torch_counts_it(rows: int, tokens: int) -> None:
    assert training_flops(CONFIG, [tokens] * rows) == counted("bert", CONFIG, rows, tokens)
    roberta = CONFIG | {"pad_token_id": 1, "max_position_embeddings": 514, "type_vocab_size": 1}
    assert training_flops(roberta, [tokens] * rows) == counted("roberta", roberta, rows, tokens)


def test_weights_of_the_large_shapes_are_the_published_ones() -> None:
    # RoBERTa: 125 M and 355 M parameters, of which 39.4 M and 52.5 M are embeddings.
    base, large = (matrix_weights(shape.config) / 1e6 for shape in (BASE, LARGE))
    assert base == pytest.approx(125 - 39.4, rel=0.02)
    assert large == pytest.approx(355 - 52.5, rel=0.02)
