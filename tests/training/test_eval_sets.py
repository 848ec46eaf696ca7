"""Metrics of evaluation sets, from the rows of all processes."""

import math
from typing import Any

import pytest
import torch

from interventune.data_modules.schema.questions import ANSWER_TYPES
from interventune.training.callbacks.eval_sets import Questions

YES, SPAN = (ANSWER_TYPES.index(name) for name in ("yes", "span"))
SPANS: Any = [[SPAN, 1, 1, 0], [SPAN, 0, 0.5, 1]]


def named(family: Any, rows: Any) -> dict[str, float]:
    return dict(family.named(family, torch.as_tensor(rows, dtype=torch.float64)))


def test_answers_are_averaged_over_all_and_by_type_without_failures() -> None:
    failed = [[YES, *[math.nan] * 3]]
    whole = {"em": 0.5, "f1": 0.75, "unknown": 0.5, "n": 2}
    assert named(Questions, SPANS) == whole  # a single type
    assert named(Questions, SPANS + failed) == whole | {"failed": 1}
    metrics = named(Questions, [*SPANS, [YES, 0, 0, 0], *failed])
    assert metrics["f1"] == pytest.approx(0.5)
    assert metrics["yes/n"] == metrics["failed"] == 1
    assert {name: metrics[f"span/{name}"] for name in whole} == whole
    nothing = named(Questions, torch.zeros(0, 4))
    assert (nothing["n"], math.isnan(nothing["em"])) == (0, True)
