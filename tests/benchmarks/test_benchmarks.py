"""The systems train on the same rows; arithmetic is torch's, likelihoods are lm-eval's."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForQuestionAnswering

from benchmarks import likelihoods, training
from benchmarks.side_by_side import SHAPES, Turn, compared, shown
from interventune.data_modules.sources import read_choices

VOCABULARY = 400
MINILM = SHAPES["training"]["cpu"]
CONFIG = MINILM.config | {"num_hidden_layers": 2, "hidden_size": 48, "vocab_size": VOCABULARY}
CONFIG["num_attention_heads"] = 3


@contextmanager
def rows_seen() -> Iterator[Counter[tuple[int, ...]]]:
    """Counts every row of token ids, without padding, that any model looks up."""
    seen: Counter[tuple[int, ...]] = Counter()

    def look(module: nn.Module, arguments: Any) -> None:
        if isinstance(module, nn.Embedding) and module.num_embeddings == VOCABULARY:
            seen.update(tuple(i for i in row if i != 0) for row in arguments[0].tolist())

    hook = register_module_forward_pre_hook(look)
    try:
        yield seen
    finally:
        hook.remove()


@pytest.mark.parametrize("name", training.SYSTEMS)
def test_every_system_trains_once_on_every_window(name: str, tmp_path: Path) -> None:
    shape = replace(MINILM, config=CONFIG, questions=13, batch_size=4)
    job = training.make_job(shape, tmp_path, 0)
    expected = Counter(tuple(ids) for ids in training.windows(job)["input_ids"])
    with rows_seen() as seen:
        assert training.SYSTEMS[name](job).rate > 0
    assert seen == expected


def test_flops_are_counted_as_torch_counts_them() -> None:
    config = AutoConfig.for_model("bert", **CONFIG)
    model = AutoModelForQuestionAnswering.from_config(config, attn_implementation="eager")
    at_B = torch.zeros(3, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        model(torch.ones(3, 64).long(), start_positions=at_B, end_positions=at_B).loss.backward()
    assert training.training_flops(CONFIG, [64] * 3) == counter.get_total_flops()


def test_ratios_compare_turn_by_turn() -> None:
    """Noise that halves the rates of both systems in one turn cancels out."""
    rates = (6.0, 2.0), (3.0, 1.0)
    turns = [{"ours": Turn(ours, {}), "theirs": Turn(theirs, {})} for ours, theirs in rates]
    rows = pd.DataFrame([row for turn in turns for row in compared("t", "rows/s", turn)])
    *_, ours, theirs = (" ".join(line.split()) for line in shown(rows).splitlines())
    assert (ours, theirs) == ("t ours 4.5 (3 to 6) 1", "t theirs 1.5 (1 to 2) 3")


def test_log_likelihoods_are_those_of_lm_eval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likelihoods, "read_choices", lambda source: read_choices(source)[:24])
    monkeypatch.setattr(likelihoods, "SYSTEMS", {"interventune": likelihoods.interventune})
    measured = likelihoods.measure("cpu", repeats=1)
    assert measured["questions/s"].min() > 0
