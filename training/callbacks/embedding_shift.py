"""How far interventions move embeddings, logged after validation and test (faithfulness spec 4.2)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from data_modules.batching.sets import PairSet
from metrics.shift import EmbeddingShift, ShiftResult
from storage.files import write_text
from training.callbacks.eval_sets import EvalSetMetrics, Outputs, metric_key


class EmbeddingShiftMetrics(EvalSetMetrics):
    """Logs `<stage>/shift/[<set>/]{cls,tokens}/<variant>/{mean,std}` of the last layer, `.../layer_03/...` of
    the others where every layer is watched; writes histograms to `shift/<stage>-<step>.json` in the run's
    folder."""

    kind = PairSet

    def new_metric(self, data: PairSet, module: Any) -> EmbeddingShift:
        return EmbeddingShift(module.watched_layers())

    def update(
        self, metric: EmbeddingShift, data: PairSet, batch: Any, outputs: Outputs, module: Any
    ) -> None:
        metric.update(outputs["cls_cos_BL"], outputs["token_cos_PL"], batch.row_P, len(batch.pair_B))

    def values(self, result: ShiftResult, data: PairSet) -> Iterator[tuple[str, Tensor]]:
        # torchmetrics squeezes results of one element.
        result = ShiftResult(*(torch.atleast_1d(value) for value in result))
        cls, tokens = f"cls/{data.variant}", f"tokens/{data.variant}"
        last = len(result.cls_mean_L) - 1
        for layer in range(last + 1):
            at = "" if layer == last else f"layer_{layer:02d}/"
            yield f"{cls}/{at}mean", result.cls_mean_L[layer]
            yield f"{cls}/{at}std", result.cls_std_L[layer]
            yield f"{tokens}/{at}mean", result.token_mean_L[layer]
            yield f"{tokens}/{at}std", result.token_std_L[layer]
            yield f"{tokens}/{at}macro", result.token_macro_L[layer]
        yield f"{cls}/n", result.n[0]

    def computed(self, trainer: pl.Trainer, stage: str, results: list[tuple[str, Any, Any]]) -> None:
        folder = trainer.log_dir if results else None  # asks all processes
        if folder is None or not trainer.is_global_zero:
            return
        histograms = {
            metric_key(stage, "shift", name, data.variant): {
                "cls": result.cls_histogram_LH.tolist(),
                "tokens": result.token_histogram_LH.tolist(),
            }
            for name, data, result in results
        }
        path = Path(folder) / "shift" / f"{stage}-{trainer.global_step}.json"
        write_text(path, json.dumps(histograms) + "\n")
