"""The benchmarks of bias: systems agree on their results, and quick runs give whole figures."""

from __future__ import annotations

import pytest

from benchmarks import bias_metrics, bias_scoring
from benchmarks.bias_metrics import reference_bias
from benchmarks.report import Row
from metrics.bias.group_bias import GroupBias
from tests.metrics.batches import naive_class, random_batch


def systems(rows: list[Row], repeats: int) -> dict[str, Row]:
    assert all(row["n"] == repeats and row["low"] > 0 for row in rows)
    return {row["system"]: row for row in rows}


def test_the_plain_reference_is_the_naive_reading_of_the_formulas_and_so_is_the_metric(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("metrics.bias.sums.PART", 70)
    batch = random_batch(300, 3, 5, 4)
    found = reference_bias(zip(*(value.tolist() for value in batch), strict=True))
    metric = GroupBias(3, 5, 4)
    metric.update(*batch)
    result = metric.compute()
    for k in range(3):
        expected = naive_class(batch, k)
        assert found[k] == pytest.approx({name: expected[name] for name in found[k]}, abs=1e-12)
        for name, value in found[k].items():
            assert getattr(result, f"{name}_K")[k].item() == pytest.approx(value, abs=1e-9)


def test_bias_metrics_are_the_same_for_both() -> None:
    made = systems(bias_metrics.measure(repeats=2, quick=True), 2)
    assert list(made) == [bias_metrics.OURS, bias_metrics.REFERENCE]
    for row in made.values():
        assert row["notes"]["largest difference of a result"] < 1e-9


def test_scores_are_the_same_however_rows_are_batched() -> None:
    made = systems(bias_scoring.measure(repeats=1, quick=True), 1)
    assert next(iter(made)) == "interventune"
    for name, row in made.items():
        limit = 5e-3 if name == "interventune" else 1e-6
        assert row["notes"]["largest difference of a probability"] <= limit
