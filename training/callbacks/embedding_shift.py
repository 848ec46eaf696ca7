"""How far interventions move embeddings, logged after validation and test (faithfulness spec 4.2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from data_modules.batching.eval_sets import EvalSet
from data_modules.encoding.pairs import PairSet
from metrics.shift import EmbeddingShift, ShiftResult
from storage.json_files import write_text
from training.callbacks.eval_sets import EvalSetCallback, Outputs, metric_key


class EmbeddingShiftMetrics(EvalSetCallback):
    """Logs `<stage>/shift/[<set>/]{cls,tokens}/<variant>/{mean,std}` of the last layer, `.../layer_03/...` of
    the others where every layer is watched; writes histograms to `shift/<stage>-<step>.json` in the run's
    folder."""

    def __init__(self) -> None:
        self.metrics: dict[tuple[str, str], EmbeddingShift] = {}

    def start(self, stage: str) -> None:
        self.metrics = {}

    def update(self, module: pl.LightningModule, outputs: Outputs, batch: Any, data: EvalSet) -> None:
        if not isinstance(data.data, PairSet):
            return
        cls_cos_BL, token_cos_PL = outputs["cls_cos_BL"], outputs["token_cos_PL"]
        metric = self._metric(data, cls_cos_BL.shape[1], module)
        metric.update(cls_cos_BL, token_cos_PL, batch.row_P, len(batch.pair_B))

    def _metric(self, data: EvalSet, layers: int, module: pl.LightningModule) -> EmbeddingShift:
        assert isinstance(data.data, PairSet)
        key = (data.name, data.data.variant)
        if key not in self.metrics:
            self.metrics[key] = EmbeddingShift(layers).to(module.device)
        return self.metrics[key]

    def finish(self, module: pl.LightningModule, stage: str, sets: list[EvalSet]) -> None:
        histograms: dict[str, Any] = {}
        for data in sets:
            if not isinstance(data.data, PairSet):
                continue
            # A process without a batch of this set takes part in the sum all the same.
            layers = module.watched_layers()
            result = self._metric(data, layers, module).compute()
            for name, value in logged(result, data.data.variant).items():
                module.log(metric_key(stage, "shift", data.name, name), value)
            histograms[metric_key(stage, "shift", data.name, data.data.variant)] = {
                "cls": result.cls_histogram_LH.tolist(),
                "tokens": result.token_histogram_LH.tolist(),
            }
        folder = module.trainer.log_dir if histograms else None
        if folder is not None and module.trainer.is_global_zero:
            path = Path(folder) / "shift" / f"{stage}-{module.trainer.global_step}.json"
            write_text(path, json.dumps(histograms) + "\n")


def logged(result: ShiftResult, variant: str) -> dict[str, Any]:
    """Metric names under the family `shift`, to float32 scalars; the last layer carries no layer name."""
    # torchmetrics squeezes results of one element.
    result = ShiftResult(*(torch.atleast_1d(value) for value in result))
    values: dict[str, Any] = {}
    layers = len(result.cls_mean_L)
    for layer in range(layers):
        at = "" if layer == layers - 1 else f"layer_{layer:02d}/"
        values[f"cls/{variant}/{at}mean"] = result.cls_mean_L[layer].float()
        values[f"cls/{variant}/{at}std"] = result.cls_std_L[layer].float()
        values[f"tokens/{variant}/{at}mean"] = result.token_mean_L[layer].float()
        values[f"tokens/{variant}/{at}std"] = result.token_std_L[layer].float()
        values[f"tokens/{variant}/{at}macro"] = result.token_macro_L[layer].float()
    values[f"cls/{variant}/n"] = result.n[0].float()
    return values
